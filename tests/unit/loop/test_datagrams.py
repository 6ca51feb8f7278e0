"""Datagram endpoints."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

from tests.unit.loop.recording import until

Loop = asyncio.AbstractEventLoop


class Datagrams(asyncio.DatagramProtocol):
    transport: Any = None

    def __init__(self) -> None:
        self.received: list[tuple[bytes, Any]] = []
        self.errors: list[Exception] = []
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.received.append((data, addr))

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


async def _close(*endpoints: Datagrams) -> None:
    for endpoint in endpoints:
        endpoint.transport.close()
    await until(lambda: all(endpoint.lost for endpoint in endpoints))
    assert all(endpoint.lost == [None] for endpoint in endpoints)


async def test_datagrams_keep_their_borders_and_senders(loop: Loop) -> None:
    _, server = await loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0))
    address = server.transport.get_extra_info("sockname")
    _, client = await loop.create_datagram_endpoint(Datagrams, remote_addr=address)
    sent = [b"", b"one", b"two" * 100, bytes(10_000)]
    for data in sent:
        client.transport.sendto(data)
    # An empty datagram is one too, but not every version of asyncio sends it.
    await until(lambda: len([data for data, _ in server.received if data]) == 3)
    assert [data for data, _ in server.received if data] == sent[1:]
    assert {sender for _, sender in server.received} == {client.transport.get_extra_info("sockname")}
    server.transport.sendto(b"answer", server.received[0][1])
    await until(lambda: client.received)
    assert client.received == [(b"answer", address)]
    await _close(server, client)


async def test_an_unreachable_port_is_told(loop: Loop) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        address = closed.getsockname()
    _, client = await loop.create_datagram_endpoint(Datagrams, remote_addr=address)
    client.transport.sendto(b"to nobody")
    await until(lambda: client.errors)
    assert isinstance(client.errors[0], ConnectionRefusedError)
    assert client.lost == []
    await _close(client)


async def test_unix_datagrams(loop: Loop, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    _, server = await loop.create_datagram_endpoint(Datagrams, local_addr=path, family=socket.AF_UNIX)
    _, client = await loop.create_datagram_endpoint(Datagrams, remote_addr=path, family=socket.AF_UNIX)
    # More than its queue takes: what waits is sent when there is room, in order.
    for number in range(2000):
        client.transport.sendto(b"%d" % number)
    await until(lambda: len(server.received) == 2000)
    assert [data for data, _ in server.received] == [b"%d" % number for number in range(2000)]
    await _close(server, client)


async def test_an_aborted_endpoint(loop: Loop) -> None:
    _, endpoint = await loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0))
    endpoint.transport.abort()
    await until(lambda: endpoint.lost)
    assert endpoint.lost == [None]
