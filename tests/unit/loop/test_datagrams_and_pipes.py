"""Datagram endpoints, pipes and sendfile."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.unit.loop.recording import Recording, connected_to_socket, until

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


async def test_a_pipe_s_two_ends(loop: Loop) -> None:
    reader, writer = os.pipe()
    source, receiving = await loop.connect_read_pipe(Recording, os.fdopen(reader, "rb", 0))
    sink, sending = await loop.connect_write_pipe(Recording, os.fdopen(writer, "wb", 0))
    data = random.Random(4).randbytes(1 << 20)
    sink.write(data)
    assert sending.calls[-1] == "pause_writing"
    await until(lambda: receiving.received == data)
    source.pause_reading()
    sink.write(b"later")
    await asyncio.sleep(0.001)
    assert len(receiving.received) == len(data)
    source.resume_reading()
    await until(lambda: receiving.received.endswith(b"later"))
    sink.write(b"end")
    sink.write_eof()
    await until(lambda: receiving.lost and sending.lost)
    assert receiving.received.endswith(b"laterend")
    assert (receiving.lost, sending.lost) == ([None], [None])
    assert receiving.calls[-2:] == ["eof_received", "connection_lost"]


async def test_a_pipe_whose_reader_is_gone(loop: Loop) -> None:
    reader, writer = os.pipe()
    sink, sending = await loop.connect_write_pipe(Recording, os.fdopen(writer, "wb", 0))
    os.close(reader)
    await until(lambda: sending.lost)
    sink.write(b"x")
    assert isinstance(sending.lost[0], BrokenPipeError) or sending.lost == [None]


async def test_a_file_is_no_pipe(loop: Loop, tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+b") as file:
        with pytest.raises(ValueError):
            await loop.connect_read_pipe(Recording, file)
        with pytest.raises(ValueError):
            await loop.connect_write_pipe(Recording, file)


@pytest.mark.parametrize("size", [0, 10, 4 << 20])
async def test_a_file_over_a_transport(loop: Loop, tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(data)
    protocol = Recording()
    async with connected_to_socket(protocol, family="tcp") as peer:
        with (tmp_path / "file").open("rb") as file:
            protocol.transport.write(b"head")
            task = loop.create_task(loop.sendfile(protocol.transport, file))
            received = bytearray()
            while len(received) < size + 4:
                received += await loop.sock_recv(peer, 1 << 20)
            assert await task == size
            assert received == b"head" + data
            protocol.transport.write(b"tail")
            assert await loop.sock_recv(peer, 100) == b"tail"
            assert await loop.sendfile(protocol.transport, file, 0, 3) == min(3, size)


async def test_a_file_over_a_closing_transport(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    protocol = Recording()
    async with connected_to_socket(protocol):
        protocol.transport.close()
        with (tmp_path / "file").open("rb") as file:
            with pytest.raises(RuntimeError, match="closing"):
                await loop.sendfile(protocol.transport, file)
