"""Servers and connections: listening, accepting, closing."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.loop.recording import Recording, turns, until

Loop = asyncio.AbstractEventLoop


class Peers:
    """A factory of protocols that remembers what it has made."""

    def __init__(self, kind: type[Recording] = Recording) -> None:
        self.kind = kind
        self.made: list[Recording] = []

    def __call__(self) -> Recording:
        self.made.append(self.kind())
        return self.made[-1]

    async def leave(self) -> None:
        await until(lambda: all(peer.lost for peer in self.made))


async def _connect(loop: Loop, server: asyncio.Server, count: int = 1) -> list[Any]:
    address = server.sockets[0].getsockname()
    return [(await loop.create_connection(Recording, *address[:2]))[1] for _ in range(count)]


async def test_a_server_accepts(loop: Loop) -> None:
    peers = Peers()
    server = await loop.create_server(peers, "127.0.0.1", 0)
    assert isinstance(server, asyncio.Server)
    assert server.is_serving()
    assert server.get_loop() is loop
    clients = await _connect(loop, server, 20)
    for number, client in enumerate(clients):
        client.transport.write(b"%d" % number)
    await until(lambda: len(peers.made) == 20 and all(peer.received for peer in peers.made))
    assert sorted(int(peer.received) for peer in peers.made) == list(range(20))
    assert peers.made[0].transport.get_extra_info("peername")[0] == "127.0.0.1"
    for client in clients:
        client.transport.close()
    await peers.leave()
    server.close()
    await server.wait_closed()


async def test_close_stops_listening_and_keeps_connections(loop: Loop) -> None:
    peers = Peers()
    server = await loop.create_server(peers, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    (client,) = await _connect(loop, server)
    await until(lambda: peers.made and peers.made[0].transport)
    server.close()
    server.close()
    assert not server.is_serving()
    assert server.sockets == ()
    with pytest.raises(ConnectionRefusedError):
        await loop.create_connection(Recording, *address)
    client.transport.write(b"still served")
    await until(lambda: peers.made[0].received == b"still served")
    client.transport.close()
    await peers.leave()
    await server.wait_closed()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="until 3.12 it did not wait")
async def test_wait_closed_waits_for_the_connections(loop: Loop) -> None:
    peers = Peers()
    server = await loop.create_server(peers, "127.0.0.1", 0)
    (client,) = await _connect(loop, server)
    await until(lambda: peers.made and peers.made[0].transport)
    server.close()
    waiting = loop.create_task(server.wait_closed())
    await turns()
    assert not waiting.done()
    client.transport.close()
    await waiting
    assert peers.made[0].lost


@pytest.mark.skipif(sys.version_info < (3, 13), reason="new in 3.13")
@pytest.mark.parametrize("how", ["close_clients", "abort_clients"])
async def test_a_server_ends_its_connections(loop: Loop, how: str) -> None:
    peers = Peers()
    server = await loop.create_server(peers, "127.0.0.1", 0)
    clients = await _connect(loop, server, 5)
    await until(lambda: len(peers.made) == 5 and all(peer.transport for peer in peers.made))
    server.close()
    getattr(server, how)()
    await server.wait_closed()
    await until(lambda: all(client.lost for client in clients))
    await peers.leave()


async def test_serve_forever_until_cancelled(loop: Loop) -> None:
    server = await loop.create_server(Recording, "127.0.0.1", 0, start_serving=False)
    assert not server.is_serving()
    serving = loop.create_task(server.serve_forever())
    await until(server.is_serving)
    with pytest.raises(RuntimeError, match="already being awaited"):
        await server.serve_forever()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert not server.is_serving()
    with pytest.raises(RuntimeError, match="closed"):
        await server.serve_forever()


async def test_a_server_as_a_context(loop: Loop) -> None:
    async with await loop.create_server(Recording, "127.0.0.1", 0, start_serving=False) as server:
        await server.start_serving()
        await server.start_serving()
        assert server.is_serving()
        (client,) = await _connect(loop, server)
        client.transport.close()
        await until(lambda: client.lost)
    assert not server.is_serving()


async def test_several_hosts_and_ports(loop: Loop) -> None:
    peers = Peers()
    server = await loop.create_server(peers, ["127.0.0.1", "127.0.0.2"], 0)
    assert {sock.getsockname()[0] for sock in server.sockets} == {"127.0.0.1", "127.0.0.2"}
    for sock in server.sockets:
        transport, _ = await loop.create_connection(Recording, *sock.getsockname())
        transport.close()
    await until(lambda: len(peers.made) == 2)
    await peers.leave()
    server.close()
    await server.wait_closed()


async def test_reuse_port(loop: Loop) -> None:
    first = await loop.create_server(Recording, "127.0.0.1", 0, reuse_port=True)
    port = first.sockets[0].getsockname()[1]
    second = await loop.create_server(Recording, "127.0.0.1", port, reuse_port=True)
    with pytest.raises(OSError, match="address already in use"):
        await loop.create_server(Recording, "127.0.0.1", port)
    for server in (first, second):
        server.close()
        await server.wait_closed()


@pytest.mark.skipif(sys.version_info < (3, 13), reason="new in 3.13")
async def test_keep_alive(loop: Loop) -> None:
    server = await loop.create_server(Recording, "127.0.0.1", 0, keep_alive=True)
    assert server.sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("backlog", [1, 5, 100])
async def test_a_crowd_at_any_backlog(loop: Loop, backlog: int) -> None:
    peers = Peers()
    server = await loop.create_server(peers, "127.0.0.1", 0, backlog=backlog)
    address = server.sockets[0].getsockname()
    made = []
    # No more at a time than the queue takes: the kernel lets others try again after a second.
    for _ in range(100 // backlog):
        crowd = (loop.create_connection(Recording, *address) for _ in range(backlog))
        made += await asyncio.gather(*crowd)
        await until(lambda: peers.made and len(peers.made) % backlog == 0)
    assert len(peers.made) == len(made) == 100
    for transport, _ in made:
        transport.abort()
    await peers.leave()
    server.close()
    await server.wait_closed()


async def test_a_socket_that_is_given(loop: Loop, listening: socket.socket) -> None:
    server = await loop.create_server(Recording, sock=listening.dup())
    (client,) = await _connect(loop, server)
    client.transport.close()
    await until(lambda: client.lost)
    server.close()
    await server.wait_closed()
    with pytest.raises(ValueError):
        await loop.create_server(Recording, "127.0.0.1", 0, sock=listening)
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        with pytest.raises(ValueError, match="Stream Socket was expected"):
            await loop.create_server(Recording, sock=datagrams)


# asyncio leaves the socket to the collector, which warns.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
async def test_a_factory_that_fails_costs_its_connection_only(
    loop: Loop, reports: list[dict[str, Any]]
) -> None:
    peers = Peers()
    calls: list[int] = []

    def factory() -> Recording:
        calls.append(1)
        if len(calls) == 1:
            raise ZeroDivisionError
        return peers()

    server = await loop.create_server(factory, "127.0.0.1", 0)
    first, second = await _connect(loop, server, 2)
    second.transport.write(b"served")
    await until(lambda: peers.made and peers.made[0].received)
    for client in (first, second):
        client.transport.abort()
    await peers.leave()
    server.close()
    await server.wait_closed()
    # asyncio tells of it in debug mode.
    assert all(isinstance(report["exception"], ZeroDivisionError) for report in reports)
    reports.clear()


async def test_connections_of_several_addresses(loop: Loop, listening: socket.socket) -> None:
    host, port = listening.getsockname()
    for delay in (None, 0.01):
        transport, _ = await loop.create_connection(
            Recording, "localhost", port, family=socket.AF_INET, happy_eyeballs_delay=delay
        )
        assert transport.get_extra_info("peername") == (host, port)
        transport.abort()
    transport, protocol = await loop.create_connection(Recording, host, port, local_addr=("127.0.0.1", 0))
    transport.abort()
    await until(lambda: protocol.lost)


async def test_a_refused_connection(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recording, *address)


async def test_a_cancelled_connection_is_closed(loop: Loop, listening: socket.socket) -> None:
    for wait in range(4):
        task = loop.create_task(loop.create_connection(Recording, *listening.getsockname()))
        for _ in range(wait):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            transport, protocol = task.result()
            transport.abort()
            await until(lambda protocol=protocol: protocol.lost)


async def test_unix_servers(loop: Loop, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    peers = Peers()
    server = await loop.create_unix_server(peers, path)
    transport, client = await loop.create_unix_connection(Recording, path)
    assert transport.get_extra_info("peername") == path
    transport.write(b"over a path")
    await until(lambda: peers.made and peers.made[0].received == b"over a path")
    transport.close()
    await until(lambda: client.lost)
    await peers.leave()
    server.close()
    await server.wait_closed()
    with pytest.raises(OSError):
        await loop.create_unix_connection(Recording, path)
    # A path that a server has left behind is taken over.
    again = await loop.create_unix_server(peers, path)
    again.close()
    await again.wait_closed()


async def test_streams(loop: Loop) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for line in reader:
            writer.write(line.upper())
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = server.sockets[0].getsockname()

        async def ask(number: int) -> bytes:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"line %d\n" % number)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            return answer

        answers = await asyncio.gather(*map(ask, range(40)))
    assert answers == [b"LINE %d\n" % number for number in range(40)]
    await until(lambda: len(asyncio.all_tasks()) == 1)
