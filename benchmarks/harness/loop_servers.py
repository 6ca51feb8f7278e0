"""The servers of `echo`, `http`, `connections`, `messages` and `tls`, each in a process of its own.

    python -m harness.loop_servers LOOP KIND ADDRESS

Prints the address once it accepts. It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys
from typing import Any, cast

from harness.certificate import contexts
from harness.loops import new_loop

SIZE = 1024


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not every loop's transports are instances of asyncio's class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class _Greeting(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(b"!")


async def _greet(loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
    async def greet(connection: socket.socket) -> None:
        with connection:
            try:
                await loop.sock_sendall(connection, b"!")
                await loop.sock_recv(connection, 16)
            except ConnectionError:
                pass

    known = set()
    while True:
        connection, _ = await loop.sock_accept(listener)
        task = loop.create_task(greet(connection))
        known.add(task)
        task.add_done_callback(known.discard)


class _EchoDatagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._transport.sendto(data, addr)


async def _echo_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(4 * SIZE):
            writer.write(data)
    except ConnectionError:
        pass
    writer.close()


async def _echo_socket(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
    with connection:
        try:
            while data := await loop.sock_recv(connection, 4 * SIZE):
                await loop.sock_sendall(connection, data)
        except ConnectionError:
            pass


async def _accept(loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
    known = set()
    while True:
        connection, _ = await loop.sock_accept(listener)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = loop.create_task(_echo_socket(loop, connection))
        known.add(task)
        task.add_done_callback(known.discard)


def _listener() -> socket.socket:
    # Named in full: asyncio asks the protocol before it switches Nagle's algorithm off.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(100)
    listener.setblocking(False)
    return listener


def _said(address: object) -> None:
    print(address, flush=True)


async def _application(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"13")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"Hello, world!"})


async def _serve(loop: asyncio.AbstractEventLoop, kind: str, path: str) -> None:
    if kind == "protocol":
        server = await loop.create_server(_Echo, "127.0.0.1", 0)
        _said(server.sockets[0].getsockname()[1])
    elif kind == "unix":
        server = await loop.create_unix_server(_Echo, path)
        _said(path)
    elif kind == "streams":
        server = await asyncio.start_server(_echo_stream, "127.0.0.1", 0)
        _said(server.sockets[0].getsockname()[1])
    elif kind == "datagrams":
        endpoint, _ = await loop.create_datagram_endpoint(_EchoDatagrams, local_addr=("127.0.0.1", 0))
        _said(endpoint.get_extra_info("sockname")[1])
    elif kind == "sockets":
        listener = _listener()
        _said(listener.getsockname()[1])
        await _accept(loop, listener)
    elif kind == "greeting":
        server = await loop.create_server(_Greeting, "127.0.0.1", 0)
        _said(server.sockets[0].getsockname()[1])
    elif kind == "greeting-unix":
        server = await loop.create_unix_server(_Greeting, path)
        _said(path)
    elif kind == "greeting-sockets":
        listener = _listener()
        _said(listener.getsockname()[1])
        await _greet(loop, listener)
    elif kind == "messages":
        with socket.socket(type=socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.bind(("127.0.0.1", 0))
            _said(sock.getsockname()[1])
            while True:
                message, sender = await loop.sock_recvfrom(sock, 4 * SIZE)
                await loop.sock_sendto(sock, message, sender)
    elif kind == "tls":
        server = await loop.create_server(_Echo, "127.0.0.1", 0, ssl=contexts(os.path.dirname(path))[0])
        _said(server.sockets[0].getsockname()[1])
    elif kind == "uvicorn":
        import uvicorn

        listener = _listener()
        config = uvicorn.Config(
            _application, http="httptools", lifespan="off", log_level="critical", access_log=False
        )
        _said(listener.getsockname()[1])
        await uvicorn.Server(config).serve(sockets=[listener])
    elif kind == "aiohttp":
        from aiohttp import web

        async def hello(_: web.BaseRequest) -> web.Response:
            return web.Response(text="Hello, world!")

        runner = web.ServerRunner(web.Server(hello))
        await runner.setup()
        listener = _listener()
        await web.SockSite(runner, listener).start()
        _said(listener.getsockname()[1])
    await asyncio.Event().wait()


def _raw_datagrams() -> None:
    sock = socket.socket(type=socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    _said(sock.getsockname()[1])
    poll = select.epoll()
    poll.register(sock, select.EPOLLIN)
    while True:
        poll.poll()
        sock.sendto(*sock.recvfrom(4 * SIZE))


def _raw(kind: str, path: str) -> None:
    """The floor: epoll, recv and send, and nothing else."""
    if kind == "datagrams":
        _raw_datagrams()
    if kind.endswith("unix"):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(100)
        _said(path)
    else:
        listener = _listener()
        listener.setblocking(True)
        _said(listener.getsockname()[1])
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    connections: dict[int, socket.socket] = {}
    while True:
        for number, _ in poll.poll():
            if number == listener.fileno():
                connection, _ = listener.accept()
                if kind.startswith("greeting"):
                    connection.send(b"!")
                elif kind != "unix":
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[connection.fileno()] = connection
                poll.register(connection, select.EPOLLIN)
                continue
            try:
                data = connections[number].recv(4 * SIZE)
                if data:
                    connections[number].send(data)
            except ConnectionError:
                data = b""
            if not data:
                poll.unregister(number)
                connections.pop(number).close()


def main() -> None:
    """Serve until the parent is gone."""
    loop_of, kind, path = sys.argv[1:4]
    if loop_of == "raw":
        _raw(kind, path)
    loop = new_loop(loop_of)
    asyncio.set_event_loop(loop)
    # Whoever started this holds the other end.
    loop.call_soon(loop.add_reader, 0, os._exit, 0)
    loop.run_until_complete(_serve(loop, kind, path))


if __name__ == "__main__":
    main()
