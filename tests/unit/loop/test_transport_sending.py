"""When a stream transport sends: at once if nothing waits before the data, and then whatever happens next."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.recording import Recording, connected_to_socket, stream_pair, until

Loop = asyncio.AbstractEventLoop
#: More than the kernel's buffers of a connection take.
LARGE = 8 << 20
families = pytest.mark.parametrize("family", ["tcp", "unix"])
only_ropewalk = pytest.mark.skipif(loops.MODULE != "ropewalk", reason="the other loops send all that fits")


def _arrived(peer: socket.socket, count: int) -> bytes:
    """So many bytes, received while the loop does not run; fewer if they do not come."""
    data = b""
    while len(data) < count and select.select([peer], [], [], 10)[0]:
        more = peer.recv(count - len(data))
        if not more:
            break
        data += more
    return data


def _rest(peer: socket.socket) -> bytes:
    """What comes until the end of the connection."""
    peer.settimeout(10)
    data = b""
    while more := peer.recv(100):
        data += more
    return data


@families
async def test_a_write_arrives_while_the_loop_does_not_run(loop: Loop, family: str) -> None:
    async with connected_to_socket(protocol := Recording(), family=family) as peer:
        transport = protocol.transport
        for kind in (bytes, bytearray, memoryview):
            transport.write(kind(b"hello"))
            assert _arrived(peer, 5) == b"hello"
        for pieces in ([b"he", b"llo"], [b"", bytearray(b"hello"), b""]):
            transport.writelines(pieces)
            assert _arrived(peer, 5) == b"hello"
        assert transport.get_write_buffer_size() == 0


@families
async def test_each_of_many_writes_in_one_step_arrives_at_once(loop: Loop, family: str) -> None:
    async with connected_to_socket(protocol := Recording(), family=family) as peer:
        for _ in range(20):
            await asyncio.sleep(0)
            for number in range(3):
                protocol.transport.write(b"%d" % number)
                assert _arrived(peer, 1) == b"%d" % number


async def test_a_write_after_drain_arrives_at_once(
    loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    left, right = pair
    _, writer = await asyncio.open_connection(sock=left)
    for _ in range(3):
        writer.write(b"hello")
        await writer.drain()
        assert _arrived(right, 5) == b"hello"
    writer.close()
    await writer.wait_closed()


async def test_a_write_in_connection_made_arrives_at_once(loop: Loop) -> None:
    arrived = []

    class Greeting(Recording):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.write(b"hello")
            arrived.append(_arrived(right, 5))

    left, right = stream_pair("unix")
    with right:
        transport, _ = await loop.create_connection(Greeting, sock=left)
        assert arrived == [b"hello"]
        transport.abort()
        await until(lambda: left.fileno() == -1)


def test_a_write_while_no_loop_runs_arrives_at_once(
    loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    left, right = pair
    transport, _ = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=left))
    transport.write(b"hello")
    assert _arrived(right, 5) == b"hello"
    transport.abort()
    loop.run_until_complete(until(lambda: left.fileno() == -1))


@families
async def test_writes_keep_their_order_with_those_to_the_descriptor(loop: Loop, family: str) -> None:
    async with connected_to_socket(protocol := Recording(), family=family) as peer:
        number = protocol.transport.get_extra_info("socket").fileno()
        for _ in range(20):
            await asyncio.sleep(0)
            protocol.transport.write(b"1")
            protocol.transport.write(b"2")
            os.write(number, b"3")
            protocol.transport.write(b"4")
            assert _arrived(peer, 4) == b"1234"


async def test_what_waits_for_room_waits_for_the_loop(loop: Loop) -> None:
    async with connected_to_socket(protocol := Recording()) as peer:
        transport = protocol.transport
        transport.write(bytes(LARGE))
        waiting = transport.get_write_buffer_size()
        assert waiting > 64 * 1024
        # The peer makes room, but the kernel has not told the loop yet: these writes ask it nothing.
        assert len(_arrived(peer, LARGE - waiting)) == LARGE - waiting
        for number in range(1, 4):
            transport.write(b"x")
            transport.writelines([b"y", b"z"])
            assert transport.get_write_buffer_size() == waiting + 3 * number
        received = bytearray()
        while len(received) < waiting + 9:
            received += await loop.sock_recv(peer, 1 << 20)
        assert received == bytes(waiting) + b"xyz" * 3


class _Answering(Recording):
    """Writes in two pieces when something arrives, and does something else then."""

    def __init__(self, then: Callable[[asyncio.Transport], object]) -> None:
        super().__init__()
        self._then = then

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(b"bad ")
        self.transport.write(b"request")
        self._then(self.transport)


def _fail(_: object) -> None:
    raise ValueError


def _abort(transport: asyncio.Transport) -> None:
    transport.abort()


def _close(transport: asyncio.Transport) -> None:
    transport.close()


def _end(transport: asyncio.Transport) -> None:
    transport.write_eof()
    transport.close()


@families
@pytest.mark.parametrize("then", [_fail, _abort, _close, _end])
async def test_an_answer_arrives_though_its_callback_ends_the_connection(
    loop: Loop, reports: list[dict[str, Any]], family: str, then: Callable[[asyncio.Transport], object]
) -> None:
    async with connected_to_socket(protocol := _Answering(then), family=family) as peer:
        peer.send(b"x")
        await until(lambda: protocol.lost)
        assert _rest(peer) == b"bad request"
        assert [type(report["exception"]) for report in reports] == [ValueError] * (then is _fail)
        reports.clear()


@families
@pytest.mark.parametrize("where", ["data_received", "buffer_updated", "eof_received", "call_soon", "a task"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_answer_arrives_though_its_callback_ends_the_loop(
    loop: Loop, family: str, where: str, error: type[BaseException]
) -> None:
    left, right = stream_pair(family)

    def answer() -> None:
        transport.write(b"last ")
        transport.write(b"words")
        raise error

    class Plain(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            if where == "data_received":
                answer()

        def eof_received(self) -> None:
            answer()

    class Buffered(asyncio.BufferedProtocol):
        def get_buffer(self, sizehint: int) -> bytearray:
            return bytearray(10)

        def buffer_updated(self, nbytes: int) -> None:
            answer()

    async def task() -> None:
        answer()

    with right:
        made = loop.create_connection(Buffered if where == "buffer_updated" else Plain, sock=left)
        transport, _ = loop.run_until_complete(made)
        if where == "call_soon":
            loop.call_soon(answer)
        elif where == "eof_received":
            right.shutdown(socket.SHUT_WR)
        elif where != "a task":
            right.send(b"x")
        with pytest.raises(error):
            loop.run_until_complete(task()) if where == "a task" else loop.run_forever()
        assert _arrived(right, 10) == b"last words"
        transport.abort()
        loop.run_until_complete(until(lambda: left.fileno() == -1))


_LEAVING = """
import asyncio, os, socket, sys, {module}

async def main():
    loop = asyncio.get_running_loop()
    left = socket.socket(fileno={number})
    left.setblocking(False)
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=left)
    transport.write(b"last ")
    transport.writelines([b"wo", b"rds"])
    os._exit(0)

loop = {module}.new_event_loop()
loop.run_until_complete(main())
"""


@families
def test_what_was_written_arrives_though_the_process_leaves(family: str) -> None:
    left, right = stream_pair(family)
    with right:
        with left:
            code = _LEAVING.format(module=loops.MODULE, number=left.fileno())
            subprocess.run([sys.executable, "-c", code], pass_fds=[left.fileno()], check=True, timeout=60)
        assert _rest(right) == b"last words"


async def test_a_socket_with_methods_of_its_own(
    loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    calls: list[str] = []

    class Counting(socket.socket):
        def recv(self, *arguments: Any) -> bytes:
            calls.append("recv")
            return super().recv(*arguments)

        def send(self, *arguments: Any) -> int:
            calls.append("send")
            return super().send(*arguments)

    near, far = pair
    counting = Counting(fileno=near.detach())
    transport, protocol = await loop.create_connection(Recording, sock=counting)
    transport.write(b"out")
    assert await loop.sock_recv(far, 10) == b"out"
    await loop.sock_sendall(far, b"in")
    await until(lambda: protocol.received == b"in")
    assert set(calls) == {"recv", "send"}
    transport.close()
    await until(lambda: protocol.lost == [None])


@only_ropewalk
@families
async def test_the_rest_of_many_pieces_waits_for_the_next_turn(loop: Loop, family: str) -> None:
    # A peer that takes everything at once would hold the loop until the last piece.
    pieces = [b"%05d" % number for number in range(20_000)]
    async with connected_to_socket(protocol := Recording(), family=family) as peer:
        transport, seen = protocol.transport, []
        loop.call_soon(lambda: seen.append(transport.get_write_buffer_size()))
        received = b""
        transport.set_write_buffer_limits(high=10**6)
        transport.writelines(pieces)
        left = transport.get_write_buffer_size()
        assert 0 < left < 100_000
        transport.write(b"end")
        assert transport.get_write_buffer_size() == left + 3
        while not received.endswith(b"end"):
            await asyncio.sleep(0)
            with contextlib.suppress(BlockingIOError):
                received += peer.recv(1 << 20)
        assert seen == [left + 3]
        assert received == b"".join(pieces) + b"end"


@only_ropewalk
@pytest.mark.parametrize("end", ["close", "write_eof"])
async def test_an_end_comes_after_what_waits_for_its_turn(loop: Loop, end: str) -> None:
    pieces = [b"%05d" % number for number in range(20_000)]
    async with connected_to_socket(protocol := Recording()) as peer:
        protocol.transport.writelines(pieces)
        getattr(protocol.transport, end)()
        received = b""
        while True:
            await asyncio.sleep(0)
            with contextlib.suppress(BlockingIOError):
                if not (more := peer.recv(1 << 20)):
                    break
                received += more
        assert received == b"".join(pieces)
