"""How long a run may take to stop when its caller has left."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.polling import is_alive, until
from tests.tasks import Gate
from tests.unit.serving.conftest import call, stops

from ropewalk.serving import Server, tool

Make = Callable[..., Server]

TOOLS = """
import os
import time
from collections.abc import Iterator
from pathlib import Path

import ropewalk
from ropewalk.serving import tool
from tests.tasks import Gate

def step(gate: Gate) -> None:
    gate.mark("runs")
    task = ropewalk.current_task()
    while not task.cancelled:
        time.sleep(0.002)
    # Longer than a call may take to stop.
    time.sleep(0.1)

def steps(gate: Gate) -> Iterator[int]:
    try:
        yield 0
        step(gate)
        yield 1
    finally:
        gate.mark("closed")

@tool(grace="30 s")
def patient(folder: str) -> Iterator[int]:
    yield from steps(Gate(Path(folder)))

@tool
def usual(folder: str) -> Iterator[int]:
    yield from steps(Gate(Path(folder)))

@tool(grace=0.001)
def hasty(folder: str) -> Iterator[int]:
    yield from steps(Gate(Path(folder)))

@tool
def attentive(folder: str) -> int:
    gate = Gate(Path(folder))
    gate.mark("runs")
    task = ropewalk.current_task()
    while not task.cancelled:
        time.sleep(0.0005)
    return gate.mark("closed")

@tool
def process() -> int:
    return os.getpid()

@tool(grace="30 s")
def lasting(folder: str) -> None:
    gate = Gate(Path(folder))
    step(gate)
    gate.mark("closed")
"""


@pytest.fixture
def graceful(make_server: Make, tmp_path: Path) -> Server:
    """A server with one worker."""
    pytest.importorskip("pydantic")
    file = tmp_path / "tools_of_grace.py"
    file.write_text(TOOLS)
    server = make_server(file)
    assert server.wait_ready(60)
    return server


def leave(server: Server, name: str, gate: Gate, *, streams: bool) -> None:
    """Calls a tool, and leaves it after its first item, or when it runs."""
    before = len(gate.marks("runs"))
    connection = http.client.HTTPConnection(server.http or "", timeout=60)
    connection.request("POST", f"/v1/tools/{name}", json.dumps({"folder": str(gate.folder)}))
    if streams:
        response = connection.getresponse()
        assert response.readline() == b"0\n"
        response.close()
    until(lambda: len(gate.marks("runs")) > before)
    connection.close()


@pytest.mark.parametrize(("name", "streams"), [("patient", True), ("lasting", False)])
def test_a_step_that_ends_within_the_grace_keeps_its_worker(
    graceful: Server, gate: Gate, name: str, streams: bool
) -> None:
    leave(graceful, name, gate, streams=streams)
    [pid] = until(lambda: gate.marks("closed"))
    assert [pid] == gate.marks("runs")
    assert is_alive(pid)
    assert sum(graceful.runtime["tools"].statistics().recycled.values()) == 0


def test_a_stream_s_usual_grace_is_longer_than_its_steps(graceful: Server, gate: Gate) -> None:
    pid = stops(gate, lambda: leave(graceful, "usual", gate, streams=True))
    assert is_alive(pid)


def test_a_call_s_usual_grace_is_enough_for_one_that_looks(graceful: Server, gate: Gate) -> None:
    def is_kept() -> bool:
        # A machine that is busy may not let it run within this time, and then its worker is ended.
        leave(graceful, "attentive", gate, streams=False)
        return bool(call(graceful, "process").json == gate.marks("runs")[-1])

    until(is_kept, 120)
    assert gate.marks("closed")


def test_what_outlasts_its_grace_is_ended_with_its_worker(graceful: Server, gate: Gate) -> None:
    leave(graceful, "hasty", gate, streams=True)
    [pid] = gate.marks("runs")
    until(lambda: not is_alive(pid))
    assert not gate.marks("closed")


@pytest.mark.parametrize("grace", [-1, "soon", "2 min", 61, True, float("nan")])
def test_a_grace_is_a_short_time(grace: object) -> None:
    with pytest.raises((ValueError, TypeError), match="grace must be"):
        tool(grace=grace)  # type: ignore[call-overload]
