"""Log records over sockets."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.polling import until

import ropewalk.zmq as zmq
from ropewalk.zmq.log.handlers import PUBHandler, TopicLogger


@pytest.fixture
def reader(context: Any) -> Any:
    """A subscriber of everything at the log's endpoint."""
    socket = context.socket(zmq.SUB)
    socket.subscribe("")
    socket.connect("inproc://log")
    return socket


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger of its own."""
    logger = TopicLogger("of a test")
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.handlers.clear()


def plain(name: str = "plain") -> logging.Logger:
    logger = logging.Logger(name)
    logger.setLevel(logging.DEBUG)
    return logger


def test_records_have_topics_and_formats(context: Any, reader: Any) -> None:
    logger, handler = plain(), PUBHandler("inproc://log", context)
    logger.addHandler(handler)
    logger.info("it is %s", "full")
    assert reader.recv_multipart() == [b"INFO", b"it is full\n"]
    handler.root_topic = b"app"
    logger.warning("disk.root::it is full")
    topic, text = reader.recv_multipart()
    assert topic == b"app.WARNING.disk.root"
    assert text.startswith(b"WARNING test_log.py:")
    assert text.endswith(b" - it is full\n")
    handler.setRootTopic("other")
    handler.setFormatter(logging.Formatter("%(levelno)d %(message)s"), logging.ERROR)
    logger.error("text::with::more")
    assert reader.recv_multipart() == [b"other.ERROR.text", b"40 with::more"]
    handler.setFormatter(logging.Formatter("all: %(message)s"))
    logger.debug("text")
    assert reader.recv_multipart() == [b"other.DEBUG", b"all: text"]


def test_a_level_of_the_program_s_own(context: Any, reader: Any) -> None:
    logger = plain()
    logger.addHandler(PUBHandler("inproc://log", context))
    logger.log(25, "between")
    assert reader.recv_multipart() == [b"Level 25", b"between\n"]


def test_a_socket_that_is_there(context: Any, reader: Any) -> None:
    socket = context.socket(zmq.PUB)
    socket.bind("inproc://log")
    handler = PUBHandler(socket, root_topic="there")
    assert handler.ctx is context
    logger = plain()
    logger.addHandler(handler)
    logger.info("text")
    assert reader.recv_multipart() == [b"there.INFO", b"text\n"]


def test_what_cannot_be_formatted_is_reported(
    context: Any, reader: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = plain()
    logger.addHandler(PUBHandler("inproc://log", context))
    logger.info("%d", "no number")
    logger.info("last")
    assert reader.recv_multipart() == [b"INFO", b"last\n"]
    assert "no number" in capsys.readouterr().err


def test_topics_as_arguments(context: Any, reader: Any, logger: Any) -> None:
    logger.addHandler(PUBHandler("inproc://log", context))
    logger.warning("disk", "it is %s", "full")
    topic, text = reader.recv_multipart()
    assert topic == b"WARNING.disk"
    # The place is the caller's.
    assert text.startswith(b"WARNING test_log.py:")
    logger.log(logging.INFO, "disk", "text")
    assert reader.recv_multipart() == [b"INFO.disk", b"text\n"]
    for name in ("debug", "info", "error", "critical"):
        getattr(logger, name)("topic", "text")
        assert reader.recv_multipart()[0] == f"{name.upper()}.topic".encode()


def test_a_program_prints_them(context: Any) -> None:
    socket = context.socket(zmq.XPUB)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    command = [sys.executable, "-m", "ropewalk.zmq.log", f"tcp://127.0.0.1:{port}", "-t", "INFO", "--align"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert socket.recv() == b"\x01INFO"
        for topic in (b"INFO.long", b"INFO", b"DEBUG"):
            socket.send_multipart([topic, b"text\n"])
        assert program.stdout is not None
        assert program.stdout.readline() == "INFO.long | text\n"
        assert program.stdout.readline() == "INFO      | text\n"
        program.send_signal(signal.SIGINT)
        until(lambda: program.poll() is not None)
        assert program.returncode == 0
