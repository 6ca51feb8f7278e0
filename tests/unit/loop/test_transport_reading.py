"""Reading from a stream transport: data, pauses, buffered protocols, changes of protocol."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from typing import Any

import pytest
from tests.unit.loop.loops import MODULE
from tests.unit.loop.recording import (
    BufferedRecording,
    Recording,
    connected,
    connected_to_socket,
    turns,
    until,
)

Loop = asyncio.AbstractEventLoop
kinds = pytest.mark.parametrize("kind", [Recording, BufferedRecording])


@kinds
@pytest.mark.parametrize("family", ["tcp", "unix"])
async def test_everything_is_received_in_order(loop: Loop, kind: Any, family: str) -> None:
    data = random.Random(1).randbytes(1 << 20)
    async with connected_to_socket(protocol := kind(), family=family) as peer:
        await loop.sock_sendall(peer, data)
        await until(lambda: len(protocol.received) == len(data))
        assert protocol.received == data


async def test_data_is_bytes(loop: Loop) -> None:
    seen: list[type] = []

    class Typed(Recording):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            seen.append(type(data))

    async with connected_to_socket(protocol := Typed()) as peer:
        for size in (1, 5000, 200_000):
            protocol.received.clear()
            await loop.sock_sendall(peer, bytes(size))
            await until(lambda size=size: len(protocol.received) == size)
    assert set(seen) == {bytes}


async def test_kept_data_is_not_overwritten(loop: Loop) -> None:
    class Keeping(Recording):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[bytes] = []

        def data_received(self, data: bytes) -> None:
            self.kept.append(data)

    async with connected_to_socket(protocol := Keeping()) as peer:
        for number in range(50):
            await loop.sock_sendall(peer, b"%d" % number)
            await until(lambda number=number: len(protocol.kept) == number + 1)
    assert protocol.kept == [b"%d" % number for number in range(50)]


@kinds
async def test_a_pause_holds_data_back(loop: Loop, kind: Any) -> None:
    async with connected_to_socket(protocol := kind()) as peer:
        transport = protocol.transport
        assert transport.is_reading()
        for _ in range(2):
            # Each may be called when it is so already.
            transport.pause_reading()
            transport.pause_reading()
            assert not transport.is_reading()
            await loop.sock_sendall(peer, b"later")
            await asyncio.sleep(0.001)
            assert protocol.received == b""
            transport.resume_reading()
            transport.resume_reading()
            assert transport.is_reading()
            await until(lambda: protocol.received == b"later")
            protocol.received.clear()


@kinds
async def test_a_pause_inside_the_callback(loop: Loop, kind: Any) -> None:
    class OneByOne(kind):  # type: ignore[misc]
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.pause_reading()

        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            self.transport.pause_reading()

    async with connected_to_socket(protocol := OneByOne()) as peer:
        for number in range(5):
            await loop.sock_sendall(peer, b"%d" % number)
            await until(lambda number=number: len(protocol.received) == number + 1)
            await loop.sock_sendall(peer, b"x")
            await turns()
            assert len(protocol.received) == number + 1
            protocol.transport.resume_reading()
            await until(lambda number=number: protocol.received.endswith(b"x"))
            protocol.received[-1:] = b""
            protocol.transport.resume_reading()


async def test_a_pause_in_connection_made(loop: Loop) -> None:
    class Paused(Recording):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.pause_reading()

    async with connected_to_socket(protocol := Paused()) as peer:
        await loop.sock_sendall(peer, b"held")
        await asyncio.sleep(0.001)
        assert protocol.received == b""
        protocol.transport.resume_reading()
        await until(lambda: protocol.received == b"held")


async def test_a_paused_transport_does_not_see_the_end(loop: Loop) -> None:
    async with connected_to_socket(protocol := Recording()) as peer:
        protocol.transport.pause_reading()
        await loop.sock_sendall(peer, b"last words")
        peer.close()
        await asyncio.sleep(0.001)
        assert protocol.calls == ["connection_made"]
        protocol.transport.resume_reading()
        await until(lambda: protocol.lost)
        assert protocol.received == b"last words"
        assert protocol.calls == ["connection_made", "data_received", "eof_received", "connection_lost"]


async def test_reading_a_closing_transport(loop: Loop) -> None:
    async with connected_to_socket(protocol := Recording()) as peer:
        await loop.sock_sendall(peer, b"too late")
        protocol.transport.close()
        protocol.transport.pause_reading()
        protocol.transport.resume_reading()
        assert not protocol.transport.is_reading()
        await until(lambda: protocol.lost)
        assert protocol.received == b""


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
async def test_buffers_of_any_size(loop: Loop, size: int) -> None:
    data = random.Random(size).randbytes(min(3000 * size, 1 << 20) if size < 1000 else 1 << 20)
    async with connected_to_socket(protocol := BufferedRecording(size=size)) as peer:
        await loop.sock_sendall(peer, data)
        await until(lambda: len(protocol.received) == len(data))
        assert protocol.received == data
        assert protocol.hints


@pytest.mark.parametrize("view", [bytearray, memoryview])
async def test_a_buffer_may_be_a_view(loop: Loop, view: Any) -> None:
    class Viewing(BufferedRecording):
        def get_buffer(self, sizehint: int) -> Any:
            return self.buffer if view is bytearray else memoryview(self.buffer)[:10]

    async with connected_to_socket(protocol := Viewing()) as peer:
        await loop.sock_sendall(peer, b"0123456789abcdef")
        await until(lambda: protocol.received == b"0123456789abcdef")


async def test_a_new_buffer_each_time(loop: Loop) -> None:
    class Fresh(BufferedRecording):
        def get_buffer(self, sizehint: int) -> bytearray:
            # The one before can be resized: nobody holds a view of it between two calls.
            self.buffer.append(0)
            self.buffer = bytearray(len(self.buffer))
            return self.buffer

    async with connected_to_socket(protocol := Fresh(size=3)) as peer:
        await loop.sock_sendall(peer, b"0123456789" * 20)
        await until(lambda: protocol.received == b"0123456789" * 20)


@pytest.mark.skipif(MODULE == "asyncio", reason="asyncio asks for the class, uvloop for the methods")
async def test_a_protocol_may_have_the_methods_without_the_class(loop: Loop) -> None:
    class Alike:
        def __init__(self) -> None:
            self.buffer = bytearray(4)
            self.received = b""
            self.lost: list[BaseException | None] = []

        def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.received += self.buffer[:nbytes]

        def eof_received(self) -> None: ...

        def connection_lost(self, exc: BaseException | None) -> None:
            self.lost.append(exc)

    near, far = socket.socketpair()
    far.setblocking(False)
    with far:
        _, protocol = await loop.create_connection(Alike, sock=near)  # type: ignore[type-var]
        await loop.sock_sendall(far, b"0123456789")
        await until(lambda: protocol.received == b"0123456789")
        far.close()
        await until(lambda: protocol.lost == [None])


@pytest.mark.parametrize("buffer", [bytearray(), b"read only", None, "text"])
async def test_a_buffer_that_will_not_do(loop: Loop, reports: list[dict[str, Any]], buffer: Any) -> None:
    class Wrong(BufferedRecording):
        def get_buffer(self, sizehint: int) -> Any:
            return buffer

    async with connected_to_socket(protocol := Wrong()) as peer:
        await loop.sock_sendall(peer, b"x")
        await until(lambda: protocol.lost)
        (error,) = protocol.lost
        assert isinstance(error, (RuntimeError, TypeError, BufferError))
        report = reports.pop()
        assert report["exception"] is error
        assert report["transport"] is protocol.transport
        assert report["protocol"] is protocol


async def test_protocols_take_turns(loop: Loop) -> None:
    async with connected_to_socket(first := Recording()) as peer:
        transport = first.transport
        assert transport.get_protocol() is first
        received: list[Any] = []
        for kind in (BufferedRecording, Recording, BufferedRecording, BufferedRecording, Recording):
            protocol = kind()
            transport.set_protocol(protocol)
            assert transport.get_protocol() is protocol
            await loop.sock_sendall(peer, b"for this one")
            await until(lambda protocol=protocol: protocol.received == b"for this one")
            received.append(protocol)
        # Only the last protocol's `connection_lost` is called, and only the first one's `connection_made`.
        peer.close()
        await until(lambda: received[-1].lost)
        assert first.calls == ["connection_made"]
        assert all(not protocol.lost for protocol in received[:-1])
        assert received[-1].calls == ["data_received", "eof_received", "connection_lost"]


async def test_a_protocol_set_in_the_callback(loop: Loop) -> None:
    second = BufferedRecording()

    class Switching(Recording):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.set_protocol(second)

    async with connected_to_socket(first := Switching()) as peer:
        await loop.sock_sendall(peer, b"first")
        await until(lambda: first.received)
        await loop.sock_sendall(peer, b"second")
        await until(lambda: second.received == b"second")
        assert first.received == b"first"


async def test_extra_info(loop: Loop) -> None:
    async with connected(family="tcp") as connection:
        transport, peer = connection.transport, connection.peer
        sock = transport.get_extra_info("socket")
        assert sock.fileno() >= 0
        assert sock.family == socket.AF_INET
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert transport.get_extra_info("sockname") == peer.get_extra_info("peername") == sock.getsockname()
        assert transport.get_extra_info("peername") == peer.get_extra_info("sockname")
        assert transport.get_extra_info("unknown") is None
        assert transport.get_extra_info("unknown", "default") == "default"


async def test_what_a_transport_is(loop: Loop) -> None:
    async with connected() as connection:
        transport = connection.transport
        assert isinstance(transport, asyncio.Transport)
        assert transport.can_write_eof() is True
        assert transport.is_closing() is False
        assert f"fd={transport.get_extra_info('socket').fileno()}" in repr(transport)
        transport.close()
        assert transport.is_closing() is True
        await until(lambda: connection.near.lost)
        assert "closed" in repr(transport)


async def test_echo_of_many(loop: Loop) -> None:
    class Echo(Recording):
        def data_received(self, data: bytes) -> None:
            self.transport.write(data)

    server = await loop.create_server(Echo, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()

    async def ask(number: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        for size in (1, 100, 100_000):
            data = random.Random(number).randbytes(size)
            writer.write(data)
            assert await reader.readexactly(size) == data
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*map(ask, range(50)))
    server.close()
    await server.wait_closed()


async def test_a_protocol_without_the_method_is_named(loop: Loop) -> None:
    said: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: said.append(context))

    lost: list[Exception | None] = []

    class Deaf(asyncio.BaseProtocol):
        def connection_lost(self, exc: Exception | None) -> None:
            lost.append(exc)

    async with connected_to_socket(Deaf()) as peer:
        peer.send(b"x")
        await until(lambda: bool(lost))
    for error in (said[0]["exception"], lost[0]):
        assert isinstance(error, AttributeError)
        assert "'Deaf' object has no attribute 'data_received'" in str(error)


async def test_a_protocol_may_get_its_method_later(loop: Loop) -> None:
    class Late(asyncio.BaseProtocol):
        pass

    received: list[bytes] = []
    async with connected_to_socket(protocol := Late()) as peer:
        protocol.data_received = received.append  # type: ignore[attr-defined]
        peer.send(b"x")
        await until(lambda: received == [b"x"])


async def test_a_pipes_protocol_without_the_method_is_named(loop: Loop) -> None:
    said: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: said.append(context))
    reading, writing = os.pipe()
    with open(reading, "rb", 0) as source, open(writing, "wb", 0) as sink:
        transport, _ = await loop.connect_read_pipe(asyncio.BaseProtocol, source)
        sink.write(b"x")
        await until(lambda: bool(said))
        assert "no attribute 'data_received'" in str(said[0]["exception"])
        transport.close()
        await turns(3)


async def test_a_datagram_protocol_without_the_method_is_named(loop: Loop) -> None:
    said: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: said.append(context))
    transport, _ = await loop.create_datagram_endpoint(asyncio.BaseProtocol, ("127.0.0.1", 0))
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", transport.get_extra_info("sockname"))
        await until(lambda: bool(said))
    assert "no attribute 'datagram_received'" in str(said[0]["exception"])
    transport.close()
    await turns(3)
