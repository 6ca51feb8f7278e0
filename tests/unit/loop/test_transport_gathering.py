"""A transport that a server made may send together what a callback writes: when it does, and that nothing is lost."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.recording import Recording, until

Loop = asyncio.AbstractEventLoop
only_ropewalk = pytest.mark.skipif(loops.MODULE != "ropewalk", reason="no other loop gathers")
#: More callbacks than it takes on the slowest machine.
MANY = 5000


class _Answering(Recording):
    """Writes "head" and "body" for what it receives, or does something else."""

    act: Callable[[Any], object] | None = None
    waiting = 0

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.act is not None:
            self.act(self.transport)
        else:
            self.answer()

    def answer(self) -> None:
        self.transport.write(b"head")
        self.transport.write(b"body")
        self.waiting = self.transport.get_write_buffer_size()


@asynccontextmanager
async def _served(loop: Loop, family: str = "tcp") -> AsyncIterator[tuple[_Answering, socket.socket]]:
    """A connection that a server has accepted, and its peer."""
    made: list[_Answering] = []

    def make() -> _Answering:
        made.append(_Answering())
        return made[-1]

    if family == "tcp":
        server = await loop.create_server(make, "127.0.0.1", 0)
        peer = socket.create_connection(server.sockets[0].getsockname())
    else:
        path = f"\0ropewalk-{os.getpid()}-{time.monotonic_ns()}"
        server = await loop.create_unix_server(make, path)
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(path)
    with peer:
        peer.setblocking(False)
        await until(lambda: made and made[0].transport)
        try:
            yield made[0], peer
        finally:
            made[0].transport.abort()
            await until(lambda: made[0].lost)
            server.close()


async def _ask(loop: Loop, peer: socket.socket) -> bytes:
    await loop.sock_sendall(peer, b"x")
    answer = b""
    while len(answer) < 8:
        answer += await loop.sock_recv(peer, 100)
    return answer


async def _learn(loop: Loop, protocol: _Answering, peer: socket.socket) -> None:
    """Answers in two pieces until the transport gathers them."""
    for _ in range(MANY):
        assert await _ask(loop, peer) == b"headbody"
        if protocol.waiting == 8:
            return
    raise AssertionError("the transport never gathers")


families = pytest.mark.parametrize("family", ["tcp", "unix"])


@only_ropewalk
@families
async def test_callbacks_that_write_twice_are_answered_in_one_piece(loop: Loop, family: str) -> None:
    async with _served(loop, family) as (protocol, peer):
        assert await _ask(loop, peer) == b"headbody"
        assert protocol.waiting == 0
        await _learn(loop, protocol, peer)
        # Callbacks that read are no different from others.
        protocol.act = lambda _: loop.call_soon(protocol.answer)
        await _learn(loop, protocol, peer)


@only_ropewalk
async def test_pieces_beyond_the_mark_are_not_gathered(loop: Loop) -> None:
    async with _served(loop) as (protocol, peer):
        await _learn(loop, protocol, peer)
        sizes = []

        def write(transport: Any) -> None:
            for _ in range(100):
                transport.write(bytes(10_000))
                sizes.append(transport.get_write_buffer_size())

        protocol.act = write
        await loop.sock_sendall(peer, b"x")
        left = 1_000_000
        while left:
            left -= len(await loop.sock_recv(peer, left))
        # The kernel takes the first of them at least.
        assert min(sizes[1:]) < 64 * 1024


@families
@pytest.mark.parametrize("ends", ["raise", "abort", "close", "write_eof"])
async def test_what_is_gathered_arrives_though_the_callback_ends_the_connection(
    loop: Loop, reports: list[dict[str, Any]], family: str, ends: str
) -> None:
    async with _served(loop, family) as (protocol, peer):
        for _ in range(50):
            await _ask(loop, peer)

        def end(transport: Any) -> None:
            protocol.answer()
            if ends == "raise":
                raise ValueError
            getattr(transport, ends)()

        protocol.act = end
        assert await _ask(loop, peer) == b"headbody"
        if ends != "write_eof":
            await until(lambda: protocol.lost)
        assert await loop.sock_recv(peer, 100) == b""
        assert [type(report["exception"]) for report in reports] == [ValueError] * (ends == "raise")
        reports.clear()


@pytest.mark.parametrize("where", ["a read", "call_soon", "a task"])
def test_what_is_gathered_arrives_though_the_callback_ends_the_loop(loop: Loop, where: str) -> None:
    async def main() -> None:
        async with _served(loop) as (protocol, peer):
            for _ in range(50):
                await _ask(loop, peer)
            connections.append((protocol, peer))

            def leave(_: Any = None) -> None:
                protocol.answer()
                raise SystemExit

            async def task() -> None:
                leave()

            protocol.act = leave
            if where == "call_soon":
                loop.call_soon(leave)
            elif where == "a task":
                connections.append(loop.create_task(task()))
            else:
                peer.send(b"x")
            await asyncio.sleep(3600)

    connections: list[Any] = []
    running = loop.create_task(main())
    with pytest.raises(SystemExit):
        loop.run_until_complete(running)
    _, peer = connections[0]
    peer.settimeout(10)
    answer = b""
    while len(answer) < 8:
        answer += peer.recv(100)
    assert answer == b"headbody"
    if where == "a task":
        assert isinstance(connections[1].exception(), SystemExit)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(running)


@pytest.mark.parametrize("first", ["ask", "learn"])
async def test_a_transport_whose_descriptor_is_known_gathers_nothing(loop: Loop, first: str) -> None:
    async with _served(loop) as (protocol, peer):
        if first == "learn":
            for _ in range(50):
                await _ask(loop, peer)
        orders = []

        def write(transport: Any) -> None:
            transport.write(b"1")
            transport.write(b"2")
            os.write(transport.get_extra_info("socket").fileno(), b"3")
            transport.write(b"4")
            orders.append(transport.get_write_buffer_size())

        protocol.act = write
        for _ in range(50):
            await loop.sock_sendall(peer, b"x")
            answer = b""
            while len(answer) < 4:
                answer += await loop.sock_recv(peer, 4 - len(answer))
            assert answer == b"1234"
        assert orders == [0] * 50


async def test_callbacks_that_work_behind_their_writes_gather_nothing(loop: Loop) -> None:
    async with _served(loop) as (protocol, peer):

        def work(_: Any) -> None:
            protocol.answer()
            waiting.append(protocol.waiting)
            time.sleep(0.001)

        waiting: list[int] = []
        protocol.act = work
        for _ in range(50):
            await _ask(loop, peer)
        assert waiting == [0] * 50


async def test_callbacks_that_write_once_gather_nothing(loop: Loop) -> None:
    async with _served(loop) as (protocol, peer):

        def write(transport: Any) -> None:
            transport.write(b"headbody")
            waiting.append(transport.get_write_buffer_size())

        waiting: list[int] = []
        protocol.act = write
        for _ in range(50):
            await _ask(loop, peer)
        assert waiting == [0] * 50


async def test_two_transports_of_one_callback(loop: Loop) -> None:
    async with _served(loop) as (protocol, peer), _served(loop) as (other, far):

        def both(_: Any) -> None:
            protocol.answer()
            other.answer()

        protocol.act = both
        for _ in range(200):
            assert await _ask(loop, peer) == b"headbody"
            answer = b""
            while len(answer) < 8:
                answer += await loop.sock_recv(far, 100)
            assert answer == b"headbody"
