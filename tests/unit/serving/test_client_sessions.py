"""`client.session` and arrays of both clients, by one suite."""

from __future__ import annotations

import array
import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until
from tests.tasks import Gate
from tests.unit.serving.conftest import ask

from ropewalk import CallFailed, CallInvalid, CallTimeout, CallUnavailable, ExtraMissing
from ropewalk.client import AsyncClient, Client, _arrays
from ropewalk.serving import Server

TOOLS = """
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ropewalk
from ropewalk.serving import ToolError, tool
from tests.tasks import Gate

@tool(session=True)
class Counter:
    def __init__(self, folder: str, start: int = 0) -> None:
        if start < 0:
            raise ToolError("too few", "FAILED_PRECONDITION")
        self.gate, self.number = Gate(Path(folder)), start

    def add(self, n: int = 1) -> int:
        self.number += n
        return self.number

    def numbers(self, n: int) -> Iterator[int]:
        for _ in range(n):
            yield self.add()

    def metadata(self) -> dict[str, str]:
        return dict(ropewalk.current_task().metadata)

    def reverse(self, data: bytes) -> bytes:
        return data[::-1]

    def hold(self) -> None:
        self.gate.hold()

    def die(self) -> None:
        os._exit(7)

    def close(self) -> None:
        self.gate.mark("closed")
        if self.number == 13:
            raise ValueError("an unlucky end")
"""

ARRAYS = """
import numpy as np
from numpy.typing import NDArray
from ropewalk.serving import tool

@tool
def scale(points: NDArray[np.float32], factor: float = 2) -> NDArray[np.float32]:
    return points * np.float32(factor)

@tool
def whole(numbers: np.ndarray) -> np.ndarray:
    return numbers

@tool
def total(numbers: np.ndarray) -> float:
    return float(numbers.sum())

@tool(session=True)
class Kept:
    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers.copy()

    def plus(self, more: np.ndarray) -> np.ndarray:
        return self.numbers + more
"""


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of a session, on one worker."""
    pytest.importorskip("pydantic")
    file = tmp_path_factory.mktemp("app") / "sessions_of_clients.py"
    file.write_text(TOOLS)
    with Server(file, http="127.0.0.1:0", workers=1) as made:
        assert made.wait_ready(60)
        yield made


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of arrays."""
    pytest.importorskip("pydantic")
    pytest.importorskip("numpy")
    file = tmp_path_factory.mktemp("app") / "arrays_of_clients.py"
    file.write_text(ARRAYS)
    with Server(file, http="127.0.0.1:0", workers=1) as made:
        assert made.wait_ready(60)
        yield made


def active(server: Server) -> int:
    """How many sessions are open."""
    lines = ask(server, "GET", "/metrics").body.decode().splitlines()
    return sum(int(line.split()[-1]) for line in lines if line.startswith("ropewalk_sessions_active"))


def test_a_session_keeps_its_state_and_ends_with_its_block(
    sessions: Server, make_client: Callable[..., Any], gate: Gate
) -> None:
    client = make_client(sessions, metadata={"user": "ann"})
    with client.session("Counter", folder=str(gate.folder), start=5) as session:
        assert (session.name, repr(session)) == ("Counter", "<session Counter, open>")
        assert session.call("add") == 6
        assert session.call("add", {"n": 2}) == 8
        with session.stream("numbers", n=3) as items:
            assert list(items) == [9, 10, 11]
        assert session.call("metadata", metadata={"city": "Rome"}) == {"user": "ann", "city": "Rome"}
        assert session.call("reverse", b"\x00\xff") == b"\xff\x00"
        with client.session("Counter", {"folder": str(gate.folder)}) as other:
            assert other.call("add") == 1
        assert len(gate.marks("closed")) == 1
        assert session.call("add") == 12
    assert len(gate.marks("closed")) == 2
    with pytest.raises(ValueError, match="is not open"):
        session.call("add")
    # Once more is nothing.
    session.close()
    assert repr(session) == "<session Counter, closed>"
    assert active(sessions) == 0


def test_failures_of_a_session(sessions: Server, make_client: Callable[..., Any], gate: Gate) -> None:
    client, folder = make_client(sessions), str(gate.folder)
    for name, arguments, status in (
        ("Nothing", {}, "NOT_FOUND"),
        ("Counter", {"folder": folder, "start": -1}, "FAILED_PRECONDITION"),
        ("Counter", {"folder": 1}, "INVALID_ARGUMENT"),
    ):
        with pytest.raises(CallFailed) as caught, client.session(name, arguments):
            raise AssertionError("it is opened")
        assert caught.value.status == status
    block = ExitStack()
    session = block.enter_context(client.session("Counter", folder=folder))
    with pytest.raises(CallInvalid):
        session.call("add", n="1")
    for wrong in ("a/b", "..%2f", ""):
        with pytest.raises(ValueError, match="no method named"):
            session.call(wrong)
    with pytest.raises(CallFailed, match="no such method"):
        session.call("nothing")
    with pytest.raises(CallTimeout):
        session.call("hold", timeout=0.3)
    # That call took the worker with it, and so the object.
    with pytest.raises(CallUnavailable, match="the end of its object did not run"):
        block.close()
    assert active(sessions) == 0
    with pytest.raises(ValueError, match="no session named"), client.session("a/b"):
        pass


def test_what_the_block_raises_is_not_hidden(
    sessions: Server, make_client: Callable[..., Any], gate: Gate
) -> None:
    client, folder = make_client(sessions), str(gate.folder)
    with pytest.raises(KeyError, match="mine"), client.session("Counter", folder=folder, start=13):
        raise KeyError("mine")
    assert gate.marks("closed")
    with (
        pytest.raises(CallFailed, match="an unlucky end"),
        client.session("Counter", folder=folder, start=13),
    ):
        pass
    assert active(sessions) == 0


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_session_that_is_lost(
    sessions: Server, make_client: Callable[..., Any], gate: Gate, idempotent: bool
) -> None:
    client = make_client(sessions)
    with client.session("Counter", folder=str(gate.folder)) as session:
        with pytest.raises(CallUnavailable):
            session.call("die", retries=3, idempotent=idempotent)
        with pytest.raises(CallFailed) as caught:
            session.call("add")
        assert caught.value.status == "NOT_FOUND"
    until(lambda: active(sessions) == 0)


def test_a_coroutine_opens_a_session_by_either_way(sessions: Server, gate: Gate) -> None:
    async def main() -> None:
        async with AsyncClient(f"http://{sessions.http}") as client:
            session = client.session("Counter", folder=str(gate.folder))
            with pytest.raises(ValueError, match="is not open"):
                session.call("add")
            assert await session is session
            async with session:
                # The server runs them in the order in which they come.
                assert sorted(await asyncio.gather(*(session.call("add") for _ in range(3)))) == [1, 2, 3]
            with pytest.raises(ValueError, match="was opened before"):
                await session
            other = await client.session("Counter", folder=str(gate.folder))
            assert [number async for number in other.stream("numbers", n=2)] == [1, 2]
            waiting = asyncio.ensure_future(other.call("hold"))
            while not gate.marks():
                await asyncio.sleep(0.001)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            # The call took the worker with it, and so the object.
            with pytest.raises(CallUnavailable, match="the end of its object did not run"):
                await other.aclose()

    asyncio.run(main())
    assert active(sessions) == 0


def test_an_array_goes_and_comes_as_its_bytes(arrays: Server, make_client: Callable[..., Any]) -> None:
    np = pytest.importorskip("numpy")
    client = make_client(arrays)
    points = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = client.call("scale", points)
    assert (made.dtype, made.tolist()) == (points.dtype, (points * 2).tolist())
    assert not made.flags.writeable
    for given in (
        points.T,
        points[:, ::2],
        np.array(3.5),
        np.zeros((0, 4), np.int8),
        np.array([True, False]),
        np.array([1 + 2j]),
        np.arange(3, dtype=">i4"),
        np.float64(2.5),
    ):
        made = client.call("whole", given)
        assert np.array_equal(made, given)
        assert (made.shape, made.dtype.kind) == (given.shape, given.dtype.kind)
    # What is no array comes as it is.
    assert client.call("total", points) == 15.0
    for wrong in (np.array(["a"]), np.array([object()])):
        with pytest.raises(TypeError, match="its items must be numbers"):
            client.call("whole", wrong)
    with pytest.raises(TypeError, match="not both"):
        client.call("scale", points, factor=3)


def test_arrays_are_asked_for_by_name(arrays: Server, make_client: Callable[..., Any]) -> None:
    np = pytest.importorskip("numpy")
    client = make_client(arrays)
    points = np.ones((1, 3), np.float32)
    assert client.call("scale", points=points, factor=3) == [[3.0, 3.0, 3.0]]
    made = client.call("scale", points=points, factor=3, arrays=True)
    assert (made.dtype, made.tolist()) == (np.float32, [[3.0, 3.0, 3.0]])
    assert client.tool("scale", arrays=True)(points=[[1.0]]).tolist() == [[2.0]]
    with client.session("Kept", points) as session:
        assert session.call("plus", points).tolist() == [[2.0, 2.0, 2.0]]
        assert session.call("plus", more=[[1, 1, 1]]) == [[2.0, 2.0, 2.0]]
        assert session.call("plus", more=[[1, 1, 1]], arrays=True).tolist() == [[2.0, 2.0, 2.0]]


def test_buffers_of_numbers_are_arrays_and_those_of_bytes_are_bytes(
    arrays: Server, server: Server, make_client: Callable[..., Any]
) -> None:
    client = make_client(arrays)
    for given in (array.array("d", [1, 2, 3.5]), array.array("H", [1, 2]), memoryview(array.array("b", [1]))):
        if isinstance(given, memoryview):
            given = given.cast("B").cast("?")
        assert client.call("total", given) == sum(given)
    with pytest.raises(TypeError, match="must be numbers"):
        client.call("total", memoryview(bytes(8)).cast("P"))
    assert make_client(server).call("reverse", memoryview(b"ab")) == b"ba"


def test_numpy_is_for_its_own_arrays(
    arrays: Server, make_client: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client(arrays)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert client.call("scale", array.array("f", [1, 2])) == [2.0, 4.0]
    with pytest.raises(ExtraMissing, match="pip install numpy"):
        client.call("scale", points=[1.0], arrays=True)


@pytest.mark.parametrize(
    "file",
    [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\x05\x00{1,2}", b"\x93NUMPY\x09\x00\x05\x00{1,2}", None],
    ids=str,
)
def test_what_is_no_file_of_an_array(file: bytes | None, tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    if file is None:
        np.save(tmp_path / "a.npy", np.array([{}], object), allow_pickle=True)
        file = (tmp_path / "a.npy").read_bytes()
    with pytest.raises(CallFailed, match="no array"):
        _arrays.read(file)
    whole = _arrays.written(array.array("d", [1, 2]))
    with pytest.raises(CallFailed, match="no array"):
        _arrays.read(whole[:-8])


def test_a_server_that_opens_no_session(arrays: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(f"http://{arrays.http}") as client:
        # A tool's answer is none of an opening.
        monkeypatch.setattr("ropewalk.client._calls.of_session", lambda _: "/v1/tools/total")
        with pytest.raises(CallFailed, match="names no session"):
            client.session("Kept", array.array("d", [1]))
