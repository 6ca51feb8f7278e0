"""`sock_recv`, `sock_recv_into` and `sock_recvfrom`: data, ends, cancellation, several waits on one socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from tests.unit.loop.recording import stream_pair, turns, until

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]


async def _recv(loop: Loop, sock: socket.socket, size: int) -> bytes:
    return await loop.sock_recv(sock, size)


async def _recv_into(loop: Loop, sock: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    count = await loop.sock_recv_into(sock, buffer)
    return bytes(buffer[:count])


async def _recvfrom(loop: Loop, sock: socket.socket, size: int) -> bytes:
    data, _ = await loop.sock_recvfrom(sock, size)
    return data


async def _recvfrom_into(loop: Loop, sock: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    count, _ = await loop.sock_recvfrom_into(sock, buffer)
    return bytes(buffer[:count])


ways = pytest.mark.parametrize("receive", [_recv, _recv_into, _recvfrom, _recvfrom_into])
Receive = Callable[[Loop, socket.socket, int], Any]


@pytest.fixture(params=["tcp", "unix"])
def pair(request: pytest.FixtureRequest, stack: ExitStack) -> Pair:
    left, right = stream_pair(request.param)
    return stack.enter_context(left), stack.enter_context(right)


@ways
async def test_what_is_there_is_received_at_once(loop: Loop, pair: Pair, receive: Receive) -> None:
    left, right = pair
    right.send(b"0123456789")
    await until(lambda: left.recv(100, socket.MSG_PEEK) == b"0123456789")
    assert await receive(loop, left, 4) == b"0123"
    assert await receive(loop, left, 100) == b"456789"


@ways
async def test_what_comes_later_is_waited_for(loop: Loop, pair: Pair, receive: Receive) -> None:
    left, right = pair
    for number in range(5):
        task = loop.create_task(receive(loop, left, 100))
        await turns()
        assert not task.done()
        right.send(b"%d" % number)
        assert await task == b"%d" % number


@ways
async def test_the_end_is_empty_and_stays(loop: Loop, pair: Pair, receive: Receive) -> None:
    left, right = pair
    right.send(b"last")
    right.shutdown(socket.SHUT_WR)
    assert await receive(loop, left, 100) == b"last"
    assert await receive(loop, left, 100) == b""
    assert await receive(loop, left, 100) == b""
    await loop.sock_sendall(left, b"other way")
    assert await receive(loop, right, 100) == b"other way"


@ways
async def test_an_end_wakes_who_waits(loop: Loop, pair: Pair, receive: Receive) -> None:
    left, right = pair
    task = loop.create_task(receive(loop, left, 100))
    await turns()
    right.close()
    assert await task == b""


@ways
async def test_a_cancelled_wait_loses_nothing(loop: Loop, pair: Pair, receive: Receive) -> None:
    left, right = pair
    for _ in range(5):
        task = loop.create_task(receive(loop, left, 100))
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        right.send(b"kept")
        assert await receive(loop, left, 100) == b"kept"
    # Nothing is left registered.
    assert loop.remove_reader(left) is False


@ways
async def test_a_wait_that_times_out(loop: Loop, pair: Pair, receive: Receive) -> None:
    left, right = pair
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(receive(loop, left, 100), 0.002)
    right.send(b"x")
    assert await receive(loop, left, 100) == b"x"


async def test_a_reset_is_an_error(loop: Loop) -> None:
    left, right = stream_pair("tcp")
    with left, right:
        task = loop.create_task(loop.sock_recv(left, 100))
        await turns()
        right.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        right.close()
        with pytest.raises(ConnectionResetError):
            await task
        assert loop.remove_reader(left) is False


async def test_received_bytes_are_bytes(loop: Loop, pair: Pair) -> None:
    left, right = pair
    right.send(b"x" * 10)
    data = await loop.sock_recv(left, 5)
    assert type(data) is bytes
    data, _ = await loop.sock_recvfrom(left, 5)
    assert type(data) is bytes


@pytest.mark.parametrize("receive", [_recv, _recv_into])
async def test_nothing_asked_is_nothing_waited_for(loop: Loop, pair: Pair, receive: Receive) -> None:
    left, right = pair
    assert await asyncio.wait_for(receive(loop, left, 0), 10) == b""
    right.send(b"x")
    assert await asyncio.wait_for(receive(loop, left, 0), 10) == b""
    assert await receive(loop, left, 10) == b"x"


@pytest.mark.parametrize("size", [1, 1000, 1 << 16, 1 << 20])
async def test_sizes(loop: Loop, pair: Pair, size: int) -> None:
    left, right = pair
    data = bytes(range(256)) * 1024
    sender = loop.create_task(loop.sock_sendall(right, data))
    received = bytearray()
    # One byte at a time would be slow for all of it; a part shows that nothing is dropped in between.
    wanted = 300 if size == 1 else len(data)
    while len(received) < wanted:
        chunk = await loop.sock_recv(left, size)
        assert 0 < len(chunk) <= size
        received += chunk
    assert received == data[: len(received)]
    sender.cancel()
    await asyncio.wait([sender])


@pytest.mark.parametrize("size", [-1, None, "10"])
async def test_a_wrong_size(loop: Loop, pair: Pair, size: Any) -> None:
    left, _ = pair
    with pytest.raises((TypeError, ValueError)):
        await loop.sock_recv(left, size)
    assert loop.remove_reader(left) is False


@pytest.mark.parametrize("kind", ["bytearray", "memoryview", "array"])
async def test_buffers_to_receive_into(loop: Loop, pair: Pair, kind: str) -> None:
    import array

    left, right = pair
    storage = array.array("B", bytes(8)) if kind == "array" else bytearray(8)
    buffer = memoryview(storage)[2:6] if kind == "memoryview" else storage
    right.send(b"abcdefgh")
    count = await loop.sock_recv_into(left, buffer)
    expected = b"\0\0abcd\0\0" if kind == "memoryview" else b"abcdefgh"
    assert bytes(storage) == expected
    assert count == len(expected.strip(b"\0"))
    task = loop.create_task(loop.sock_recv_into(right, buffer))
    await turns()
    task.cancel()
    await asyncio.wait([task])
    if isinstance(storage, bytearray) and kind == "bytearray":
        # Who has ended holds no view: the buffer can be resized.
        storage.append(0)


async def test_a_buffer_that_cannot_be_written(loop: Loop, pair: Pair) -> None:
    left, right = pair
    right.send(b"x")
    with pytest.raises((TypeError, BufferError)):
        await loop.sock_recv_into(left, b"read only")  # type: ignore[arg-type]
    assert await loop.sock_recv(left, 10) == b"x"


async def test_datagrams_bring_their_sender(loop: Loop, stack: ExitStack) -> None:
    left, right = (stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(2))
    for sock in (left, right):
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
    assert await loop.sock_sendto(right, b"datagram", left.getsockname()) == 8
    assert await loop.sock_recvfrom(left, 100) == (b"datagram", right.getsockname())
    task = loop.create_task(loop.sock_recvfrom_into(left, buffer := bytearray(100)))
    await turns()
    await loop.sock_sendto(right, b"", left.getsockname())
    assert await task == (0, right.getsockname())
    await loop.sock_sendto(right, b"12345", left.getsockname())
    assert await loop.sock_recvfrom_into(left, buffer, 3) == (3, right.getsockname())
    assert buffer[:5] == b"123\0\0"


async def test_both_directions_at_once(loop: Loop, pair: Pair) -> None:
    left, right = pair
    data = bytes(range(256)) * 4096

    async def read(sock: socket.socket) -> bytes:
        received = bytearray()
        while len(received) < len(data):
            received += await loop.sock_recv(sock, 1 << 16)
        return bytes(received)

    results = await asyncio.gather(
        read(left), read(right), loop.sock_sendall(left, data), loop.sock_sendall(right, data)
    )
    assert results == [data, data, None, None]


async def test_two_tasks_on_one_socket(loop: Loop, pair: Pair) -> None:
    # asyncio serves the later wait and forgets the earlier one; that one must stay cancellable.
    left, right = pair
    first = loop.create_task(loop.sock_recv(left, 1))
    await turns()
    second = loop.create_task(loop.sock_recv(left, 1))
    await turns()
    right.send(b"ab")
    assert await second in (b"a", b"b")
    await turns()
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled() or first.result() in (b"a", b"b")
    right.send(b"c")
    assert await loop.sock_recv(left, 1) in (b"b", b"c")


async def test_mixed_with_add_reader(loop: Loop, pair: Pair) -> None:
    left, right = pair
    seen: list[bytes] = []
    loop.add_reader(left, lambda: seen.append(left.recv(100)))
    right.send(b"to the reader")
    await until(lambda: seen)
    loop.remove_reader(left)
    right.send(b"to the task")
    assert await loop.sock_recv(left, 100) == b"to the task"
    loop.add_reader(left, lambda: seen.append(left.recv(100)))
    right.send(b"again")
    await until(lambda: len(seen) == 2)
    assert loop.remove_reader(left) is True
    task = loop.create_task(loop.sock_recv(left, 100))
    await turns()
    right.send(b"end")
    assert await task == b"end"
    assert seen == [b"to the reader", b"again"]


async def test_a_closed_socket_is_an_error(loop: Loop, pair: Pair) -> None:
    left, _ = pair
    left.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        await loop.sock_recv(left, 1)


async def test_a_number_used_again_after_a_wait(loop: Loop) -> None:
    # A registration that outlives its wait must not be taken for one of the next socket with its number.
    for round_ in range(5):
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            task = loop.create_task(loop.sock_recv(left, 100))
            await turns(2)
            right.send(b"%d" % round_)
            assert await task == b"%d" % round_


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("sock_recv", (1,)),
        ("sock_recv_into", (bytearray(1),)),
        ("sock_recvfrom", (1,)),
        ("sock_recvfrom_into", (bytearray(1),)),
        ("sock_sendall", (b"x",)),
        ("sock_sendto", (b"x", ("127.0.0.1", 1))),
        ("sock_accept", ()),
        ("sock_connect", (("127.0.0.1", 1),)),
    ],
)
async def test_a_blocking_socket_is_refused_in_debug_mode(
    loop: Loop, method: str, args: tuple[Any, ...]
) -> None:
    loop.set_debug(True)
    with socket.socket() as sock:
        with pytest.raises(ValueError, match="the socket must be non-blocking"):
            await getattr(loop, method)(sock, *args)
