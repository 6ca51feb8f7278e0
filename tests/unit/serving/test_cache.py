"""Results that answer equal calls: what is equal, what is kept, and for how long."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.tasks import Gate
from tests.unit.serving.conftest import ask, call
from tests.unit.serving.test_batch import number, until

from ropewalk.serving import Server, ServingError, tool

TOOLS = """
import time
from pathlib import Path

import ropewalk
from ropewalk.serving import tool
from tests.tasks import Gate

@tool(read_only=True, cache_ttl="1 h")
def look(folder: str, n: int = 0, size: int = 0) -> dict[str, object]:
    Gate(Path(folder)).mark("look")
    return {"user": ropewalk.current_task().metadata.get("user", ""), "n": n, "fill": "x" * size}

@tool(read_only=True, cache_ttl=0.05)
def briefly(folder: str) -> int:
    Gate(Path(folder)).mark("briefly")
    return len(Gate(Path(folder)).marks("briefly"))

@tool(read_only=True, cache_ttl="1 h")
def fails_first(folder: str) -> int:
    gate = Gate(Path(folder))
    gate.mark("tried")
    if len(gate.marks("tried")) < 3:
        raise ValueError("not yet")
    return len(gate.marks("tried"))

@tool(read_only=True, cache_ttl="1 h")
def held(folder: str) -> int:
    return Gate(Path(folder)).hold("held", 7)

@tool(read_only=True, cache_ttl="1 h")
def sleeps(folder: str) -> None:
    Gate(Path(folder)).mark("sleeps")
    time.sleep(100)

@tool(read_only=True, cache_ttl="1 h", batch=8, window="20 ms")
def together(n: list[int]) -> list[int]:
    return [each * each for each in n]
"""

HIT = "X-Ropewalk-Cache"


@pytest.fixture(scope="module")
def caching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the tools above, with one worker and little room."""
    pytest.importorskip("pydantic")
    file = tmp_path_factory.mktemp("caching") / "tools_of_caches.py"
    file.write_text(TOOLS)
    with Server(file, http="127.0.0.1:0", workers=1, cache_size="100 KiB") as made:
        assert made.wait_ready(60)
        yield made


def test_an_equal_call_runs_nothing(caching: Server, gate: Gate) -> None:
    arguments = {"folder": str(gate.folder), "n": 1}
    said = [call(caching, "look", arguments) for _ in range(3)]
    assert [one.headers[HIT] for one in said] == ["miss", "hit", "hit"]
    assert said[0].body == said[1].body == said[2].body
    assert len(gate.marks("look")) == 1
    assert call(caching, "look", arguments | {"n": 2}).headers[HIT] == "miss"
    assert number(caching, 'ropewalk_tool_cache_lookups_total{tool="look",result="hit"', "look") >= 2


def test_metadata_makes_another_call(caching: Server, gate: Gate) -> None:
    arguments = {"folder": str(gate.folder)}
    said = [call(caching, "look", arguments, x_ropewalk_meta_user=user) for user in ("a", "b", "a")]
    assert [(one.json["user"], one.headers[HIT]) for one in said] == [
        ("a", "miss"),
        ("b", "miss"),
        ("a", "hit"),
    ]


def test_a_trace_makes_no_other_call(caching: Server, gate: Gate) -> None:
    arguments = {"folder": str(gate.folder)}
    traces = [f"00-0af7651916cd43dd8448eb211c80319{n}-00f067aa0ba902b7-01" for n in (1, 2)]
    said = [call(caching, "look", arguments, traceparent=trace) for trace in traces]
    assert [one.headers[HIT] for one in said] == ["miss", "hit"]


def test_a_result_goes_off(caching: Server, gate: Gate) -> None:
    arguments = {"folder": str(gate.folder)}
    assert call(caching, "briefly", arguments).json == 1
    until(lambda: call(caching, "briefly", arguments).json == 2)


def test_failures_are_not_kept(caching: Server, gate: Gate) -> None:
    arguments = {"folder": str(gate.folder)}
    said = [call(caching, "fails_first", arguments) for _ in range(4)]
    assert [one.status for one in said] == [500, 500, 200, 200]
    assert [one.json for one in said[2:]] == [3, 3]


def test_equal_calls_at_once_run_once(caching: Server, gate: Gate) -> None:
    arguments = {"folder": str(gate.folder)}
    with ThreadPoolExecutor(8) as threads:
        # The one that runs is left by its caller, and one of the others has a short deadline: the rest is served.
        first = http.client.HTTPConnection(caching.http or "", timeout=60)
        first.request("POST", "/v1/tools/held", json.dumps(arguments), {"content-type": "application/json"})
        until(lambda: bool(gate.marks("held")))
        others = [threads.submit(call, caching, "held", arguments) for _ in range(5)]
        until(lambda: number(caching, "ropewalk_tool_calls_active", "held") == 6)
        first.close()
        assert call(caching, "held", arguments, x_ropewalk_timeout="0.01").status == 504
        gate.open()
        said = [one.result() for one in others]
    assert [(one.json, one.headers[HIT]) for one in said] == [(7, "shared")] * 5
    assert len(gate.marks("held")) == 1


def test_a_run_that_all_have_left_is_cancelled(caching: Server, gate: Gate) -> None:
    body = json.dumps({"folder": str(gate.folder)})
    left = [http.client.HTTPConnection(caching.http or "", timeout=60) for _ in range(2)]
    for connection in left:
        connection.request("POST", "/v1/tools/sleeps", body, {"content-type": "application/json"})
    until(lambda: number(caching, "ropewalk_tool_calls_active", "sleeps") == 2 and bool(gate.marks("sleeps")))
    for connection in left:
        connection.close()
    # The one worker is free, and not in a hundred seconds.
    assert call(caching, "look", {"folder": str(gate.folder)}, x_ropewalk_timeout="30").status == 200


def test_room_is_bounded(caching: Server, gate: Gate) -> None:
    folder = str(gate.folder)
    sizes = {
        n: call(caching, "look", {"folder": folder, "n": n, "size": 30_000}).headers[HIT] for n in range(8)
    }
    assert set(sizes.values()) == {"miss"}
    text = ask(caching, "GET", "/metrics").body.decode()
    (line,) = (line for line in text.splitlines() if line.startswith("ropewalk_cache_usage_bytes "))
    assert 60_000 < float(line.split()[1]) <= 100 << 10
    assert call(caching, "look", {"folder": folder, "n": 7, "size": 30_000}).headers[HIT] == "hit"
    assert call(caching, "look", {"folder": folder, "n": 0, "size": 30_000}).headers[HIT] == "miss"
    # What is larger than all the room is not kept, and displaces nothing.
    assert [call(caching, "look", {"folder": folder, "size": 200_000}).headers[HIT] for _ in range(2)] == [
        "miss"
    ] * 2
    assert call(caching, "look", {"folder": folder, "n": 7, "size": 30_000}).headers[HIT] == "hit"


def test_a_batched_tool_may_have_a_cache(caching: Server) -> None:
    with ThreadPoolExecutor(4) as threads:
        said = list(threads.map(lambda n: call(caching, "together", {"n": n % 4}), range(16)))
    assert [one.json for one in said] == [(n % 4) ** 2 for n in range(16)]
    assert call(caching, "together", {"n": 3}).headers[HIT] == "hit"


def test_what_is_no_cached_tool_has_no_header(server: Server) -> None:
    assert call(server, "add", {"a": 1}).headers[HIT] is None


def test_only_what_changes_nothing_is_kept() -> None:
    def stream(n: int) -> Iterator[int]:
        yield n

    with pytest.raises(ServingError, match="say so by read_only=True"):
        tool(cache_ttl=1, idempotent=True)
    with pytest.raises(ServingError, match="a stream, which cannot have cache_ttl"):
        tool(cache_ttl=1, read_only=True)(stream)
    with pytest.raises(ValueError, match="cache_ttl must be"):
        tool(cache_ttl="soon", read_only=True)
