"""Table: messages through pipes."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any

from harness.loops import PEERS, PLAYERS, new_loop
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 64


class _Hops:
    """Sends a message again as soon as it has arrived, so many times."""

    def __init__(self, count: int, send: Callable[[bytes], object], done: asyncio.Future[None]) -> None:
        self._send, self._done = send, done
        self._left, self._missing = count, SIZE

    def arrived(self, data: bytes) -> None:
        self._missing -= len(data)
        if self._missing:
            return
        self._missing = SIZE
        self._left -= 1
        if self._left:
            self._send(bytes(SIZE))
        else:
            self._done.set_result(None)


class _Reading(asyncio.Protocol):
    arrived: Callable[[bytes], None]

    def data_received(self, data: bytes) -> None:
        self.arrived(data)


class _Child(asyncio.SubprocessProtocol):
    arrived: Callable[[bytes], None]

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.arrived(data)


async def _rate(protocol: Any, send: Callable[[bytes], object], count: int) -> float:
    loop = asyncio.get_running_loop()
    took = 0.0
    for times in (count // 10, count):
        done: asyncio.Future[None] = loop.create_future()
        protocol.arrived = _Hops(times, send, done).arrived
        began = time.perf_counter()
        send(bytes(SIZE))
        await done
        took = time.perf_counter() - began
    return count / took


def pipe(loop_of: str, count: int) -> dict[str, float]:
    """Messages each second through a pipe whose two ends one loop has."""

    async def main() -> float:
        reader, writer = os.pipe()
        source, protocol = await loop.connect_read_pipe(_Reading, os.fdopen(reader, "rb", 0))
        sink, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(writer, "wb", 0))
        rate = await _rate(protocol, sink.write, count)
        sink.close()
        source.close()
        await asyncio.sleep(0.01)
        return rate

    loop = new_loop(loop_of)
    rate = loop.run_until_complete(main())
    loop.close()
    return {"rate": rate}


def child(loop_of: str, count: int) -> dict[str, float]:
    """Messages each second to `cat` and back."""

    async def main() -> float:
        transport, protocol = await loop.subprocess_exec(_Child, "cat")
        stdin: Any = transport.get_pipe_transport(0)
        rate = await _rate(protocol, stdin.write, count)
        stdin.close()
        await asyncio.sleep(0.01)
        transport.close()
        return rate

    loop = new_loop(loop_of)
    asyncio.set_event_loop(loop)
    rate = loop.run_until_complete(main())
    asyncio.set_event_loop(None)
    loop.close()
    return {"rate": rate}


def _line(contest: Callable[..., dict[str, float]], what: str, size: Size, better: float | None) -> Line:
    played = Contest(contest, contest.__name__, PLAYERS, as_argument="loop_of", timeout=60.0, count=size)
    against = PEERS if better is None else dict.fromkeys(PEERS, times_better(better))
    return Line(what, "/s", played, "rate", None, against, more_is_better=True)


ROW = Row(
    "pipes",
    "64 bytes through a pipe, messages each second",
    "One loop has both ends of the pipe, and writes the next message when one has arrived; the same through the "
    "standard input and output of `cat`, whose time is in it.",
    (
        _line(pipe, "a pipe", Size(50_000, 500), 1.1),
        _line(child, "`cat` and back", Size(5_000, 100), 1.0),
    ),
)
