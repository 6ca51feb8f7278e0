"""Protocols that record their callbacks, and connections between two of them."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


async def until(condition: Callable[[], T], seconds: float = 30) -> T:
    """The condition's first true value; fails if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not so after {seconds} s: {condition}")
        await asyncio.sleep(0.001)
    return value


async def turns(count: int = 5) -> None:
    """Lets the loop turn a few times and wait for descriptors, so that what it would do at once is done."""
    for _ in range(count):
        await asyncio.sleep(0)
    # What other threads and the kernel do meanwhile takes some time.
    for _ in range(2):
        await asyncio.sleep(0.0002)


class _Recording(asyncio.BaseProtocol):
    """`calls` has the names of the methods called, without repetitions in a row."""

    transport: Any = None

    def __init__(self, *, keep_open: bool = False) -> None:
        self.calls: list[str] = []
        self.received = bytearray()
        self.lost: list[Exception | None] = []
        self._keep_open = keep_open

    def _note(self, name: str) -> None:
        if self.calls[-1:] != [name]:
            self.calls.append(name)

    def connection_made(self, transport: Any) -> None:
        self._note("connection_made")
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._note("connection_lost")
        self.lost.append(exc)

    def eof_received(self) -> bool:
        self._note("eof_received")
        return self._keep_open

    def pause_writing(self) -> None:
        self.calls.append("pause_writing")

    def resume_writing(self) -> None:
        self.calls.append("resume_writing")


class Recording(_Recording, asyncio.Protocol):
    """Takes what arrives as bytes."""

    def data_received(self, data: bytes) -> None:
        self._note("data_received")
        self.received += data


class BufferedRecording(_Recording, asyncio.BufferedProtocol):
    """Takes what arrives in a buffer of its own."""

    def __init__(self, *, keep_open: bool = False, size: int = 1000) -> None:
        super().__init__(keep_open=keep_open)
        self.buffer = bytearray(size)
        self.hints: list[int] = []

    def get_buffer(self, sizehint: int) -> bytearray:
        self.hints.append(sizehint)
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._note("buffer_updated")
        self.received += self.buffer[:nbytes]


class Connection:
    """Two transports that talk to each other, and their protocols."""

    def __init__(self, near: Any, far: Any) -> None:
        self.near = near
        self.far = far

    @property
    def transport(self) -> asyncio.Transport:
        transport: asyncio.Transport = self.near.transport
        return transport

    @property
    def peer(self) -> asyncio.Transport:
        peer: asyncio.Transport = self.far.transport
        return peer


@asynccontextmanager
async def connected(near: Any = None, far: Any = None, *, family: str = "unix") -> AsyncIterator[Connection]:
    """Both ends of a stream as transports of the running loop; closed, and seen to be closed, at the end."""
    loop = asyncio.get_running_loop()
    near = Recording() if near is None else near
    far = Recording() if far is None else far
    left, right = stream_pair(family)
    await loop.create_connection(lambda: near, sock=left)
    await loop.create_connection(lambda: far, sock=right)
    # A protocol may be replaced during the test; the transport is what is closed.
    transports = [near.transport, far.transport]
    try:
        yield Connection(near, far)
    finally:
        for transport in transports:
            await _abort(transport)


@asynccontextmanager
async def connected_to_socket(protocol: Any, *, family: str = "unix") -> AsyncIterator[socket.socket]:
    """A transport's protocol on one side, a plain socket that does not block on the other."""
    loop = asyncio.get_running_loop()
    left, right = stream_pair(family)
    with right:
        transport, _ = await loop.create_connection(lambda: protocol, sock=left)
        try:
            yield right
        finally:
            await _abort(transport)


async def _abort(transport: asyncio.Transport) -> None:
    sock = transport.get_extra_info("socket")
    if sock.fileno() != -1:
        transport.abort()
        await until(lambda: sock.fileno() == -1)


def stream_pair(family: str) -> tuple[socket.socket, socket.socket]:
    """Two connected sockets that do not block, of the family `tcp` or `unix`."""
    if family == "unix":
        left, right = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            left = socket.create_connection(listening.getsockname())
            right, _ = listening.accept()
    left.setblocking(False)
    right.setblocking(False)
    return left, right
