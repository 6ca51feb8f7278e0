"""Reads of a `StreamReader` that wait: each byte arrives once and in order, whoever waits, and however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.recording import stream_pair, until

Loop = asyncio.AbstractEventLoop
only_ropewalk = pytest.mark.skipif(
    loops.MODULE != "ropewalk", reason="a coroutine that is dropped ends its wait"
)


@asynccontextmanager
async def _streams(
    limit: int = 2**16,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, socket.socket]]:
    """A reader and a writer, and the socket at the other end; the reader has received bytes before."""
    left, right = stream_pair("unix")
    with right:
        reader, writer = await asyncio.open_connection(sock=left, limit=limit)
        right.send(b"first")
        assert await reader.readexactly(5) == b"first"
        try:
            yield reader, writer, right
        finally:
            writer.transport.abort()
            await until(lambda: left.fileno() == -1)


def _when_woken(reader: Any, act: Callable[[], object]) -> None:
    """Acts after the read got its bytes, and before its task takes them."""
    loop = asyncio.get_running_loop()

    def look() -> None:
        if reader._waiter is None:
            act()
        else:
            loop.call_soon(look)

    look()


async def test_the_rest_of_what_arrives_waits_for_the_next_read(loop: Loop) -> None:
    async with _streams() as (reader, _, peer):
        for read in (reader.read, reader.readexactly):
            task = loop.create_task(read(4))
            await asyncio.sleep(0)
            peer.send(b"0123456789")
            assert await task == b"0123"
            assert await reader.read(100) == b"456789"


async def test_readexactly_gathers_pieces(loop: Loop) -> None:
    async with _streams() as (reader, _, peer):
        task = loop.create_task(reader.readexactly(10))
        for piece in (b"012", b"345", b"6789ab"):
            await asyncio.sleep(0.001)
            assert not task.done()
            peer.send(piece)
        assert await task == b"0123456789"
        assert await reader.read(100) == b"ab"


@pytest.mark.parametrize("read", ["read", "readexactly"])
async def test_a_read_that_is_cancelled_after_its_bytes_came_leaves_them(loop: Loop, read: str) -> None:
    async with _streams() as (reader, _, peer):
        task = loop.create_task(getattr(reader, read)(5))
        await asyncio.sleep(0)
        peer.send(b"hello, world")
        _when_woken(reader, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        peer.send(b"!")
        received = b""
        while len(received) < 13:
            received += await reader.read(100)
        assert received == b"hello, world!"


async def test_bytes_that_are_left_go_to_the_read_that_waits_next(loop: Loop) -> None:
    async with _streams() as (reader, _, peer):
        task = loop.create_task(reader.read(100))
        await asyncio.sleep(0)
        peer.send(b"hello")
        other: Any = reader.read(100)
        waits: list[asyncio.Future[None]] = []
        results: list[bytes] = []

        def go_on() -> None:
            try:
                waits.append(other.send(None))
            except StopIteration as stop:
                results.append(stop.value)

        def act() -> None:
            # The bytes are still in the reader's buffer, or the first read has them.
            go_on()
            task.cancel()

        _when_woken(reader, act)
        with pytest.raises(asyncio.CancelledError):
            await task
        if waits:
            await until(waits[0].done)
            go_on()
        assert results == [b"hello"]


@pytest.mark.parametrize("when", ["before", "after"])
@only_ropewalk
async def test_a_read_that_is_dropped_takes_no_bytes(loop: Loop, when: str) -> None:
    async with _streams() as (reader, _, peer):
        read: Any = reader.read(100)
        future = read.send(None)
        if when == "before":
            del read
        peer.send(b"hello")
        await until(future.done)
        read = None
        assert await reader.read(100) == b"hello"


async def test_a_read_sees_the_end_and_the_error(loop: Loop) -> None:
    async with _streams() as (reader, _, peer):
        task = loop.create_task(reader.readexactly(5))
        await asyncio.sleep(0)
        peer.send(b"abc")
        await asyncio.sleep(0.001)
        peer.shutdown(socket.SHUT_WR)
        with pytest.raises(asyncio.IncompleteReadError) as error:
            await task
        assert error.value.partial == b"abc"
        assert await reader.read(5) == b""
    async with _streams() as (reader, _, _):
        task = loop.create_task(reader.read(5))
        await asyncio.sleep(0)
        reader.set_exception(ZeroDivisionError())
        with pytest.raises(ZeroDivisionError):
            await task


async def test_a_protocol_that_takes_over_gets_what_a_waiting_read_does_not(loop: Loop) -> None:
    received = bytearray()

    class Other(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            received.extend(data)

    async with _streams() as (reader, writer, peer):
        task = loop.create_task(reader.read(5))
        await asyncio.sleep(0)
        before = writer.transport.get_protocol()
        writer.transport.set_protocol(Other())
        peer.send(b"other")
        await until(lambda: received == b"other")
        assert not task.done()
        writer.transport.set_protocol(before)
        peer.send(b"hello")
        assert await task == b"hello"


@pytest.mark.parametrize("limit", [16, 2**16])
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_byte_arrives_once_and_in_order(loop: Loop, limit: int, seed: int) -> None:
    pick = random.Random(seed)
    data = pick.randbytes(3 << 20)

    async def send(peer: socket.socket) -> None:
        at = 0
        while at < len(data):
            size = pick.choice([1, 100, 5_000, 70_000, 200_000])
            with contextlib.suppress(BlockingIOError):
                at += peer.send(data[at : at + size])
            await asyncio.sleep(0)

    async with _streams(limit) as (reader, _, peer):
        sender = loop.create_task(send(peer))
        received, sizes = bytearray(), [1, 10, 4_096, 32_768, 65_536, 100_000]
        while len(received) < len(data):
            size = min(pick.choice(sizes), len(data) - len(received))
            task = loop.create_task(pick.choice([reader.read, reader.readexactly])(size))
            if pick.random() < 0.2:
                await asyncio.sleep(0)
                task.cancel()
            # The cancellation may come too late.
            with contextlib.suppress(asyncio.CancelledError):
                received += await task
        await sender
        assert received == data


async def test_a_waiting_read_in_a_cycle_is_collected(loop: Loop) -> None:
    left, right = stream_pair("unix")
    with right:
        reader: Any
        reader, writer = await asyncio.open_connection(sock=left)
        right.send(b"x")
        await reader.readexactly(1)
        read: Any = reader.read(5)
        read.send(None)
        reader.read_of_its_own = read
        gone = weakref.ref(reader)
        writer.transport.abort()
        await until(lambda: left.fileno() == -1)
        del reader, writer, read
        gc.collect()
        assert gone() is None
