"""Datagram endpoints."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import weakref
from pathlib import Path
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.recording import turns, until

Loop = asyncio.AbstractEventLoop
native = pytest.mark.skipif(loops.MODULE != "ropewalk", reason="asks for what is better than asyncio")


class Datagrams(asyncio.DatagramProtocol):
    transport: Any = None

    def __init__(self) -> None:
        self.received: list[tuple[bytes, Any]] = []
        self.errors: list[Exception] = []
        self.lost: list[Exception | None] = []
        self.paused: list[bool] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.received.append((data, addr))

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)

    def pause_writing(self) -> None:
        self.paused.append(True)

    def resume_writing(self) -> None:
        self.paused.append(False)

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
    # Ours sends empty datagrams too, and so does asyncio from 3.13 on.
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


async def _pair(loop: Loop, kind: type[Datagrams] = Datagrams) -> tuple[Any, Any, Any]:
    """An endpoint without a peer, its address, and an endpoint for that address."""
    _, server = await loop.create_datagram_endpoint(kind, local_addr=("127.0.0.1", 0))
    address = server.transport.get_extra_info("sockname")
    _, client = await loop.create_datagram_endpoint(Datagrams, remote_addr=address)
    return server, address, client


@native
async def test_empty_datagrams_are_sent(loop: Loop) -> None:
    server, _, client = await _pair(loop)
    for data in (b"", b"x", b""):
        client.transport.sendto(data)
    await until(lambda: len(server.received) == 3)
    assert [data for data, _ in server.received] == [b"", b"x", b""]
    await _close(server, client)


async def test_a_burst_arrives_in_order_and_many_senders_get_their_answers(loop: Loop) -> None:
    class Answering(Datagrams):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            self.transport.sendto(data, addr)

    server, address, _client = await _pair(loop, Answering)
    clients = [_client]
    for _ in range(9):
        _, client = await loop.create_datagram_endpoint(Datagrams, remote_addr=address)
        clients.append(client)
    sent = [b"%d" % number for number in range(20)]
    for data in sent:
        for client in clients:
            client.transport.sendto(data)
    await until(lambda: all(len(client.received) == 20 for client in clients))
    for client in clients:
        assert [data for data, _ in client.received] == sent
        assert {sender for _, sender in client.received} == {address}
    senders = {client.transport.get_extra_info("sockname") for client in clients}
    assert {sender for _, sender in server.received} == senders
    await _close(server, *clients)


async def test_addresses_of_ipv6(loop: Loop) -> None:
    try:
        _, server = await loop.create_datagram_endpoint(Datagrams, local_addr=("::1", 0))
    except OSError:
        pytest.skip("no IPv6 here")
    address = server.transport.get_extra_info("sockname")
    _, client = await loop.create_datagram_endpoint(Datagrams, family=socket.AF_INET6)
    # Two parts or four, and a host that is written in another way: all of them mean the same.
    for to in (address, address[:2], ("0:0:0:0:0:0:0:1", address[1], 0, 0)):
        client.transport.sendto(b"x", to)
    await until(lambda: len(server.received) == 3)
    port = client.transport.get_extra_info("socket").getsockname()[1]
    assert {sender for _, sender in server.received} == {("::1", port, 0, 0)}
    server.transport.sendto(b"answer", server.received[0][1])
    await until(lambda: client.received)
    assert client.received == [(b"answer", address)]
    await _close(server, client)


async def test_names_are_resolved_and_arguments_may_be_named(loop: Loop) -> None:
    server, address, client = await _pair(loop)
    _, other = await loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0))
    for data in (b"bytes", bytearray(b"array"), memoryview(b"view")):
        other.transport.sendto(addr=("localhost", address[1]), data=data)
    await until(lambda: len(server.received) == 3)
    assert [data for data, _ in server.received] == [b"bytes", b"array", b"view"]
    assert all(type(data) is bytes for data, _ in server.received)
    client.transport.sendto(b"with its own address", address)
    client.transport.sendto(b"or none", None)
    await until(lambda: len(server.received) == 5)
    await _close(server, client, other)


async def test_wrong_arguments(loop: Loop, reports: list[dict[str, Any]]) -> None:
    server, _, client = await _pair(loop)
    with pytest.raises(ValueError, match="Invalid address: must be None or"):
        client.transport.sendto(b"x", ("127.0.0.1", 1))
    for wrong in ("text", 5, None):
        with pytest.raises(TypeError, match="must be a bytes-like object"):
            client.transport.sendto(wrong)
    for arguments, named in (
        ((), {}),
        ((b"x", None, 3), {}),
        ((b"x",), {"data": b"x"}),
        ((b"x",), {"to": 1}),
    ):
        with pytest.raises(TypeError):
            client.transport.sendto(*arguments, **named)
    assert not client.transport.is_closing()
    # An endpoint without a peer needs an address: asyncio closes it.
    server.transport.sendto(b"to nobody")
    await until(lambda: server.lost)
    assert isinstance(server.lost[0], TypeError)
    assert [type(report["exception"]) for report in reports] == [TypeError]
    reports.clear()
    await _close(client)


async def test_an_address_that_cannot_be_is_told(loop: Loop) -> None:
    _, client = await loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0))
    client.transport.sendto(bytes(100_000), ("127.0.0.1", 9))
    assert [error.errno for error in client.errors] == [errno.EMSGSIZE]
    client.transport.sendto(b"x", ("no such host.invalid", 9))
    assert isinstance(client.errors[1], socket.gaierror)
    await _close(client)


async def test_pausing_from_within_a_callback_loses_nothing(loop: Loop) -> None:
    class Pausing(Datagrams):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            self.transport.pause_reading()

    server, _, client = await _pair(loop, Pausing)
    for number in range(5):
        client.transport.sendto(b"%d" % number)
    for number in range(5):
        await until(lambda number=number: len(server.received) == number + 1)
        assert not server.transport.is_reading()
        await turns()
        assert len(server.received) == number + 1
        server.transport.resume_reading()
    assert [data for data, _ in server.received] == [b"%d" % number for number in range(5)]
    await _close(server, client)


async def test_closing_from_within_a_callback_ends_it(loop: Loop) -> None:
    class Closing(Datagrams):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            self.transport.close()

    server, _, client = await _pair(loop, Closing)
    server.transport.pause_reading()
    for number in range(5):
        client.transport.sendto(b"%d" % number)
    await turns()
    server.transport.resume_reading()
    await until(lambda: server.lost)
    assert [data for data, _ in server.received] == [b"0"]
    await _close(client)


async def test_an_exception_of_the_protocol_is_reported_and_receiving_goes_on(
    loop: Loop, reports: list[dict[str, Any]]
) -> None:
    class Failing(Datagrams):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            if data == b"bad":
                raise ValueError("bad")

    server, _, client = await _pair(loop, Failing)
    for data in (b"good", b"bad", b"good"):
        client.transport.sendto(data)
    await until(lambda: len(server.received) == 3)
    assert [str(report["exception"]) for report in reports] == ["bad"]
    reports.clear()
    await _close(server, client)


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
def test_an_exception_that_ends_the_loop_leaves_the_rest(
    ending: type[BaseException], reports: list[dict[str, Any]]
) -> None:
    class Ending(Datagrams):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            if len(self.received) == 1:
                raise ending

    with loops.fresh_loop(reports) as loop:
        server, _, client = loop.run_until_complete(_pair(loop, Ending))
        for data in (b"1", b"2", b"3"):
            client.transport.sendto(data)
        with pytest.raises(ending):
            loop.run_forever()
        loop.run_until_complete(until(lambda: len(server.received) == 3))
        loop.run_until_complete(_close(server, client))


async def test_a_full_queue_within_this_host_without_a_connection(loop: Loop, tmp_path: Path) -> None:
    # The kernel reports no room to a socket that is not connected.
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(path)
        receiver.settimeout(10)
        sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        _, client = await loop.create_datagram_endpoint(Datagrams, sock=sender)
        client.transport.set_write_buffer_limits(high=3000)
        changing = bytearray(b"%4d" % 0)
        for number in range(1000):
            changing[:] = b"%4d" % number
            client.transport.sendto(changing, path)
        assert client.transport.get_write_buffer_size() > 3000
        assert client.paused == [True]
        client.transport.close()
        received = [await asyncio.to_thread(receiver.recv, 100) for _ in range(1000)]
        assert received == [b"%4d" % number for number in range(1000)]
        await until(lambda: client.lost)
        assert (client.lost, client.errors, client.paused) == ([None], [], [True, False])


async def test_aborting_drops_what_waits(loop: Loop, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(path)
        _, client = await loop.create_datagram_endpoint(Datagrams, remote_addr=path, family=socket.AF_UNIX)
        while not client.transport.get_write_buffer_size():
            client.transport.sendto(b"x")
        client.transport.abort()
        assert client.transport.get_write_buffer_size() == 0
        await until(lambda: client.lost)
        for _ in range(3):
            client.transport.sendto(b"too late")


@native
async def test_a_pair_without_names(loop: Loop) -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    _, one = await loop.create_datagram_endpoint(Datagrams, sock=left)
    _, two = await loop.create_datagram_endpoint(Datagrams, sock=right)
    one.transport.sendto(b"x" * 100_000)
    await until(lambda: two.received)
    assert two.received == [(b"x" * 100_000, None)]
    await _close(one, two)


async def test_a_name_that_is_no_path(loop: Loop) -> None:
    name = f"\0ropewalk-{os.getpid()}"
    _, server = await loop.create_datagram_endpoint(Datagrams, local_addr=name, family=socket.AF_UNIX)
    _, client = await loop.create_datagram_endpoint(Datagrams, remote_addr=name, family=socket.AF_UNIX)
    client.transport.sendto(b"x")
    await until(lambda: server.received)
    assert server.received == [(b"x", None)]
    await _close(server, client)


async def test_methods_of_a_socket_s_subclass_are_used(loop: Loop) -> None:
    class Shouting(socket.socket):
        def sendto(self, data: Any, *more: Any) -> int:
            return super().sendto(bytes(data).upper(), *more)

        def recvfrom(self, *arguments: Any) -> Any:
            data, sender = super().recvfrom(*arguments)
            return data + b"!", sender

    server, address, client = await _pair(loop)
    sock = Shouting(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    _, other = await loop.create_datagram_endpoint(Datagrams, sock=sock)
    other.transport.sendto(b"loud", address)
    await until(lambda: server.received)
    assert server.received[0][0] == b"LOUD"
    server.transport.sendto(b"answer", server.received[0][1])
    server.transport.sendto(b"another", server.received[0][1])
    await until(lambda: len(other.received) == 2)
    assert other.received == [(b"answer!", address), (b"another!", address)]
    await _close(server, client, other)


async def test_the_options_of_its_socket(loop: Loop) -> None:
    for _ in range(2):
        _, endpoint = await loop.create_datagram_endpoint(
            Datagrams, local_addr=("127.0.0.1", 0), allow_broadcast=True, reuse_port=True
        )
        sock = endpoint.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
        await _close(endpoint)
    with pytest.raises(ValueError, match="unexpected address family"):
        await loop.create_datagram_endpoint(Datagrams)
    # With broadcasts allowed, a remote address is none that the socket is connected to.
    server, address, client = await _pair(loop)
    _, other = await loop.create_datagram_endpoint(Datagrams, remote_addr=address, allow_broadcast=True)
    assert other.transport.get_extra_info("peername") is None
    other.transport.sendto(b"x")
    with pytest.raises(ValueError, match="Invalid address"):
        other.transport.sendto(b"x", ("127.0.0.1", 1))
    await until(lambda: server.received)
    await _close(server, client, other)


async def test_its_class(loop: Loop) -> None:
    server, _, client = await _pair(loop)
    if loops.MODULE == "ropewalk":
        assert isinstance(server.transport, asyncio.DatagramTransport)
    assert server.transport.get_protocol() is server
    assert server.transport.get_write_buffer_limits() == (16384, 65536)
    await _close(server, client)
    assert "closed" in repr(server.transport)


@native
async def test_a_socket_closed_by_other_code_does_not_touch_the_next_file(loop: Loop) -> None:
    server, _, client = await _pair(loop)
    sock = client.transport._sock
    number = sock.fileno()
    sock.close()
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        copy = None if other.fileno() == number else os.dup2(other.fileno(), number)
        client.transport.sendto(b"x")
        assert [error.errno for error in client.errors] == [errno.EBADF]
        await turns()
        assert server.received == []
        if copy is not None:
            os.close(copy)
    await _close(server, client)


@native
async def test_a_cycle_through_an_endpoint_is_collected(loop: Loop) -> None:
    async def alive() -> list[weakref.ref[Any]]:
        transport, protocol = await loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0))
        transport.itself = transport  # type: ignore[attr-defined]
        transport.close()
        await until(lambda: protocol.lost)
        return [weakref.ref(transport), weakref.ref(protocol)]

    found = await alive()
    await turns()
    gc.collect()
    assert [ref() for ref in found] == [None, None]
