"""`sock_connect` and `sock_accept`."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.unit.loop import loops
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


@pytest.mark.skipif(
    loops.MODULE != "ropewalk", reason="asyncio takes a socket whose connect was refused for a connected one"
)
async def test_a_unix_listener_with_a_full_queue(loop: Loop, tmp_path: Path, stack: ExitStack) -> None:
    listening = stack.enter_context(socket.socket(socket.AF_UNIX))
    listening.bind(str(tmp_path / "socket"))
    listening.listen(0)

    async def crowd() -> None:
        for _ in range(10):
            client = stack.enter_context(_client(socket.AF_UNIX))
            await loop.sock_connect(client, listening.getsockname())
            client.send(b"connected")

    with pytest.raises(BlockingIOError, match="queue is full"):
        await crowd()


@pytest.mark.skipif(loops.MODULE != "ropewalk", reason="asyncio gives the kernel's words")
async def test_an_accept_without_descriptors_names_the_limit(
    loop: Loop, listening: socket.socket, stack: ExitStack
) -> None:
    client = stack.enter_context(_client())
    await loop.sock_connect(client, listening.getsockname())
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, old[1]))
    try:
        with pytest.raises(OSError, match=rf"\({free}\).*RLIMIT_NOFILE") as raised:
            await loop.sock_accept(listening)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, old)
    assert raised.value.errno == errno.EMFILE
    accepted, _ = await loop.sock_accept(listening)
    accepted.close()


async def test_a_blocking_listener_is_no_reason_to_wait_with_the_interpreter(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()

        def connect() -> None:
            time.sleep(0.05)
            socket.create_connection(address).close()

        thread = threading.Thread(target=connect)
        thread.start()
        accepted, _ = await loop.sock_accept(listening)
        accepted.close()
        thread.join()


def test_hooks_see_the_addresses() -> None:
    # A hook cannot be removed, so it gets a process of its own.
    script = """
import asyncio, importlib, socket, sys
seen = []
def hook(event, arguments):
    if event in ("socket.connect", "socket.sendto"):
        seen.append((event, arguments[1]))
async def main():
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as client:
        with socket.socket(type=socket.SOCK_DGRAM) as sender:
            client.setblocking(False)
            sender.setblocking(False)
            address = listening.getsockname()
            sys.addaudithook(hook)
            await loop.sock_connect(client, address)
            await loop.sock_sendto(sender, b"x", address)
    assert seen == [("socket.connect", address), ("socket.sendto", address)], seen
loop = importlib.import_module(sys.argv[1]).new_event_loop()
loop.run_until_complete(main())
loop.close()
"""
    subprocess.run([sys.executable, "-c", script, loops.MODULE], check=True, timeout=60)


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
