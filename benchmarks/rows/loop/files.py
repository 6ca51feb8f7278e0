"""Table: files sent over a connection."""

from __future__ import annotations

import asyncio
import tempfile
import time

from harness.loop_load import peer_process
from harness.loops import PLAYERS as LOOPS, new_loop
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better

#: uvloop, rloop and rsloop lack `sendfile`.
PLAYERS = {name: needs for name, needs in LOOPS.items() if name in ("ropewalk", "asyncio", "zuvloop")}
PEERS = dict.fromkeys((name for name in PLAYERS if name != "ropewalk"), times_better(1))


def sent(loop_of: str, by: str, size: int, count: int) -> dict[str, float]:
    """Microseconds of this process to send a file of `size` bytes."""
    loop = new_loop(loop_of)

    async def main() -> float:
        with peer_process("drain") as connection, tempfile.TemporaryFile() as file:
            file.write(bytes(size))
            file.flush()
            transport = None
            if by == "transport":
                transport, _ = await loop.create_connection(asyncio.Protocol, sock=connection)

            async def send() -> None:
                for _ in range(count):
                    if transport is None:
                        await loop.sock_sendfile(connection, file, 0, size, fallback=False)
                    else:
                        await loop.sendfile(transport, file, 0, size, fallback=False)

            await send()
            began = time.process_time_ns()
            await send()
            took = time.process_time_ns() - began
            if transport is not None:
                transport.abort()
                await asyncio.sleep(0.01)
        return took / count / 1e3

    took = loop.run_until_complete(main())
    loop.close()
    return {"sent": took}


def _line(by: str, size: int, what: str, count: int) -> Line:
    contest = Contest(
        sent,
        f"{by}-{size}",
        PLAYERS,
        as_argument="loop_of",
        timeout=60.0,
        by=by,
        size=size,
        count=Size(count, 20),
    )
    return Line(what, "µs", contest, "sent", None, PEERS)


ROW = Row(
    "files",
    "Files sent over a connection, for each",
    "By `sock_sendfile` and `sendfile`, from the page cache to a process that receives and does nothing else; the time "
    "is what the sending process has run. uvloop, rloop and rsloop lack both.",
    (
        _line("socket", 1024, "sock_sendfile, 1 KiB", 2000),
        _line("socket", 1 << 20, "sock_sendfile, 1 MiB", 300),
        _line("transport", 1024, "sendfile, 1 KiB", 2000),
        _line("transport", 1 << 20, "sendfile, 1 MiB", 300),
    ),
)
