"""Descriptors' numbers: what waits for a closed file does not touch the next file with its number."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.recording import Recording, turns, until

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]

pytestmark = pytest.mark.skipif(
    loops.MODULE != "ropewalk",
    reason="asyncio fails or waits for ever where the number of a closed file returns",
)
#: With a duplicate, the kernel goes on to report the file of the closed socket.
duplicated = pytest.mark.parametrize("keep", [False, True], ids=["closed", "duplicated"])


def _pair(stack: ExitStack) -> Pair:
    left, right = socket.socketpair()
    for sock in (left, right):
        sock.setblocking(False)
        stack.enter_context(sock)
    return left, right


def _with_number(stack: ExitStack, number: int) -> Pair:
    """A pair whose first socket has this number, which is free."""
    left, right = _pair(stack)
    if right.fileno() == number:
        left, right = right, left
    if left.fileno() != number:
        made = left
        left = stack.enter_context(socket.socket(fileno=fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, number)))
        left.setblocking(False)
        made.close()
    assert left.fileno() == number
    return left, right


def _close(stack: ExitStack, sock: socket.socket, *, keep: bool) -> int:
    number = sock.fileno()
    if keep:
        stack.enter_context(sock.dup())
    sock.close()
    return number


def _received(sock: socket.socket) -> bytes:
    data = b""
    with suppress(BlockingIOError):
        while more := sock.recv(1 << 20):
            data += more
    return data


def _fill(sock: socket.socket) -> None:
    with suppress(BlockingIOError):
        while sock.send(b"f" * 65536):
            pass


async def _bad_descriptor(waiting: asyncio.Future[Any]) -> None:
    with pytest.raises(OSError, match="Bad file descriptor") as raised:
        await asyncio.wait_for(waiting, 5)
    assert raised.value.errno == errno.EBADF


@duplicated
@pytest.mark.parametrize("second", ["receives", "sends", "transport", "callback"])
async def test_bytes_of_a_closed_sender_do_not_reach_the_next_connection(
    loop: Loop, stack: ExitStack, keep: bool, second: str
) -> None:
    old, old_peer = _pair(stack)
    sending = loop.create_task(loop.sock_sendall(old, b"old" * 1_000_000))
    await turns()
    assert not sending.done()
    new, new_peer = _with_number(stack, _close(stack, old, keep=keep))
    transport: Any = None
    if second == "receives":
        task = loop.create_task(loop.sock_recv(new, 10))
    elif second == "sends":
        _fill(new)
        task = loop.create_task(loop.sock_sendall(new, b"new" * 1_000_000))
    elif second == "transport":
        transport, _ = await loop.create_connection(Recording, sock=new)
    else:
        loop.add_reader(new, print)
    await turns()
    if second == "sends":
        data = bytearray()
        while not task.done():
            data += _received(new_peer)
            await asyncio.sleep(0)
        data += _received(new_peer)
        assert data.strip(b"f") == b"new" * 1_000_000
    else:
        assert _received(new_peer) == b""
    await _bad_descriptor(sending)
    assert set(_received(old_peer)) <= set(b"old")
    if second == "receives":
        new_peer.send(b"new")
        assert await task == b"new"
    elif second == "transport":
        transport.write(b"new")
        await until(lambda: _received(new_peer) == b"new")
        transport.abort()
        await until(lambda: new.fileno() == -1)
    elif second == "callback":
        loop.remove_reader(new)


@duplicated
async def test_a_file_for_a_closed_socket_does_not_reach_the_next_connection(
    loop: Loop, stack: ExitStack, tmp_path: Path, keep: bool
) -> None:
    loop.set_debug(False)
    old, old_peer = _pair(stack)
    file = stack.enter_context((tmp_path / "file").open("w+b"))
    file.truncate(32 << 20)
    sending = loop.create_task(loop.sock_sendfile(old, file))
    await turns()
    new, new_peer = _with_number(stack, _close(stack, old, keep=keep))
    _fill(new)
    # It waits for room on the same number.
    second = loop.create_task(loop.sock_sendall(new, b"new"))
    await turns()
    await _bad_descriptor(sending)
    received = bytearray()
    while not second.done():
        received += _received(new_peer)
        await asyncio.sleep(0)
    received += _received(new_peer)
    assert received.strip(b"f") == b"new"
    assert file.tell() == len(_received(old_peer)) > 0


async def test_the_next_file_with_the_number_of_a_closed_one_is_not_sent(
    loop: Loop, stack: ExitStack, tmp_path: Path
) -> None:
    loop.set_debug(False)
    sock, peer = _pair(stack)
    old, new = (stack.enter_context((tmp_path / name).open("w+b")) for name in ("old", "new"))
    old.truncate(32 << 20)
    new.write(b"new" * 12_000_000)
    sending = loop.create_task(loop.sock_sendfile(sock, old))
    await turns()
    number = old.fileno()
    old.close()
    again = stack.enter_context(os.fdopen(fcntl.fcntl(new, fcntl.F_DUPFD_CLOEXEC, number), "rb"))
    assert again.fileno() == number
    again.seek(7)
    received = _received(peer)
    await _bad_descriptor(sending)
    assert set(received + _received(peer)) == {0}
    assert again.tell() == 7


@duplicated
@pytest.mark.parametrize("receive", ["sock_recv", "sock_recv_into"])
async def test_a_closed_receiver_does_not_take_bytes_of_the_next_connection(
    loop: Loop, stack: ExitStack, keep: bool, receive: str
) -> None:
    old, _ = _pair(stack)
    data: Any = bytearray(10) if receive == "sock_recv_into" else 10
    receiving = loop.create_task(getattr(loop, receive)(old, data))
    await turns()
    new, new_peer = _with_number(stack, _close(stack, old, keep=keep))
    _fill(new)
    # It waits for room on the same number.
    sending = loop.create_task(loop.sock_sendall(new, b"new"))
    await turns()
    new_peer.send(b"answer")
    await _bad_descriptor(receiving)
    assert await loop.sock_recv(new, 100) == b"answer"
    while not sending.done():
        _received(new_peer)
        await asyncio.sleep(0)


async def test_a_receiver_replaced_on_its_number_ends(loop: Loop, stack: ExitStack) -> None:
    old, _ = _pair(stack)
    receiving = loop.create_task(loop.sock_recv(old, 10))
    await turns()
    new, new_peer = _with_number(stack, _close(stack, old, keep=False))
    second = loop.create_task(loop.sock_recv(new, 10))
    await _bad_descriptor(receiving)
    new_peer.send(b"new")
    assert await second == b"new"


async def test_a_detached_socket_is_not_read_by_its_old_operation(loop: Loop, stack: ExitStack) -> None:
    old, peer = _pair(stack)
    receiving = loop.create_task(loop.sock_recv(old, 10))
    await turns()
    # The file and its registration stay; the object has no number any more.
    new = stack.enter_context(socket.socket(fileno=old.detach()))
    peer.send(b"for the new one")
    await _bad_descriptor(receiving)
    assert await loop.sock_recv(new, 100) == b"for the new one"


@duplicated
@pytest.mark.parametrize("second", ["operation", "transport", "the other callback"])
async def test_callbacks_of_a_closed_file_are_not_called_for_the_next_one(
    loop: Loop, stack: ExitStack, keep: bool, second: str
) -> None:
    old, _ = _pair(stack)
    _fill(old)
    called: list[str] = []
    loop.add_reader(old, called.append, "old")
    if second != "the other callback":
        loop.add_writer(old, called.append, "old")
    await turns()
    number = _close(stack, old, keep=keep)
    new, new_peer = _with_number(stack, number)
    if second == "operation":
        task = loop.create_task(loop.sock_recv(new, 100))
        await turns()
        new_peer.send(b"new")
        assert await task == b"new"
    elif second == "transport":
        protocol = Recording()
        transport, _ = await loop.create_connection(lambda: protocol, sock=new)
        new_peer.send(b"new")
        await until(lambda: protocol.received == b"new")
        transport.abort()
        await until(lambda: new.fileno() == -1)
    else:
        loop.add_writer(new, called.append, "new")
        new_peer.send(b"new")
        await turns()
        assert "new" in called
        assert loop.remove_writer(new)
    await turns()
    assert "old" not in called
    # Nothing of the old file is left.
    assert not loop.remove_reader(number)
    assert not loop.remove_writer(number)


async def test_removing_a_callback_does_not_register_the_next_file(loop: Loop, stack: ExitStack) -> None:
    old, _ = _pair(stack)
    called: list[str] = []
    loop.add_reader(old, called.append, "reader")
    loop.add_writer(old, called.append, "writer")
    number = _close(stack, old, keep=False)
    _, new_peer = _with_number(stack, number)
    assert loop.remove_writer(number)
    await turns()
    called.clear()
    new_peer.send(b"for nobody")
    await turns()
    assert called == []


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closing"])
async def test_a_transport_whose_socket_was_closed_leaves_the_number(
    loop: Loop, stack: ExitStack, closed: bool
) -> None:
    old, old_peer = _pair(stack)
    first, second = Recording(), Recording()
    transport, _ = await loop.create_connection(lambda: first, sock=old)
    await turns()
    transport.write(b"o" * 4_000_000)
    await turns()
    if closed:
        transport.close()
    new, new_peer = _with_number(stack, _close(stack, old, keep=False))
    other, _ = await loop.create_connection(lambda: second, sock=new)
    new_peer.send(b"answer")
    await until(lambda: second.received == b"answer" and first.lost)
    assert first.received == b""
    assert isinstance(first.lost[0], OSError)
    assert first.lost[0].errno == errno.EBADF
    other.write(b"new")
    await until(lambda: _received(new_peer) == b"new")
    assert set(_received(old_peer)) == set(b"o")
    other.abort()
    await until(lambda: new.fileno() == -1)


@pytest.mark.parametrize("way", ["write", "write_eof"])
async def test_a_transport_does_not_write_to_the_next_file_with_its_number(
    loop: Loop, stack: ExitStack, way: str
) -> None:
    old, _ = _pair(stack)
    protocol = Recording()
    transport, _ = await loop.create_connection(lambda: protocol, sock=old)
    await turns()
    new, new_peer = _with_number(stack, _close(stack, old, keep=False))
    if way == "write":
        transport.write(b"old")
    else:
        with pytest.raises(OSError, match="Bad file descriptor"):
            transport.write_eof()
        transport.abort()
    await until(lambda: protocol.lost)
    await turns()
    assert _received(new_peer) == b""
    os.fstat(new.fileno())
    new.send(b"new")
    assert _received(new_peer) == b"new"
