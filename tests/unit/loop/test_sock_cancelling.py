"""Cancelled socket operations: a task that is cancelled takes nothing from its socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.recording import turns

Loop = asyncio.AbstractEventLoop

pytestmark = pytest.mark.skipif(
    loops.MODULE != "ropewalk", reason="asyncio drops what it has received for a task that is cancelled"
)


async def _cancel_as_it_is_woken(
    loop: Loop, stack: ExitStack, operation: Coroutine[Any, Any, Any], make_ready: Callable[[], object]
) -> None:
    """Cancels a task in the turn in which its socket is reported as ready, before the task runs."""
    trigger, other = (stack.enter_context(sock) for sock in socket.socketpair())
    task = loop.create_task(operation)
    await turns()

    def cancel() -> None:
        loop.remove_reader(trigger)
        task.cancel()

    # Both are ready in the same look, the trigger after the operation's socket.
    loop.add_reader(trigger, cancel)
    make_ready()
    other.send(b"x")
    await asyncio.wait([task])
    assert task.cancelled()


async def test_bytes(loop: Loop, stack: ExitStack, pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    for size in (100, 100_000):
        await _cancel_as_it_is_woken(loop, stack, loop.sock_recv(near, size), lambda: far.send(b"kept"))
        assert await asyncio.wait_for(loop.sock_recv(near, 100), 10) == b"kept"


async def test_bytes_into_a_buffer(
    loop: Loop, stack: ExitStack, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    buffer = bytearray(10)
    await _cancel_as_it_is_woken(loop, stack, loop.sock_recv_into(near, buffer), lambda: far.send(b"kept"))
    assert buffer == bytes(10)
    buffer.append(0)  # Nothing holds the buffer any more.
    assert await asyncio.wait_for(loop.sock_recv(near, 100), 10) == b"kept"


async def test_messages(loop: Loop, stack: ExitStack) -> None:
    near, far = (stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(2))
    for sock in (near, far):
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))
    buffer = bytearray(10)
    for operation in (loop.sock_recvfrom(near, 10), loop.sock_recvfrom_into(near, buffer)):
        await _cancel_as_it_is_woken(loop, stack, operation, lambda: far.sendto(b"kept", near.getsockname()))
        received = await asyncio.wait_for(loop.sock_recvfrom(near, 100), 10)
        assert received == (b"kept", far.getsockname())


async def test_connections(loop: Loop, stack: ExitStack, listening: socket.socket) -> None:
    client = stack.enter_context(socket.socket())
    connect = lambda: client.connect(listening.getsockname())  # noqa: E731
    await _cancel_as_it_is_woken(loop, stack, loop.sock_accept(listening), connect)
    accepted, address = await asyncio.wait_for(loop.sock_accept(listening), 10)
    with accepted:
        assert address == client.getsockname()
