"""The contexts in which a protocol's methods and the exception handler run: those of asyncio's transports."""

from __future__ import annotations

import asyncio
import contextvars
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from tests.unit.loop.recording import connected_to_socket, turns, until

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="none")

Loop = asyncio.AbstractEventLoop
Seen = list[tuple[str, str]]


class Noting(asyncio.Protocol):
    """Notes each method that is called, and the variable's value there; some methods set it."""

    transport: Any

    def __init__(self) -> None:
        self.seen: Seen = []
        self.sets: dict[str, str] = {}
        self.raises: set[str] = set()

    def note(self, name: str) -> None:
        self.seen.append((name, VARIABLE.get()))
        if name in self.sets:
            VARIABLE.set(self.sets[name])
        if name in self.raises:
            raise ZeroDivisionError(name)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.note("made")

    def data_received(self, data: bytes) -> None:
        self.note("data")

    def eof_received(self) -> bool | None:
        self.note("eof")
        return None

    def pause_writing(self) -> None:
        self.note("pause")

    def resume_writing(self) -> None:
        self.note("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.note("lost")

    def of(self, *names: str) -> Seen:
        return [(name, value) for name, value in self.seen if name in names]

    async def wait_for(self, name: str) -> None:
        await until(lambda: any(called == name for called, _ in self.seen))


class BufferedNoting(Noting, asyncio.BufferedProtocol):  # type: ignore[misc]
    """The same, with a buffer."""

    def get_buffer(self, sizehint: int) -> bytearray:
        self.note("buffer")
        self.buffer = bytearray(100)
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.note("data")


@pytest.fixture(autouse=True)
def own_context() -> Any:
    """What a test sets is unset for the next."""
    token = VARIABLE.set("test")
    yield
    VARIABLE.reset(token)


def _task(loop: Loop, value: str, act: Callable[[], Any]) -> asyncio.Task[Any]:
    """Calls something in a task in which the variable has that value."""

    async def work() -> None:
        VARIABLE.set(value)
        result = act()
        if isinstance(result, Coroutine):
            await result

    return loop.create_task(work())


def _drain(sock: socket.socket) -> int:
    count = 0
    with suppress(BlockingIOError):
        while more := len(sock.recv(1 << 20)):
            count += more
    return count


async def _drain_until(sock: socket.socket, condition: Callable[[], Any]) -> None:
    def enough() -> Any:
        _drain(sock)
        return condition()

    await until(enough)


kinds = pytest.mark.parametrize("kind", [Noting, BufferedNoting])


@kinds
async def test_the_end_by_the_peer_runs_where_the_transport_reads(loop: Loop, kind: type[Noting]) -> None:
    protocol = kind()
    protocol.sets = {"made": "made", "data": "data", "eof": "eof"}
    VARIABLE.set("maker")
    async with connected_to_socket(protocol) as peer:
        VARIABLE.set("later")
        for _ in range(2):
            peer.send(b"x")
            await turns()
        peer.shutdown(socket.SHUT_WR)
        await protocol.wait_for("lost")
    # What one call sets, the next ones see; `connection_made` has a copy of its own.
    assert protocol.of("made", "data", "eof", "lost") == [
        ("made", "maker"),
        ("data", "maker"),
        ("data", "data"),
        ("eof", "data"),
        ("lost", "eof"),
    ]


async def test_a_read_that_fails_runs_where_the_transport_reads(loop: Loop) -> None:
    protocol = Noting()
    async with connected_to_socket(protocol, family="tcp") as peer:
        VARIABLE.set("later")
        await turns()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
        await protocol.wait_for("lost")
    assert protocol.of("lost") == [("lost", "test")]


@pytest.mark.parametrize("way", ["close", "abort"])
async def test_the_end_by_a_task_runs_in_the_tasks_context(loop: Loop, way: str) -> None:
    protocol = Noting()
    async with connected_to_socket(protocol):
        await _task(loop, "closer", getattr(protocol.transport, way))
        await protocol.wait_for("lost")
    assert protocol.of("lost") == [("lost", "closer")]


@kinds
async def test_after_a_pause_it_reads_where_it_was_resumed(loop: Loop, kind: type[Noting]) -> None:
    protocol = kind()
    async with connected_to_socket(protocol) as peer:
        await turns()
        protocol.transport.pause_reading()
        peer.send(b"x")
        await _task(loop, "resumer", protocol.transport.resume_reading)
        await protocol.wait_for("data")
        # It was not paused, so this changes nothing.
        await _task(loop, "another", protocol.transport.resume_reading)
        peer.send(b"x")
        peer.shutdown(socket.SHUT_WR)
        await protocol.wait_for("lost")
    assert {value for _, value in protocol.of("data", "eof", "lost")} == {"resumer"}


async def test_a_reader_may_pause_and_resume_itself(loop: Loop) -> None:
    protocol = Noting()
    protocol.sets = {"data": "data"}

    def note(name: str, noted: Callable[[str], None] = protocol.note) -> None:
        if name == "data":
            protocol.transport.pause_reading()
            noted(name)
            protocol.transport.resume_reading()
        else:
            noted(name)

    protocol.note = note  # type: ignore[method-assign]
    async with connected_to_socket(protocol) as peer:
        for count in (1, 2, 3):
            peer.send(b"x")
            await until(lambda count=count: len(protocol.of("data")) == count)
    assert protocol.of("data") == [("data", "test"), ("data", "data"), ("data", "data")]


async def test_flow_control_runs_in_the_context_of_the_write_that_was_refused(loop: Loop) -> None:
    protocol = Noting()
    async with connected_to_socket(protocol) as peer:
        await turns()
        write = protocol.transport.write
        await _task(loop, "first", lambda: write(b"x" * 10_000_000))
        await _task(loop, "second", lambda: write(b"x"))
        assert protocol.of("pause") == [("pause", "first")]
        await _drain_until(peer, lambda: protocol.of("resume"))
        assert protocol.of("resume") == [("resume", "first")]
        await _drain_until(peer, lambda: not protocol.transport.get_write_buffer_size())
        protocol.seen.clear()
        # Everything was sent: the next refusal counts.
        await _task(loop, "third", lambda: write(b"x" * 10_000_000))
        await _task(loop, "closer", protocol.transport.close)
        await _drain_until(peer, lambda: protocol.of("lost"))
    assert protocol.of("pause", "resume", "lost") == [
        ("pause", "third"),
        ("resume", "third"),
        ("lost", "third"),
    ]


async def test_a_refused_write_within_a_read_counts_for_the_read(loop: Loop) -> None:
    protocol = Noting()
    protocol.sets = {"data": "answer"}
    noted = protocol.note

    def note(name: str) -> None:
        noted(name)
        if name == "data":
            protocol.transport.write(b"x" * 10_000_000)

    protocol.note = note  # type: ignore[method-assign]
    async with connected_to_socket(protocol) as peer:
        peer.send(b"x")
        await protocol.wait_for("pause")
        await _drain_until(peer, lambda: protocol.of("resume"))
    assert protocol.of("pause", "resume") == [("pause", "answer"), ("resume", "answer")]


@kinds
@pytest.mark.parametrize("name", ["data", "eof", "buffer"])
async def test_an_error_of_a_protocol_is_reported_where_it_happened(
    loop: Loop, reports: list[dict[str, Any]], kind: type[Noting], name: str
) -> None:
    if name == "buffer" and kind is Noting:
        pytest.skip("it has no buffer")
    protocol = kind()
    protocol.sets = {name: "raiser"}
    protocol.raises = {name}
    handled: list[str] = []
    loop.set_exception_handler(lambda _, context: handled.append(VARIABLE.get()))
    async with connected_to_socket(protocol) as peer:
        peer.send(b"x")
        peer.shutdown(socket.SHUT_WR)
        await protocol.wait_for("lost")
    assert handled == ["raiser"]
    assert protocol.of("lost") == [("lost", "raiser")]


@pytest.mark.parametrize("name", ["pause", "resume"])
async def test_an_error_of_flow_control_is_reported_where_it_happened(loop: Loop, name: str) -> None:
    protocol = Noting()
    protocol.raises = {name}
    handled: list[str] = []
    loop.set_exception_handler(lambda _, context: handled.append(VARIABLE.get()))
    async with connected_to_socket(protocol) as peer:
        await turns()
        await _task(loop, "writer", lambda: protocol.transport.write(b"x" * 10_000_000))
        await _drain_until(peer, lambda: protocol.of("resume"))
    assert handled == ["writer"]


async def test_what_a_streams_reader_wakes_keeps_its_own_context(loop: Loop) -> None:
    left, right = socket.socketpair()
    with right:
        reader, writer = await asyncio.open_connection(sock=left)
        seen: list[str] = []

        async def read() -> None:
            VARIABLE.set("reader")
            await reader.readexactly(3)
            seen.append(VARIABLE.get())

        task = loop.create_task(read())
        for byte in (b"a", b"b", b"c"):
            right.send(byte)
            await turns()
        await task
        assert seen == ["reader"]
        writer.close()
        await writer.wait_closed()
