"""Standard error that nobody reads."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.polling import until

from ropewalk.serving import _logs, _stderr

LOG = logging.getLogger("ropewalk.test_stderr")


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, io.TextIOWrapper]]:
    """A pipe for 8 KiB: the end to read from, and the other as a stream."""
    monkeypatch.setattr(_stderr, "_PATIENCE", 10)
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 8192)
    with open(writes, "w", encoding="utf-8") as stream:
        yield reads, stream
    os.close(reads)


def handled(text: str) -> logging.LogRecord:
    return LOG.makeRecord(LOG.name, logging.INFO, "", 0, text, (), None)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_nobody_reads_is_counted_and_what_is_read_later_is_whole(
    pipe: tuple[int, io.TextIOWrapper], log_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, stream = pipe
    # Here: between a fixture and its test, pytest puts its own in this place.
    monkeypatch.setattr(sys, "stderr", stream)
    handler = _stderr.handler()
    handler.setFormatter(_logs.formatter(log_format))
    for number in range(20):
        handler.emit(handled(f"{number:03} " + 1000 * "x"))
    before = os.read(reads, 1 << 16).decode()
    handler.emit(handled("again"))
    lines = [*before.splitlines(), *os.read(reads, 1 << 16).decode().split("\n")]
    kept = [line for line in lines if 1000 * "x" in line]
    assert 0 < len(kept) < 20
    [note] = [line for line in lines if "are missing here" in line]
    assert f"{20 - len(kept)} records" in note
    assert "again" in lines[lines.index(note) + 1]


def test_a_descriptor_that_was_closed_is_not_written_to(
    pipe: tuple[int, io.TextIOWrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, stream = pipe
    with open(os.dup(stream.fileno()), "w", encoding="utf-8") as own:
        number = own.fileno()
        monkeypatch.setattr(sys, "stderr", own)
        handler = _stderr.handler()
    os.dup2(stream.fileno(), number)
    try:
        handler.emit(handled("for nobody"))
        stream.write("for the other")
        stream.flush()
        assert os.read(reads, 1 << 16) == b"for the other"
    finally:
        os.close(number)


def test_without_standard_error_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    _stderr.say("nothing")
    _stderr.handler().handle(handled("nothing"))
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    _stderr.say("a line")
    _stderr.handler().handle(handled("a record"))
    assert stream.getvalue() == "a line\na record\n"


APP = """
from ropewalk.serving import tool

@tool
def fails() -> int:
    raise ValueError("x" * 900)
"""

#: Makes calls that fail until the pipe is full.
CALLS = """
import sys, time, urllib.error, urllib.request
for _ in range(20):
    try:
        urllib.request.urlopen(urllib.request.Request(sys.argv[1], b"{}", {"Content-Type": "application/json"}))
    except urllib.error.HTTPError as error:
        error.close()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_whose_errors_nobody_reads_ends(tmp_path: Path, number: signal.Signals) -> None:
    app, reads = tmp_path / "app.py", os.pipe()
    app.write_text(APP)
    fcntl.fcntl(reads[1], fcntl.F_SETPIPE_SZ, 8192)
    command = [sys.executable, "-m", "ropewalk", "serve", str(app), "--http", "127.0.0.1:0", "-w", "1"]
    server = subprocess.Popen(command, stderr=reads[1])
    os.close(reads[1])
    try:
        said = b""
        while b"ready after" not in said:
            said += os.read(reads[0], 1 << 16)
        address = said.decode().partition("http://")[2].split()[0]
        subprocess.run([sys.executable, "-c", CALLS, f"http://{address}/v1/tools/fails"], check=True)
        server.send_signal(number)
        until(lambda: server.poll() is not None)
        assert server.returncode in (0, 130)
    finally:
        with suppress(ProcessLookupError):
            server.kill()
        server.wait()
        os.close(reads[0])
