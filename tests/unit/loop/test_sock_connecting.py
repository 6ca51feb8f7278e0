"""`sock_connect` and `sock_accept`."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.unit.loop.recording import turns

Loop = asyncio.AbstractEventLoop


def _client(family: int = socket.AF_INET) -> socket.socket:
    sock = socket.socket(family)
    sock.setblocking(False)
    return sock


async def test_connect_and_accept(loop: Loop, listening: socket.socket) -> None:
    with _client() as client:
        accepting = loop.create_task(loop.sock_accept(listening))
        await turns()
        assert not accepting.done()
        await loop.sock_connect(client, listening.getsockname())
        accepted, address = await accepting
        with accepted:
            assert address == client.getsockname()
            assert accepted.gettimeout() == 0
            await loop.sock_sendall(client, b"hello")
            assert await loop.sock_recv(accepted, 100) == b"hello"


async def test_what_waits_is_accepted_at_once(loop: Loop, listening: socket.socket, stack: ExitStack) -> None:
    clients = [stack.enter_context(_client()) for _ in range(5)]
    for client in clients:
        await loop.sock_connect(client, listening.getsockname())
    accepted = [await loop.sock_accept(listening) for _ in clients]
    for sock, _ in accepted:
        stack.enter_context(sock)
    assert [address for _, address in accepted] == [client.getsockname() for client in clients]


async def test_a_cancelled_accept_takes_nobody(loop: Loop, listening: socket.socket) -> None:
    for _ in range(3):
        task = loop.create_task(loop.sock_accept(listening))
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with _client() as client:
            await loop.sock_connect(client, listening.getsockname())
            accepted, address = await loop.sock_accept(listening)
            with accepted:
                assert address == client.getsockname()
    assert loop.remove_reader(listening) is False


async def test_a_refused_connection(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    for _ in range(3):
        with _client() as client:
            with pytest.raises(ConnectionRefusedError):
                await loop.sock_connect(client, address)
            assert loop.remove_writer(client) is False


async def test_unix_addresses(loop: Loop, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with _client(socket.AF_UNIX) as client:
        with pytest.raises(FileNotFoundError):
            await loop.sock_connect(client, path)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen()
            listening.setblocking(False)
            await loop.sock_connect(client, path)
            accepted, _ = await loop.sock_accept(listening)
            accepted.close()
    with _client(socket.AF_UNIX) as client:
        with pytest.raises(ConnectionRefusedError):
            await loop.sock_connect(client, path)


async def test_a_name_is_resolved(loop: Loop, listening: socket.socket) -> None:
    with _client() as client:
        await loop.sock_connect(client, ("localhost", listening.getsockname()[1]))
        assert client.getpeername() == listening.getsockname()
        accepted, _ = await loop.sock_accept(listening)
        accepted.close()


@pytest.mark.parametrize("kind", ["cancel", "timeout"])
async def test_a_cancelled_connect_can_be_tried_again(loop: Loop, stack: ExitStack, kind: str) -> None:
    listening = stack.enter_context(socket.socket())
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    # The queue of a listener that accepts nobody fills; who comes then waits for an answer.
    waiting = None
    while waiting is None:
        client = stack.enter_context(_client())
        task = loop.create_task(loop.sock_connect(client, listening.getsockname()))
        await turns(20)
        if not task.done():
            waiting = client
    if kind == "cancel":
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), 0.001)
        task.cancel()
        await asyncio.wait([task])
    assert loop.remove_writer(waiting) is False
    with _client() as other, socket.create_server(("127.0.0.1", 0)) as free:
        await loop.sock_connect(other, free.getsockname())


async def test_accept_on_what_does_not_listen(loop: Loop) -> None:
    with _client() as sock:
        with pytest.raises(OSError):
            await loop.sock_accept(sock)
        assert loop.remove_reader(sock) is False


async def test_many_at_once(loop: Loop, listening: socket.socket) -> None:
    count = 100

    async def serve() -> None:
        for _ in range(count):
            sock, _ = await loop.sock_accept(listening)
            loop.create_task(echo(sock))

    async def echo(sock: socket.socket) -> None:
        with sock:
            while data := await loop.sock_recv(sock, 100):
                await loop.sock_sendall(sock, data)

    async def ask(number: int) -> bytes:
        with _client() as client:
            await loop.sock_connect(client, listening.getsockname())
            await loop.sock_sendall(client, b"%d" % number)
            return await loop.sock_recv(client, 100)

    server = loop.create_task(serve())
    assert await asyncio.gather(*map(ask, range(count))) == [b"%d" % number for number in range(count)]
    await server
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0.001)
