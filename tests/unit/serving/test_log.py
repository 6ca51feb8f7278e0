"""What the log has of tools that raise, and of workers that are ended with a call."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.polling import is_alive, until
from tests.tasks import Gate
from tests.unit.serving.conftest import call

from ropewalk.serving import Server, _logs

pytest.importorskip("pydantic")

TOOLS = """
from pathlib import Path

from ropewalk.serving import ToolError, tool
from tests.tasks import Gate

class Broken(Exception):
    pass

def inner(text: str) -> None:
    raise KeyError(text)

@tool
def fails(text: str) -> None:
    try:
        inner("the cause is for the operator")
    except KeyError as error:
        raise Broken(text) from error

@tool
def long() -> None:
    raise ValueError("x" * 100_000)

@tool(batch=4, window="1 ms")
def batched(text: list[str]) -> list[str]:
    raise ValueError("all of them")

@tool
def answers(status: str) -> None:
    raise ToolError("an answer", status)

@tool
def holds(folder: str) -> None:
    Gate(Path(folder)).hold()
"""

Make = Callable[..., Server]


@pytest.fixture
def make(make_server: Make, tmp_path: Path) -> Callable[..., Server]:
    file = tmp_path / "tools_with_a_log.py"
    file.write_text(TOOLS)
    return lambda **settings: make_server(file, **settings)


def records(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.name == "ropewalk.serving"]


def test_a_tool_that_raises_leaves_its_traceback(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    server = make()
    forged = "no\nropewalk: INFO: all is well\x1b[2J"
    with caplog.at_level(logging.INFO, "ropewalk.serving"):
        said = call(server, "fails", {"text": forged})
        server.drain()
        (record,) = records(caplog)
    assert "operator" not in said.error["message"]
    line, *below = _logs.formatter("text").format(record).splitlines()
    assert line.startswith("ropewalk: ERROR: fails UNKNOWN in ")
    assert 'inner("the cause is for the operator")' in "".join(below)
    assert any(one.endswith("Broken: no") for one in below)
    # A caller makes no line that looks like a record.
    assert all(one.startswith("  ") or not one for one in below)
    assert "\x1b" not in "".join(below)
    written = json.loads(_logs.formatter("json").format(record))
    assert written["exception.type"].endswith("Broken")
    assert written["exception.stacktrace"].startswith("Traceback")
    assert forged in written["exception.stacktrace"]
    assert written["error"] == f"Broken: {forged}"


def test_the_calls_of_a_batch_that_raises_have_one_too(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    server = make()
    with caplog.at_level(logging.INFO, "ropewalk.serving"):
        assert call(server, "batched", {"text": "a"}).status == 500
        server.drain()
        (record,) = records(caplog)
    assert "all of them" in record.exc_text


@pytest.mark.parametrize("status", ["UNKNOWN", "INTERNAL", "INVALID_ARGUMENT"])
def test_an_answer_of_a_tool_has_no_traceback(
    make: Make, caplog: pytest.LogCaptureFixture, status: str
) -> None:
    server = make(log="calls")
    with caplog.at_level(logging.INFO, "ropewalk.serving"):
        call(server, "answers", {"status": status})
        server.drain()
        (record,) = records(caplog)
    assert record.status == status
    written = json.loads(_logs.formatter("json").format(record))
    assert not [key for key in written if key.startswith("exception")]
    assert len(_logs.formatter("text").format(record).splitlines()) == 1


def test_a_long_traceback_is_cut_at_its_beginning(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    server = make()
    with caplog.at_level(logging.INFO, "ropewalk.serving"):
        call(server, "long")
        server.drain()
        (record,) = records(caplog)
    assert 1000 < len(record.exc_text) <= 16_500
    assert record.exc_text.endswith("xxx")


def leave(server: Server, gate: Gate, **headers: str) -> int:
    """Calls a tool, and leaves it when it runs; gives the process that is ended for that."""
    before = len(gate.marks())
    connection = http.client.HTTPConnection(server.http or "", timeout=60)
    connection.request("POST", "/v1/tools/holds", json.dumps({"folder": str(gate.folder)}), headers)
    pid = until(lambda: gate.marks()[before:])[0]
    if headers:
        with contextlib.suppress(http.client.HTTPException):
            connection.getresponse()
    connection.close()
    until(lambda: not is_alive(pid))
    return pid


def test_a_worker_that_is_ended_with_its_caller_leaves_one_warning(
    make: Make, caplog: pytest.LogCaptureFixture, gate: Gate
) -> None:
    server = make()
    pids = [leave(server, gate)]
    until(lambda: "had left" in caplog.text)
    pids += [leave(server, gate) for _ in range(3)]
    # Within ten seconds the pool has no other one. The end waits for none.
    server.drain()
    server.close()
    first, *others = [record for record in records(caplog) if record.levelno == logging.WARNING]
    assert first.getMessage().startswith(f"worker {first.worker_pid} of pool {first.pool} was ended")
    assert "the caller of holds had left. A longer @tool(grace=...)" in first.getMessage()
    assert first.worker_pid == pids[0]
    # A machine that is slow may need longer than ten seconds for the four.
    assert sum(1 + record.others for record in [first, *others]) == 4
    assert others[-1].worker_pid == pids[-1]


def test_a_worker_that_is_ended_at_a_deadline_leaves_a_warning(
    make: Make, caplog: pytest.LogCaptureFixture, gate: Gate
) -> None:
    server = make()
    assert server.wait_ready(60)
    pid = leave(server, gate, **{"X-Ropewalk-Timeout": "2"})
    record = until(lambda: [one for one in records(caplog) if "was ended" in one.getMessage()])[0]
    assert f"worker {pid} of" in record.getMessage()
    assert "a call of holds was out of time" in record.getMessage()
    server.drain()
    (of_call,) = [one for one in records(caplog) if getattr(one, "status", None) is not None]
    assert of_call.status == "DEADLINE_EXCEEDED"


def test_a_log_of_nothing_has_no_workers(make: Make, caplog: pytest.LogCaptureFixture, gate: Gate) -> None:
    server = make(log="nothing")
    assert leave(server, gate) != os.getpid()
    server.drain()
    assert not records(caplog)
