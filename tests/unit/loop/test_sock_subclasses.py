"""The loop's operations on sockets whose class has methods of its own, which asyncio calls."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from tests.unit.loop.recording import turns

Loop = asyncio.AbstractEventLoop


def counting(*names: str) -> type[Any]:
    """A class of sockets that notes the calls of these methods."""

    def noting(name: str) -> Callable[..., Any]:
        def method(self: Any, *arguments: Any) -> Any:
            self.calls.append(name)
            return getattr(socket.socket, name)(self, *arguments)

        return method

    return type("Counting", (socket.socket,), {name: noting(name) for name in names})


def made(cls: type[Any], stack: ExitStack, *arguments: Any, **more: Any) -> Any:
    sock = stack.enter_context(cls(*arguments, **more))
    sock.calls = []
    sock.setblocking(False)
    return sock


async def _recv(loop: Loop, sock: socket.socket) -> bytes:
    return await loop.sock_recv(sock, 10)


async def _recv_into(loop: Loop, sock: socket.socket) -> bytes:
    buffer = bytearray(10)
    return bytes(buffer[: await loop.sock_recv_into(sock, buffer)])


async def _recvfrom(loop: Loop, sock: socket.socket) -> bytes:
    return (await loop.sock_recvfrom(sock, 10))[0]


async def _recvfrom_into(loop: Loop, sock: socket.socket) -> bytes:
    buffer = bytearray(10)
    return bytes(buffer[: (await loop.sock_recvfrom_into(sock, buffer))[0]])


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("receive", "name"),
    [
        (_recv, "recv"),
        (_recv_into, "recv_into"),
        (_recvfrom, "recvfrom"),
        (_recvfrom_into, "recvfrom_into"),
    ],
)
async def test_receiving(
    loop: Loop,
    pair: tuple[socket.socket, socket.socket],
    stack: ExitStack,
    receive: Callable[..., Any],
    name: str,
    later: bool,
) -> None:
    near, far = pair
    sock = made(counting(name), stack, fileno=near.detach())
    task = loop.create_task(receive(loop, sock))
    if later:
        await turns()
    far.send(b"data")
    assert await task == b"data"
    assert set(sock.calls) == {name}


async def test_sending(loop: Loop, pair: tuple[socket.socket, socket.socket], stack: ExitStack) -> None:
    near, far = pair
    sock = made(counting("send"), stack, fileno=near.detach())
    data = b"x" * 4_000_000
    task = loop.create_task(loop.sock_sendall(sock, data))  # type: ignore[arg-type]
    got = 0
    while got < len(data):
        got += len(await loop.sock_recv(far, 1 << 20))
    await task
    assert set(sock.calls) == {"send"}


async def test_sending_messages(loop: Loop, stack: ExitStack) -> None:
    receiver = made(counting(), stack, type=socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    sock = made(counting("sendto"), stack, type=socket.SOCK_DGRAM)
    assert await loop.sock_sendto(sock, b"message", receiver.getsockname()) == 7
    assert (await loop.sock_recvfrom(receiver, 10))[0] == b"message"
    assert sock.calls == ["sendto"]


async def test_connecting_and_accepting(loop: Loop, stack: ExitStack) -> None:
    listener = made(counting("accept"), stack)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    accepting = loop.create_task(loop.sock_accept(listener))  # type: ignore[arg-type]
    await turns()
    sock = made(counting("connect"), stack)
    await loop.sock_connect(sock, listener.getsockname())
    connection, peer = await accepting
    with connection:
        assert peer == sock.getsockname()
    assert set(listener.calls) == {"accept"}
    assert "connect" in sock.calls


async def test_a_class_without_methods_of_its_own(
    loop: Loop, pair: tuple[socket.socket, socket.socket], stack: ExitStack
) -> None:
    near, far = pair
    sock = made(counting(), stack, fileno=near.detach())
    await loop.sock_sendall(sock, b"out")
    assert await loop.sock_recv(far, 10) == b"out"
    await loop.sock_sendall(far, b"in")
    assert await loop.sock_recv(sock, 10) == b"in"
