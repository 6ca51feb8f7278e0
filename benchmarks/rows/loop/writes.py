"""Table: writes of one transport, to a peer that waits for them and to one that does not read."""

from __future__ import annotations

import asyncio
import statistics
import time

from harness.clock import median
from harness.loop_load import peer_process
from harness.loops import PEERS, PLAYERS, new_loop
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better

#: More than the kernel's buffers of a connection take.
FULL = 32 << 20
#: Nanoseconds of the work behind a write.
WORK = 1_000_000


class _Waiting(asyncio.Protocol):
    """Holds a future for the next answer."""

    answer: asyncio.Future[bytes]

    def data_received(self, data: bytes) -> None:
        self.answer.set_result(data)


def blocked(loop_of: str, count: int) -> dict[str, float]:
    """Nanoseconds for a write of 64 bytes to a transport whose peer does not read."""
    loop = new_loop(loop_of)
    data = b"x" * 64

    async def main() -> float:
        with peer_process("idle") as connection:
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=connection)
            transport.write(bytes(FULL))
            await asyncio.sleep(0.1)

            def write() -> float:
                began = time.perf_counter_ns()
                for _ in range(count):
                    transport.write(data)
                return (time.perf_counter_ns() - began) / count

            took = median(write)
            transport.abort()
            await asyncio.sleep(0.01)
        return took

    figures = {"write": loop.run_until_complete(main())}
    loop.close()
    return figures


def followed(loop_of: str, count: int) -> dict[str, float]:
    """Microseconds from a write of one byte to its arrival in another process, with a millisecond of work behind it."""
    loop = new_loop(loop_of)
    clock = time.perf_counter_ns

    async def main() -> float:
        with peer_process("tell") as connection:
            transport, protocol = await loop.create_connection(_Waiting, sock=connection)
            took = []
            for _ in range(count):
                protocol.answer = loop.create_future()
                began = clock()
                transport.write(b"x")
                while clock() - began < WORK:
                    pass
                took.append((int.from_bytes(await protocol.answer, "big") - began) / 1e3)
            transport.abort()
            await asyncio.sleep(0.01)
        return statistics.median(took)

    figures = {"arrived": loop.run_until_complete(main())}
    loop.close()
    return figures


BLOCKED = Contest(blocked, "blocked", PLAYERS, as_argument="loop_of", count=Size(2_000, 100))
FOLLOWED = Contest(followed, "followed", PLAYERS, as_argument="loop_of", count=Size(500, 5))

ROW = Row(
    "writes",
    "Writes of one transport",
    "To a peer that does not read, in ns for 64 bytes; and from a write of one byte to its arrival in another process, "
    "when the callback works for a millisecond behind it.",
    (
        Line("to a blocked peer", "ns", BLOCKED, "write", None, {**PEERS, "uvloop": times_better(1)}),
        Line("arrival, with work behind it", "µs", FOLLOWED, "arrived", None, PEERS),
    ),
)
