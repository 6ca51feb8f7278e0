"""Calls that workers run together: what forms a batch, and what one call's fate is to the others."""

from __future__ import annotations

import http.client
import io
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.tasks import Gate
from tests.unit.serving.conftest import Said, ask, call

from ropewalk.serving import Server, ServingError, tool
from ropewalk.serving._signature import Signature

TOOLS = '''
import os, time
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

import ropewalk
from ropewalk.serving import ToolError, tool
from tests.tasks import Gate

@tool(batch=8, window="50 ms")
def double(n: list[int]) -> list[int]:
    """Doubles numbers."""
    return [2 * each for each in n]

@tool(batch=64, window="20 ms")
def sizes(folder: list[str], hold: list[bool]) -> list[list[int]]:
    if hold[0]:
        Gate(Path(folder[0])).hold()
    batch = ropewalk.current_task().batch
    return [[len(folder), len(batch), int(each.get("number", -1))] for each in batch]

@tool(batch=64, window="20 ms")
def mixed(folder: list[str], what: list[str]) -> list[object]:
    if what[0] == "hold":
        Gate(Path(folder[0])).hold()
        return ["held"]
    made = {
        "ok": "fine", "error": ValueError("mine alone"), "status": ToolError("not here", "NOT_FOUND", [("what", "x")]),
        "strange": object(),
    }
    return [made[each] for each in what]

def known(key: str) -> str:
    if key == "exit":
        raise SystemExit(3)
    return {"hold": "hold", "a": "A"}[key]

@tool(batch=64, window="20 ms")
def looked(folder: list[str], key: list[Annotated[str, AfterValidator(known)]]) -> list[str]:
    if key[0] == "hold":
        Gate(Path(folder[0])).hold()
    return key

@tool(batch=64, window="20 ms")
def broken(folder: list[str], how: list[str]) -> list[int]:
    if how[0] == "hold":
        Gate(Path(folder[0])).hold()
        return [0]
    if how[0] == "raise":
        raise LookupError("all of us")
    if how[0] == "text":
        return "abc"
    return [1] * (len(how) + 1)

@tool(batch=64, window="20 ms", idempotent=True)
def dies_once(folder: list[str]) -> list[str]:
    gate = Gate(Path(folder[0]))
    if not gate.marks("died"):
        gate.mark("died")
        os._exit(7)
    return ["alive"] * len(folder)

@tool(batch=4, window="20 ms")
def sleeps(folder: list[str]) -> list[int]:
    gate = Gate(Path(folder[0]))
    gate.mark("sleeps")
    time.sleep(100)

@tool(batch=8, window="50 s")
def alone(n: list[int]) -> list[int]:
    return n

@tool(batch=4)
def root(number: list[float]) -> list[float]:
    return [each**0.5 if each >= 0 else float("nan") for each in number]

@tool(batch=4)
def upper(data: list[bytes]) -> list[bytes]:
    return [each.upper() for each in data]
'''


@pytest.fixture(scope="module")
def batching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the tools above, with one worker."""
    pytest.importorskip("pydantic")
    file = tmp_path_factory.mktemp("batching") / "tools_of_batches.py"
    file.write_text(TOOLS)
    with Server(file, http="127.0.0.1:0", workers=1) as made:
        assert made.wait_ready(60)
        yield made


def number(server: Server, name: str, tool: str) -> int:
    """Returns a number of a tool's from the metrics."""
    text = ask(server, "GET", "/metrics").body.decode()
    found = [line for line in text.splitlines() if line.startswith(name) and f'tool="{tool}"' in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in found)


def until(holds: Callable[[], bool]) -> None:
    """Waits until something holds."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.002)


def together(server: Server, gate: Gate, name: str, first: dict[str, Any], others: list[Any]) -> list[Said]:
    """Calls a tool once, and while that call holds its worker, calls it again; those are one batch."""
    with ThreadPoolExecutor(len(others) + 1) as threads:
        held = threads.submit(call, server, name, {"folder": str(gate.folder), **first})
        until(lambda: bool(gate.marks()))
        said = []
        for place, arguments in enumerate(others):
            before = number(server, "ropewalk_tool_calls_active", name)
            if isinstance(arguments, dict):
                arguments = {"folder": str(gate.folder), **arguments}
            meta = {"x-ropewalk-meta-number": str(place)}
            said.append(threads.submit(call, server, name, arguments, **meta))
            until(lambda before=before: number(server, "ropewalk_tool_calls_active", name) > before)
        gate.open()
        assert held.result().status == 200
        return [one.result() for one in said]


def test_each_caller_passes_one_value_and_gets_one_result(batching: Server) -> None:
    with ThreadPoolExecutor(16) as threads:
        said = list(threads.map(lambda n: call(batching, "double", {"n": n}), range(64)))
    assert [one.json for one in said] == [2 * n for n in range(64)]


def test_schemas_show_what_a_caller_passes(batching: Server) -> None:
    (shown,) = (one for one in ask(batching, "GET", "/v1/tools").json["tools"] if one["name"] == "double")
    assert shown["input_schema"]["properties"]["n"]["type"] == "integer"
    assert shown["output_schema"]["type"] == "integer"


def test_a_result_that_does_not_fit_fails_its_caller_alone(batching: Server) -> None:
    with ThreadPoolExecutor(8) as threads:
        said = list(threads.map(lambda n: call(batching, "root", {"number": n}), [4, -1] * 8))
    assert [one.json for one in said[::2]] == [2.0] * 8
    for one in said[1::2]:
        assert (one.status, one.error["code"]) == (500, "INTERNAL")
        assert "the result of the tool 'root' does not fit its annotation: " in one.error["message"]


def test_calls_that_come_while_a_batch_runs_are_the_next(batching: Server, gate: Gate) -> None:
    others = [{"hold": False}] * 12
    said = together(batching, gate, "sizes", {"hold": True}, others)
    # They knew nothing of each other, and the tool saw the metadata of each.
    assert [one.json for one in said] == [[12, 12, place] for place in range(12)]


def test_what_is_wrong_with_one_call_is_its_own(batching: Server, gate: Gate) -> None:
    kinds = ["ok", "error", "status", "strange", "ok"]
    others: list[Any] = [{"what": kind} for kind in kinds]
    others += [{"what": 7}, b"{", {"other": 1}]
    said = together(batching, gate, "mixed", {"what": "hold"}, others)
    assert [one.status for one in said] == [200, 500, 404, 500, 200, 422, 422, 422]
    assert said[0].json == said[4].json == "fine"
    assert said[1].error == {"code": "UNKNOWN", "message": "ValueError: mine alone"}
    assert said[2].error["code"] == "NOT_FOUND"
    assert said[2].error["violations"] == [{"field": "what", "description": "x"}]
    assert said[3].error["code"] == "INTERNAL"
    assert said[5].error["violations"][0]["field"] == "what"


def test_a_validator_that_raises_fails_its_caller_alone(batching: Server, gate: Gate) -> None:
    keys = ["a", "mine", "exit", "a"]
    said = together(batching, gate, "looked", {"key": "hold"}, [{"key": key} for key in keys])
    assert [one.status for one in said] == [200, 500, 500, 200]
    assert said[0].json == said[3].json == "A"
    assert said[1].error == {"code": "UNKNOWN", "message": "KeyError: 'mine'"}
    assert said[2].error == {"code": "UNKNOWN", "message": "SystemExit: 3"}


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        ("raise", "UNKNOWN", "LookupError: all of us"),
        ("count", "INTERNAL", "returned 4 results for a batch of 3 calls"),
        ("text", "INTERNAL", "returned a str for a batch, and not a list of 3"),
    ],
)
def test_a_function_that_fails_fails_all(
    batching: Server, gate: Gate, how: str, code: str, text: str
) -> None:
    said = together(batching, gate, "broken", {"how": "hold"}, [{"how": how}] * 3)
    assert [one.error["code"] for one in said] == [code] * 3
    assert all(text in one.error["message"] for one in said)


def test_a_batch_whose_worker_dies_runs_again_if_it_may(batching: Server, gate: Gate) -> None:
    assert call(batching, "dies_once", {"folder": str(gate.folder)}).json == "alive"
    assert len(gate.marks("died")) == 1


def test_a_call_that_has_left_or_is_too_late_is_in_no_batch(batching: Server, gate: Gate) -> None:
    folder = str(gate.folder)
    with ThreadPoolExecutor(2) as threads:
        held = threads.submit(call, batching, "sizes", {"folder": folder, "hold": True})
        until(lambda: bool(gate.marks()))
        late = call(batching, "sizes", {"folder": folder, "hold": False}, x_ropewalk_timeout="0.01")
        assert (late.status, late.error["code"]) == (504, "DEADLINE_EXCEEDED")
        leaving = http.client.HTTPConnection(batching.http or "", timeout=60)
        before = number(batching, "ropewalk_tool_calls_active", "sizes")
        body = json.dumps({"folder": folder, "hold": False})
        leaving.request("POST", "/v1/tools/sizes", body, {"content-type": "application/json"})
        until(lambda: number(batching, "ropewalk_tool_calls_active", "sizes") > before)
        leaving.close()
        until(lambda: number(batching, "ropewalk_tool_calls_active", "sizes") == before)
        stays = threads.submit(
            call, batching, "sizes", {"folder": folder, "hold": False}, x_ropewalk_meta_number="9"
        )
        until(lambda: number(batching, "ropewalk_tool_calls_active", "sizes") > before)
        gate.open()
        assert held.result().status == 200
        assert stays.result().json == [1, 1, 9]


def test_a_batch_that_all_have_left_is_cancelled(batching: Server, gate: Gate) -> None:
    left = []
    for _ in range(2):
        connection = http.client.HTTPConnection(batching.http or "", timeout=60)
        body = json.dumps({"folder": str(gate.folder)})
        connection.request("POST", "/v1/tools/sleeps", body, {"content-type": "application/json"})
        left.append(connection)
        until(lambda: bool(gate.marks("sleeps")))
    for connection in left:
        connection.close()
    # The one worker is free, and not in a hundred seconds.
    assert call(batching, "double", {"n": 4}, x_ropewalk_timeout="30").json == 8


def test_bytes_are_batched_too(batching: Server) -> None:
    headers = {"content-type": "application/octet-stream"}
    with ThreadPoolExecutor(4) as threads:
        said = threads.map(lambda n: ask(batching, "POST", "/v1/tools/upper", b"a%d" % n, headers), range(8))
    assert [one.body for one in said] == [b"A%d" % n for n in range(8)]


def test_a_full_queue_refuses(tmp_path: Path, gate: Gate, make_server: Callable[..., Server]) -> None:
    file = tmp_path / "tools_of_full_batches.py"
    file.write_text(TOOLS)
    config = tmp_path / "full.toml"
    config.write_text("[pools.one]\nworkers = 1\ncapacity = 2\n")
    server = make_server(file, config=config)
    assert server.wait_ready(60)
    folder = str(gate.folder)
    with ThreadPoolExecutor(4) as threads:
        held = [threads.submit(call, server, "sizes", {"folder": folder, "hold": True})]
        until(lambda: bool(gate.marks()))
        for place in range(2):
            held.append(threads.submit(call, server, "sizes", {"folder": folder, "hold": False}))
            until(lambda place=place: number(server, "ropewalk_tool_calls_active", "sizes") == place + 2)
        refused = call(server, "sizes", {"folder": folder, "hold": False})
        assert (refused.status, refused.error["code"]) == (429, "RESOURCE_EXHAUSTED")
        assert "2 calls wait, and 2 may" in refused.error["message"]
        gate.open()
        assert [one.result().status for one in held] == [200] * 3
    assert number(server, "ropewalk_tool_calls_shed_total", "sizes") == 1


def test_sizes_and_waiting_are_counted(batching: Server, gate: Gate) -> None:
    def sizes(kind: str) -> int:
        return number(batching, f"ropewalk_tool_batch_size_{kind}", "sizes")

    before = sizes("sum"), sizes("count")
    together(batching, gate, "sizes", {"hold": True}, [{"hold": False}] * 5)
    assert (sizes("sum") - before[0], sizes("count") - before[1]) == (6, 2)
    until(lambda: number(batching, "ropewalk_tool_calls_active", "sizes") == 0)
    assert number(batching, "ropewalk_tool_queue_duration_seconds_count", "sizes") > 0


ARRAYS = """
import numpy as np
from numpy.typing import NDArray
from ropewalk.serving import tool

@tool(batch=8, window="50 ms")
def scaled(array: list[NDArray[np.float64]], factor: list[float]) -> list[NDArray[np.float64]]:
    assert all(one.flags.aligned and not one.flags.writeable for one in array if one.base is not None)
    return [one * by for one, by in zip(array, factor)]

@tool(batch=8, window="50 ms")
def stacked(array: list[np.ndarray]) -> NDArray[np.float32]:
    return np.stack(array) + 1

@tool(batch=8, window="50 ms")
def sums(array: list[np.ndarray]) -> NDArray[np.float32]:
    return np.array([one.sum() for one in array], "float32")

@tool(batch=8, window="50 ms")
def lengths(items: list[list[float]], data: list[bytes]) -> list[int]:
    return [len(one) + len(two) for one, two in zip(items, data)]

@tool(batch=8, window="50 ms")
def long(n: list[int]) -> list[bytes]:
    return [b"x" * one for one in n]
"""


def test_arrays_are_batched(tmp_path: Path) -> None:
    pytest.importorskip("pydantic")
    numpy = pytest.importorskip("numpy")
    file = tmp_path / "tools_of_batched_arrays.py"
    file.write_text(ARRAYS)
    npy = {"Content-Type": "application/x-npy"}

    def saved(array: Any) -> bytes:
        body = io.BytesIO()
        numpy.save(body, array)
        return body.getvalue()

    with Server(file, http="127.0.0.1:0", workers=1) as server, ThreadPoolExecutor(16) as threads:
        assert server.wait_ready(60)

        def stacked(n: int) -> Any:
            # Of odd lengths before, long ones, and of every form of the answer.
            array = numpy.full((n % 3, 5000) if n % 4 == 0 else (3,), n, "int8" if n % 2 else "float64")
            accept = {"Accept": "application/x-npy"} if n % 3 else {}
            name = "sums" if n % 5 == 0 else "stacked"
            said = ask(server, "POST", f"/v1/tools/{name}", saved(array), npy | accept)
            return array, name, said

        # One shape at a time: they are stacked.
        for n in range(8):
            array, name, said = stacked(n)
            assert said.status == 200, said.body
            if name == "sums":
                assert said.json == float(array.sum())
            elif said.headers["Content-Type"] == "application/x-npy":
                found = numpy.load(io.BytesIO(said.body))
                assert numpy.array_equal(found, array + 1)
                assert found.dtype == array.dtype
            else:
                assert said.json == (array + 1).tolist()

        def scaled(n: int) -> Said:
            return call(server, "scaled", {"array": [n] * (n * 500), "factor": n})

        assert [one.json for one in threads.map(scaled, range(12))] == [[n * n] * n * 500 for n in range(12)]
        wrong = call(server, "scaled", {"array": "none", "factor": 1})
        assert (wrong.status, wrong.error["violations"][0]["field"]) == (422, "array")

        # Long results that are bytes, and arguments that are nested too deeply: as for a call alone.
        sizes = [10, 100_000, 70_000, 0]
        said = list(threads.map(lambda n: call(server, "long", {"n": n}), sizes))
        assert [one.body for one in said] == [b"x" * n for n in sizes]
        deep = ask(server, "POST", "/v1/tools/long", b"[" * 1000, {"Content-Type": "application/json"})
        assert (deep.status, "more deeply than 128" in deep.error["message"]) == (422, True)


def test_arrays_of_messages_are_batched(tmp_path: Path) -> None:
    pytest.importorskip("pydantic")
    numpy = pytest.importorskip("numpy")
    triton = pytest.importorskip("tritonclient.grpc")
    file = tmp_path / "tools_of_batched_tensors.py"
    file.write_text(ARRAYS)
    with Server(file, grpc="127.0.0.1:0", workers=1) as server, ThreadPoolExecutor(8) as threads:
        with triton.InferenceServerClient(server.grpc) as client:

            def scaled(n: int) -> Any:
                array = triton.InferInput("array", [n, 7], "FP64")
                array.set_data_from_numpy(numpy.full((n, 7), n, "float64"))
                factor = triton.InferInput("factor", [1], "FP32")
                factor.set_data_from_numpy(numpy.array([2], "float32"))
                return client.infer("scaled", [array, factor]).as_numpy("result")

            for n, found in zip(range(1, 9), threads.map(scaled, range(1, 9)), strict=True):
                assert numpy.array_equal(found, numpy.full((n, 7), 2 * n))
            # A tool that takes no arrays is given lists.
            items = triton.InferInput("items", [3], "FP32")
            items.set_data_from_numpy(numpy.ones(3, "float32"))
            data = triton.InferInput("data", [1], "BYTES")
            data.set_data_from_numpy(numpy.array([b"1234"], object))
            assert client.infer("lengths", [items, data]).as_numpy("result").tolist() == [7]


def test_what_cannot_be_a_batch_is_refused() -> None:
    def stream(n: list[int]) -> Iterator[int]:
        yield from n

    def default(n: list[int], m: list[int] = []) -> list[int]:  # noqa: B006
        return n

    with pytest.raises(ServingError, match="a stream, which cannot have batch"):
        tool(batch=2)(stream)
    with pytest.raises(ServingError, match="remove the default"):
        tool(batch=2)(default)
    with pytest.raises(ServingError, match="give the size, too"):
        tool(window="5 ms")
    with pytest.raises(ValueError, match="batch must be 1 or more"):
        tool(batch=0)
    with pytest.raises(ValueError, match="window must be 60 seconds or less"):
        tool(batch=2, window="2 min")


def test_parameters_of_a_batch_are_lists() -> None:
    pytest.importorskip("pydantic")

    def plain(n: int) -> list[int]:
        return [n]

    def none() -> list[int]:
        return []

    with pytest.raises(ServingError, match=r"annotate its parameter 'n' as list\[T\]"):
        Signature(plain, streams=False, batch=True)
    with pytest.raises(ServingError, match="has no parameter"):
        Signature(none, streams=False, batch=True)


def test_a_call_alone_waits_for_no_window(batching: Server) -> None:
    for _ in range(3):
        # The window is longer than the caller waits.
        assert call(batching, "alone", {"n": 1}, x_ropewalk_timeout="25").json == 1
