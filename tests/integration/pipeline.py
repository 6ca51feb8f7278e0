"""A binary protocol as drivers of databases have them: many requests on one connection, answered in any order.

A frame is a length, the request's number, an operation and a payload. Both ends stop producing while their transport
is full; a request that is cancelled at the client is cancelled at the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

_HEAD = struct.Struct("!IIB")


class Operation(enum.IntEnum):
    """What a frame is for."""

    ECHO = 0  # Answered at once.
    LATER = 1  # Answered after as many turns of the loop as the first byte says.
    HOLD = 2  # Never answered.
    FAIL = 3
    CANCEL = 4
    RESULT = 5
    ERROR = 6


class RequestFailed(Exception):
    """The server has answered a request with an error."""


class _Framed(asyncio.BaseProtocol):
    """Frames in, frames out, with flow control."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.pauses = 0
        self.largest = 0  # Bytes that were waiting at a pause.
        self.lost = asyncio.get_running_loop().create_future()
        self._input = bytearray()
        self._room = asyncio.Event()
        self._room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)
        self._room.set()

    def pause_writing(self) -> None:
        assert self._room.is_set()
        self.pauses += 1
        self.largest = max(self.largest, self.transport.get_write_buffer_size())
        self._room.clear()

    def resume_writing(self) -> None:
        assert not self._room.is_set()
        self._room.set()

    def feed(self, data: bytes | memoryview) -> None:
        """Takes what has come, and hands on every frame that is whole."""
        self._input += data
        while len(self._input) >= _HEAD.size:
            length, number, operation = _HEAD.unpack_from(self._input)
            end = _HEAD.size + length
            if len(self._input) < end:
                break
            payload = bytes(self._input[_HEAD.size : end])
            del self._input[:end]
            self.frame_received(number, Operation(operation), payload)

    async def send(self, number: int, operation: Operation, payload: bytes = b"") -> None:
        """Sends a frame once there is room."""
        await self._room.wait()
        self.send_nowait(number, operation, payload)

    def send_nowait(self, number: int, operation: Operation, payload: bytes = b"") -> None:
        """Sends a frame whether there is room or not; nothing, if the connection is gone."""
        if not self.lost.done():
            head = _HEAD.pack(len(payload), number, operation)
            # asyncio's own transport spins on an empty piece since 3.12; this is no test of that.
            self.transport.writelines([head, payload] if payload else [head])

    def frame_received(self, number: int, operation: Operation, payload: bytes) -> None:
        """A frame is there."""
        raise NotImplementedError


class _Server(_Framed):
    """Answers each request by a task of its own, and notes those that were cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.cancelled: list[int] = []
        self.answered = 0

    def frame_received(self, number: int, operation: Operation, payload: bytes) -> None:
        if operation is Operation.CANCEL:
            if task := self.tasks.get(number):
                task.cancel()
            return
        task = asyncio.get_running_loop().create_task(self._answer(number, operation, payload))
        self.tasks[number] = task
        task.add_done_callback(lambda _: self.tasks.pop(number))

    def eof_received(self) -> bool:
        """The client asks nothing more; it still gets its answers."""
        self._ending = asyncio.get_running_loop().create_task(self._end())
        return True

    async def _end(self) -> None:
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for task in self.tasks.values():
            task.cancel()

    async def _answer(self, number: int, operation: Operation, payload: bytes) -> None:
        try:
            if operation is Operation.LATER:
                for _ in range(payload[0]):
                    await asyncio.sleep(0)
            elif operation is Operation.HOLD:
                await asyncio.get_running_loop().create_future()
            elif operation is Operation.FAIL:
                await self.send(number, Operation.ERROR, payload)
                return
            await self.send(number, Operation.RESULT, payload)
            self.answered += 1
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise


class _Client(_Framed):
    """Asks; any number of requests may be under way."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def request(self, operation: Operation, payload: bytes = b"") -> bytes:
        """The answer's payload; raises `RequestFailed`, or `ConnectionError` without a connection."""
        number = next(self._numbers)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            await self.send(number, operation, payload)
            if self.lost.done():
                raise ConnectionResetError("the connection is gone")
            return await future
        except asyncio.CancelledError:
            self.send_nowait(number, Operation.CANCEL)
            raise
        finally:
            self._waiting.pop(number, None)

    def frame_received(self, number: int, operation: Operation, payload: bytes) -> None:
        future = self._waiting.get(number)
        if future is None or future.done():
            return  # Its caller has given up.
        if operation is Operation.ERROR:
            future.set_exception(RequestFailed(payload.decode()))
        else:
            future.set_result(payload)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionResetError("the connection is gone"))


class _Whole(asyncio.Protocol):
    """Takes what has come as bytes."""

    feed: Callable[[bytes | memoryview], None]

    def data_received(self, data: bytes) -> None:
        self.feed(data)


class _InPlace(asyncio.BufferedProtocol):
    """Lets the transport write into a buffer of its own, as large as a small frame's head."""

    feed: Callable[[bytes | memoryview], None]
    _buffer: bytearray | None = None

    def get_buffer(self, sizehint: int) -> bytearray:
        if self._buffer is None:
            self._buffer = bytearray(4096)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert self._buffer is not None
        self.feed(memoryview(self._buffer)[:nbytes])


class Server(_Server, _Whole):
    """The server's end, by `data_received`."""


class BufferedServer(_Server, _InPlace):
    """The server's end, by `get_buffer`."""


class Client(_Client, _Whole):
    """The client's end, by `data_received`."""


class BufferedClient(_Client, _InPlace):
    """The client's end, by `get_buffer`."""


class ClientPool:
    """At most so many connections, each lent to one borrower at a time; those that are lost are replaced."""

    def __init__(self, connect: Callable[[], asyncio.Future[_Client]], size: int) -> None:
        self._connect = connect
        self._slots = asyncio.Semaphore(size)
        self._idle: list[_Client] = []
        self.made = 0

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[_Client]:
        """A connection for the time of the block."""
        async with self._slots:
            while self._idle and self._idle[-1].lost.done():
                self._idle.pop()
            if self._idle:
                client = self._idle.pop()
            else:
                client = await self._connect()
                self.made += 1
            try:
                yield client
            finally:
                self._idle.append(client)

    async def close(self) -> None:
        """Closes every connection; nobody may hold one."""
        for client in self._idle:
            client.transport.close()
        await asyncio.gather(*(client.lost for client in self._idle))
