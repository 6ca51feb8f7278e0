"""Awaitables that nobody awaits: Python warns, as of a coroutine; and what they are called."""

from __future__ import annotations

import asyncio
import gc
import io
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.loop.recording import stream_pair, until

Loop = asyncio.AbstractEventLoop


async def _read(loop: Loop, make: Callable[[asyncio.StreamReader], Any], then: Callable[[Any], Any]) -> None:
    left, right = stream_pair("tcp")
    with right:
        reader, writer = await asyncio.open_connection(sock=left)
        result = then(make(reader))
        if result is not None:
            await result
        writer.transport.abort()
        await until(lambda: left.fileno() == -1)


async def _socket(loop: Loop, make: Callable[[Loop, Any], Any], then: Callable[[Any], Any]) -> None:
    left, right = stream_pair("tcp")
    with left, right:
        result = then(make(loop, left))
        if result is not None:
            await result


READS: dict[str, Callable[[asyncio.StreamReader], Any]] = {
    "StreamReader.read": lambda reader: reader.read(10),
    "StreamReader.readexactly": lambda reader: reader.readexactly(10),
    "StreamReader.readline": lambda reader: reader.readline(),
}
OPERATIONS: dict[str, Callable[[Loop, Any], Any]] = {
    "sock_recv": lambda loop, sock: loop.sock_recv(sock, 10),
    "sock_recv_into": lambda loop, sock: loop.sock_recv_into(sock, bytearray(10)),
    "sock_sendall": lambda loop, sock: loop.sock_sendall(sock, b"x"),
    "sock_sendfile": lambda loop, sock: loop.sock_sendfile(sock, io.BytesIO(b"x")),
}
ALL = [(name, _read, READS[name]) for name in READS] + [
    (name, _socket, OPERATIONS[name]) for name in OPERATIONS
]
each = pytest.mark.parametrize(("name", "scene", "make"), ALL, ids=[name for name, *_ in ALL])


@each
async def test_python_warns(loop: Loop, name: str, scene: Any, make: Any) -> None:
    with pytest.warns(RuntimeWarning, match=rf"^coroutine '(\w+\.)?{name}' was never awaited"):
        await scene(loop, make, lambda forgotten: None)


@each
async def test_a_cycle_that_nobody_awaits_is_noticed(loop: Loop, name: str, scene: Any, make: Any) -> None:
    def keep(forgotten: Any) -> None:
        cycle: list[Any] = [forgotten]
        cycle.append(cycle)

    async def played() -> None:
        await scene(loop, make, keep)
        gc.collect()

    with pytest.warns(RuntimeWarning, match=f"{name}' was never awaited"):
        await played()


@each
async def test_no_warning_when_it_was_begun_closed_or_cancelled(
    loop: Loop, name: str, scene: Any, make: Any
) -> None:
    async def begin(awaited: Any) -> None:
        task = asyncio.ensure_future(awaited)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    async def throw(awaited: Any) -> None:
        with pytest.raises(ZeroDivisionError):
            awaited.throw(ZeroDivisionError())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await scene(loop, make, lambda awaited: awaited.close())
        await scene(loop, make, begin)
        await scene(loop, make, throw)


@each
async def test_a_warning_that_is_an_error_is_unraisable(
    loop: Loop, name: str, scene: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: seen.append(repr(report.exc_value)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await scene(loop, make, lambda forgotten: None)
    (report,) = seen
    assert f"{name}' was never awaited" in report


@each
async def test_it_outlives_a_warning_that_keeps_it(
    loop: Loop, name: str, scene: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: kept.append(report.object))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await scene(loop, make, lambda forgotten: None)
    (again,) = kept
    if again is not None:
        again.close()


@each
async def test_reprs_name_the_coroutine(loop: Loop, name: str, scene: Any, make: Any) -> None:
    def look(awaited: Any) -> None:
        assert awaited.__name__ == name.rpartition(".")[2]
        assert awaited.__qualname__.endswith(name)
        assert f"coroutine object {awaited.__qualname__} at 0x" in repr(awaited)
        task = loop.create_task(awaited, name="a task")
        assert f"coro=<{awaited.__qualname__}()" in repr(task)
        task.cancel()

    await scene(loop, make, look)
    await asyncio.sleep(0)
