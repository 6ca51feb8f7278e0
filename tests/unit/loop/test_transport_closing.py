"""The end of a stream transport: close, abort, half-close, reset, errors; `connection_lost` exactly once."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import warnings
import weakref
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.recording import (
    BufferedRecording,
    Recording,
    connected,
    connected_to_socket,
    stream_pair,
    turns,
    until,
)

Loop = asyncio.AbstractEventLoop
LARGE = 8 << 20
families = pytest.mark.parametrize("family", ["tcp", "unix"])


@families
async def test_close_flushes_and_tells_both(loop: Loop, family: str) -> None:
    async with connected(family=family) as connection:
        connection.transport.write(bytes(LARGE))
        connection.transport.close()
        connection.transport.close()
        assert connection.transport.is_closing()
        await until(lambda: connection.near.lost and connection.far.lost)
        assert len(connection.far.received) == LARGE
        assert (connection.near.lost, connection.far.lost) == ([None], [None])
        assert connection.far.calls == ["connection_made", "data_received", "eof_received", "connection_lost"]


async def test_connection_lost_comes_after_close_has_returned(loop: Loop) -> None:
    async with connected() as connection:
        connection.transport.close()
        assert connection.near.lost == []
        await until(lambda: connection.near.lost)
        connection.transport.close()
        connection.transport.abort()
        await turns()
        assert connection.near.lost == [None]


async def test_abort_drops_what_waits(loop: Loop) -> None:
    async with connected_to_socket(protocol := Recording()) as peer:
        protocol.transport.write(bytes(LARGE))
        protocol.transport.abort()
        protocol.transport.abort()
        assert protocol.lost == []
        await until(lambda: protocol.lost)
        assert protocol.lost == [None]
        received = 0
        while data := await loop.sock_recv(peer, 1 << 20):
            received += len(data)
        assert received < LARGE


async def test_abort_after_close_does_not_wait(loop: Loop) -> None:
    async with connected_to_socket(protocol := Recording()):
        protocol.transport.write(bytes(LARGE))
        protocol.transport.close()
        await turns()
        assert protocol.lost == []
        protocol.transport.abort()
        await until(lambda: protocol.lost)
        assert protocol.lost == [None]


@families
@pytest.mark.parametrize("kind", [Recording, BufferedRecording])
async def test_an_end_closes(loop: Loop, family: str, kind: Any) -> None:
    async with connected_to_socket(protocol := kind(), family=family) as peer:
        peer.shutdown(socket.SHUT_WR)
        await until(lambda: protocol.lost)
        assert protocol.calls == ["connection_made", "eof_received", "connection_lost"]
        assert protocol.lost == [None]
        assert await loop.sock_recv(peer, 1) == b""


@families
@pytest.mark.parametrize("kind", [Recording, BufferedRecording])
async def test_half_closed_by_the_peer(loop: Loop, family: str, kind: Any) -> None:
    async with connected_to_socket(protocol := kind(keep_open=True), family=family) as peer:
        peer.shutdown(socket.SHUT_WR)
        await until(lambda: "eof_received" in protocol.calls)
        await turns()
        assert protocol.calls == ["connection_made", "eof_received"]
        assert not protocol.transport.is_closing()
        protocol.transport.write(b"still here")
        assert await loop.sock_recv(peer, 100) == b"still here"
        protocol.transport.close()
        assert await loop.sock_recv(peer, 100) == b""
        await until(lambda: protocol.lost)
        assert protocol.calls == ["connection_made", "eof_received", "connection_lost"]


@families
async def test_half_closed_by_us(loop: Loop, family: str) -> None:
    async with connected_to_socket(protocol := Recording(), family=family) as peer:
        transport = protocol.transport
        transport.write(b"all there is")
        transport.write_eof()
        transport.write_eof()
        for write in (lambda: transport.write(b"more"), lambda: transport.writelines([b"more"])):
            with pytest.raises(RuntimeError, match="after write_eof"):
                write()
        assert await loop.sock_recv(peer, 100) == b"all there is"
        assert await loop.sock_recv(peer, 100) == b""
        await loop.sock_sendall(peer, b"answer")
        await until(lambda: protocol.received == b"answer")
        assert not transport.is_closing()
        peer.close()
        await until(lambda: protocol.lost)
        assert protocol.lost == [None]


async def test_write_eof_waits_for_what_is_written(loop: Loop) -> None:
    async with connected_to_socket(protocol := Recording()) as peer:
        protocol.transport.write(bytes(LARGE))
        protocol.transport.write_eof()
        received = 0
        while data := await loop.sock_recv(peer, 1 << 20):
            received += len(data)
        assert received == LARGE
        assert protocol.lost == []
        await loop.sock_sendall(peer, b"answer")
        await until(lambda: protocol.received == b"answer")


async def test_half_closed_by_both(loop: Loop) -> None:
    near, far = Recording(keep_open=True), Recording(keep_open=True)
    async with connected(near, far) as connection:
        for transport in (connection.transport, connection.peer):
            transport.write(b"bye")
            transport.write_eof()
        await until(lambda: "eof_received" in near.calls and "eof_received" in far.calls)
        assert (near.received, far.received) == (b"bye", b"bye")
        assert (near.lost, far.lost) == ([], [])


@pytest.mark.parametrize("kind", [Recording, BufferedRecording])
async def test_a_reset_is_told(loop: Loop, kind: Any) -> None:
    async with connected_to_socket(protocol := kind(), family="tcp") as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
        await until(lambda: protocol.lost)
        (error,) = protocol.lost
        assert isinstance(error, ConnectionResetError)
        assert "eof_received" not in protocol.calls


async def test_the_addresses_stay_after_a_reset(loop: Loop) -> None:
    addresses: list[Any] = []

    class Asking(Recording):
        def connection_lost(self, exc: BaseException | None) -> None:
            addresses.extend(self.transport.get_extra_info(name) for name in ("peername", "sockname"))
            super().connection_lost(exc)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        _, protocol = await loop.create_connection(Asking, *server.getsockname())
        peer, address = await loop.sock_accept(server)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
        await until(lambda: protocol.lost)
        assert addresses == [server.getsockname(), address]


async def test_a_write_to_one_that_is_gone(loop: Loop) -> None:
    async with connected_to_socket(protocol := Recording(keep_open=True)) as peer:
        peer.close()
        await until(lambda: "eof_received" in protocol.calls)
        protocol.transport.write(b"x")
        await until(lambda: protocol.lost)
        assert isinstance(protocol.lost[0], BrokenPipeError)
        assert len(protocol.lost) == 1


async def test_a_pending_write_to_one_that_goes(loop: Loop) -> None:
    async with connected_to_socket(protocol := Recording(keep_open=True)) as peer:
        protocol.transport.write(bytes(LARGE))
        peer.close()
        await until(lambda: protocol.lost)
        assert isinstance(protocol.lost[0], ConnectionError)
        assert len(protocol.lost) == 1
        assert protocol.transport.get_write_buffer_size() == 0


CALLBACKS = ["data_received", "eof_received", "get_buffer", "buffer_updated"]


@pytest.mark.parametrize("name", CALLBACKS)
async def test_an_error_in_a_callback_ends_the_connection(
    loop: Loop, reports: list[dict[str, Any]], name: str
) -> None:
    def fail(self: Any, *_: Any) -> None:
        raise ZeroDivisionError(name)

    base = BufferedRecording if "buffer" in name else Recording
    protocol = type("Failing", (base,), {name: fail})()
    async with connected_to_socket(protocol) as peer:
        transport = protocol.transport
        peer.send(b"x")
        peer.shutdown(socket.SHUT_WR)
        await until(lambda: protocol.lost)
        (error,) = protocol.lost
        assert isinstance(error, ZeroDivisionError)
        report = reports.pop()
        assert report["exception"] is error
        assert report["message"] == f"Fatal error: protocol.{name}() call failed."
        assert (report["transport"], report["protocol"]) == (transport, protocol)
        assert transport.get_extra_info("socket").fileno() == -1


@pytest.mark.parametrize("name", ["pause_writing", "resume_writing"])
async def test_an_error_in_flow_control_is_reported(
    loop: Loop, reports: list[dict[str, Any]], name: str
) -> None:
    def fail(self: Any) -> None:
        raise ZeroDivisionError(name)

    protocol = type("Failing", (Recording,), {name: fail})()
    async with connected_to_socket(protocol) as peer:
        protocol.transport.write(bytes(LARGE))
        received = 0
        while received < LARGE:
            received += len(await loop.sock_recv(peer, 1 << 20))
        await until(lambda: reports)
        report = reports.pop()
        assert report["message"] == f"protocol.{name}() failed"
        assert isinstance(report["exception"], ZeroDivisionError)
        # It is no reason to end the connection.
        protocol.transport.write(b"goes on")
        assert await loop.sock_recv(peer, 100) == b"goes on"


async def test_an_error_in_connection_made_is_reported(loop: Loop, reports: list[dict[str, Any]]) -> None:
    class Failing(Recording):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            raise ZeroDivisionError

    async with connected_to_socket(protocol := Failing()) as peer:
        await until(lambda: reports)
        assert isinstance(reports.pop()["exception"], ZeroDivisionError)
        await loop.sock_sendall(peer, b"goes on")
        await until(lambda: protocol.received == b"goes on")


async def test_an_error_in_connection_lost_closes_all_the_same(
    loop: Loop, reports: list[dict[str, Any]]
) -> None:
    class Failing(Recording):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            raise ZeroDivisionError

    async with connected_to_socket(protocol := Failing()) as peer:
        sock = protocol.transport.get_extra_info("socket")
        protocol.transport.close()
        await until(lambda: reports)
        assert isinstance(reports.pop()["exception"], ZeroDivisionError)
        assert sock.fileno() == -1
        assert await loop.sock_recv(peer, 1) == b""
    assert protocol.lost == [None]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_exit_in_a_callback_comes_out(loop: Loop, error: type[BaseException]) -> None:
    class Leaving(Recording):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if data == b"leave":
                raise error

    async def main() -> None:
        async with connected_to_socket(protocol := Leaving()) as peer:
            protocols.append(protocol)
            peer.send(b"leave")
            await until(lambda: len(protocol.received) > 5)
            assert protocol.received == b"leaveback"

    protocols: list[Leaving] = []
    task = loop.create_task(main())
    with pytest.raises(error):
        loop.run_until_complete(task)
    # The connection is as it was.
    loop.call_soon(lambda: protocols[0].data_received(b"back"))
    loop.run_until_complete(task)


@pytest.mark.parametrize("how", ["close", "abort"])
@pytest.mark.parametrize("where", ["connection_made", "data_received", "eof_received", "connection_lost"])
async def test_closing_inside_a_callback(loop: Loop, how: str, where: str) -> None:
    def closing(self: Any, *args: Any) -> Any:
        result = getattr(Recording, where)(self, *args)
        getattr(self.transport, how)()
        return result

    protocol = type("Closing", (Recording,), {where: closing})(keep_open=where == "eof_received")
    async with connected_to_socket(protocol) as peer:
        if where != "connection_made":
            await loop.sock_sendall(peer, b"some data")
            peer.shutdown(socket.SHUT_WR)
        await until(lambda: protocol.lost)
        await turns()
        assert protocol.lost == [None]


async def test_a_transport_and_its_protocol_are_let_go(loop: Loop) -> None:
    alive = []
    async with connected() as connection:
        connection.transport.write(b"x")
        await until(lambda: connection.far.received)
        alive += [weakref.ref(connection.near), weakref.ref(connection.transport)]
        connection.transport.close()
        await until(lambda: connection.far.lost)
    connection = None  # type: ignore[assignment]
    await turns()
    gc.collect()
    assert [ref() for ref in alive] == [None, None]


def test_a_transport_dropped_unclosed_warns(loop: Loop) -> None:
    left, right = stream_pair("unix")
    with right:
        transport, _ = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=left))
        loop.close()
        dropped = [transport]
        del transport
        with pytest.warns(ResourceWarning, match="unclosed"):
            _drop(dropped)
    left.close()


def _drop(last_references: list[Any]) -> None:
    last_references.clear()
    gc.collect()


def test_a_loop_closed_over_open_transports(loop: Loop) -> None:
    left, right = stream_pair("unix")
    with right:
        transport, _ = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=left))
        transport.write(bytes(LARGE))
        loop.close()
        assert transport.get_extra_info("socket").fileno() >= 0
        dropped = [transport]
        del transport
        with pytest.warns(ResourceWarning, match="unclosed"):
            _drop(dropped)
    left.close()


async def test_what_is_known_of_the_socket_outlives_the_connection(loop: Loop) -> None:
    asked, protocol = Recording(), Recording()
    async with connected_to_socket(protocol, family="tcp") as peer:
        transport = protocol.transport
        names = {peer.getsockname(), peer.getpeername()}
        transport.close()
        await until(lambda: protocol.lost)
        assert {transport.get_extra_info("sockname"), transport.get_extra_info("peername")} == names
        sock = transport.get_extra_info("socket")
        assert sock.fileno() == -1
        assert sock.family == socket.AF_INET
        assert transport.get_extra_info("socket") is sock
        assert transport.get_extra_info("what nobody knows", 5) == 5
    async with connected_to_socket(asked) as peer:
        sock = asked.transport.get_extra_info("socket")
        assert sock.getsockname() == asked.transport.get_extra_info("sockname") == ""
        assert not hasattr(sock, "send")


def test_a_loop_whose_class_schedules_in_its_own_way(loop: Loop, reports: list[dict[str, Any]]) -> None:
    calls: list[str] = []

    class Noting(type(loop)):  # type: ignore[misc]
        def call_soon(self, callback: Any, *arguments: Any, context: Any = None) -> Any:
            calls.append(getattr(callback, "__name__", ""))
            return super().call_soon(callback, *arguments, context=context)

    noting = Noting()
    noting.set_exception_handler(lambda _, context: reports.append(context))

    async def main() -> None:
        protocol = Recording()
        async with connected_to_socket(protocol):
            protocol.transport.abort()
            await until(lambda: protocol.lost)

    noting.run_until_complete(main())
    noting.close()
    assert calls.count("connection_made") == calls.count("_call_connection_lost") == 1


@pytest.mark.skipif(loops.MODULE != "ropewalk", reason="asyncio leaves it open")
def test_a_dropped_transport_ends_where_warnings_are_errors(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda event: raised.append(event.exc_type))
    left, right = stream_pair("unix")
    with right:
        dropped = [loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=left))[0]]
        loop.close()
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            _drop(dropped)
        assert raised == [ResourceWarning]
        assert left.fileno() == -1


async def test_a_server_that_refuses_a_connection_does_not_hear_of_its_end(loop: Loop) -> None:
    class Refusing:
        ends = 0

        def _attach(self, *_: Any) -> None:
            raise AssertionError("closed")

        def _detach(self, *_: Any) -> None:
            self.ends += 1

    server = Refusing()

    def refused(sock: socket.socket) -> None:
        making: Any = loop
        with pytest.raises(AssertionError, match="closed"):
            making._make_socket_transport(sock, asyncio.Protocol(), server=server)
        gc.collect()

    left, right = stream_pair("unix")
    with right:
        with pytest.warns(ResourceWarning, match="unclosed"):
            refused(left)
        assert server.ends == 0
        assert left.fileno() == -1
