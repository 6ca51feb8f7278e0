"""Log records of workers: each arrives, whatever it contains, and none ends the thread that receives them."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.polling import until

from ropewalk.pool.wire import _logs


class Unsayable:
    """What has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def deep() -> list[Any]:
    made: list[Any] = []
    for _ in range(50_000):
        made = [made]
    return made


def circle() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["itself"] = made
    return made


@pytest.fixture
def way() -> Iterator[tuple[_logs.Collector, logging.Logger, list[logging.LogRecord]]]:
    """A collector, a logger that sends to it as a worker's does, and the records that arrive."""
    arrived: list[logging.LogRecord] = []
    target = logging.getLogger("test_logs.way")
    target.setLevel(logging.INFO)
    target.propagate = False
    handler = logging.Handler()
    handler.emit = arrived.append  # type: ignore[method-assign, assignment]
    target.addHandler(handler)
    collector = _logs.Collector()
    forwarder = _logs.Forwarder()
    forwarder.attach(collector.fd, "a-worker")
    sender = logging.Logger("test_logs.way", logging.INFO)
    sender.addHandler(forwarder)
    yield collector, sender, arrived
    target.removeHandler(handler)


EXTRAS: dict[str, Callable[[], Any]] = {
    "other keys than text": lambda: {(1, 2): 3},
    "itself in it": circle,
    "no text": Unsayable,
    "deep": deep,
    "nearly as deep as can be read": lambda: eval("[" * 150 + "]" * 150),
    "a number of many digits": lambda: 10**6000,
    "too long": lambda: "y" * 500_000,
}


@pytest.mark.parametrize("name", EXTRAS)
def test_a_record_arrives_whatever_it_carries(
    name: str,
    way: tuple[_logs.Collector, logging.Logger, list[logging.LogRecord]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    collector, sender, arrived = way
    sender.info("%s things", 3, extra={"odd": EXTRAS[name](), "plain": [1]})
    collector.drain()
    assert [(record.getMessage(), record.processName) for record in arrived] == [("3 things", "a-worker")]
    assert name == "too long" or vars(arrived[0])["plain"] == [1]
    assert capfd.readouterr().err == ""


def test_a_record_that_cannot_be_formatted_arrives_and_says_so(
    way: tuple[_logs.Collector, logging.Logger, list[logging.LogRecord]], capfd: pytest.CaptureFixture[str]
) -> None:
    collector, sender, arrived = way
    sender.info("%d things", "three")
    sender.info("%s", Unsayable())
    collector.drain()
    assert [record.getMessage()[:30] for record in arrived] == [
        "%d things (which cannot be for",
        "%s (which cannot be formatted ",
    ]
    assert "TypeError" in arrived[0].getMessage()
    assert "RuntimeError" in arrived[1].getMessage()
    assert capfd.readouterr().err == ""


def test_a_record_of_nothing_but_long_escapes_is_shortened(
    way: tuple[_logs.Collector, logging.Logger, list[logging.LogRecord]],
) -> None:
    collector, sender, arrived = way
    sender.info("\U0001f600" * 100_000)
    collector.drain()
    [record] = arrived
    assert record.getMessage().startswith("\U0001f600" * 1000)


def test_messages_of_no_use_do_not_end_the_collector(
    way: tuple[_logs.Collector, logging.Logger, list[logging.LogRecord]], capfd: pytest.CaptureFixture[str]
) -> None:
    collector, sender, arrived = way
    with contextlib.closing(socket.socket(fileno=socket.dup(collector.fd))) as worker:
        for data in (b"", b"\xff", b"[" * 100_000, b"[]", b'{"mark": [1]}', b'{"record": 3}', b""):
            worker.send(data)
    sender.info("after")
    until(lambda: bool(arrived))
    assert [record.getMessage() for record in arrived] == ["after"]
    assert capfd.readouterr().err == ""


def _logs_by_the_module() -> int:
    """Calls each function of the module that configures logging if nothing has; returns what that has left behind."""
    own = logging.getLogger("test_logs.worker")
    own.warning("before")
    for name in ("critical", "error", "exception", "warning", "info", "debug"):
        getattr(logging, name)("one line of %s", name)
    logging.log(logging.WARNING, "one line of log")
    own.warning("after")
    return len(logging.root.handlers)


def test_a_function_of_the_module_takes_no_worker_out_of_the_log(
    make_pool: Callable[..., Any], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    pool = make_pool(1, kind="process")
    assert pool.submit(_logs_by_the_module).result(60) == 0
    pool.shutdown()
    lines = [record.getMessage() for record in caplog.records if record.processName != "MainProcess"]
    assert lines[0] == "before"
    assert lines[1:-2] == [
        f"one line of {name}" for name in ("critical", "error", "exception", "warning", "info", "debug")
    ]
    assert lines[-2:] == ["one line of log", "after"]
    assert "one line" not in capfd.readouterr().err


def _handlers_after(**settings: Any) -> tuple[int, int]:
    logging.basicConfig(**settings)
    return len(logging.root.handlers), logging.root.level


def test_a_call_of_basic_config_configures_the_worker(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", initializer=logging.basicConfig)
    assert pool.submit(_logs_by_the_module).result(60) == 1
    pool = make_pool(1, kind="process")
    assert pool.submit(_handlers_after, level=logging.ERROR).result(60) == (1, logging.ERROR)


def test_logging_is_as_before_when_it_is_no_longer_followed() -> None:
    before = logging.basicConfig, logging.lastResort, logging.NullHandler.handle
    following = _logs.Following()
    following.follow(_logs.levels())
    assert logging.basicConfig is not before[0]
    following.stop()
    assert (logging.basicConfig, logging.lastResort, logging.NullHandler.handle) == before
