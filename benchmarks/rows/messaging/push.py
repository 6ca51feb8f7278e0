"""Table: pipelines."""

from __future__ import annotations

from harness.programs import PEERS, line
from harness.table import Goal, Line, Row, at_least


def _push(what: str, size: int, count: int, goal: Goal, transport: str = "tcp", place: str = "free") -> Line:
    peers = {} if transport == "shm" else dict.fromkeys(PEERS)
    unit = "k/s" if size == 16384 else "M/s"
    return line(what, unit, "push", goal, peers, size=size, count=count, transport=transport, place=place)


ROW = Row(
    "push",
    "PUSH to PULL, messages each second",
    "Two threads, where the system puts them unless the line says otherwise. Timed at the receiver, from the first "
    "message after a tenth of them to the last; all must arrive. Each takes by its fastest call. The row tells "
    "`monocoque` to coalesce and when to flush, and `raw` writes 64 KiB at once; the others decide by themselves.",
    (
        _push("tcp, 64 B", 64, 5_000_000, at_least(16)),
        _push("tcp, 1 KiB", 1024, 1_500_000, at_least(2.9)),
        _push("tcp, 16 KiB", 16384, 100_000, at_least(190)),
        _push("ipc, 64 B", 64, 5_000_000, at_least(18), "ipc"),
        _push("ipc, 16 KiB", 16384, 150_000, at_least(280), "ipc"),
        _push("shm, 64 B", 64, 6_000_000, at_least(20), "shm"),
        _push("shm, 16 KiB", 16384, 150_000, at_least(280), "shm"),
        _push("tcp, 64 B, one core", 64, 4_000_000, at_least(12), place="one"),
    ),
)
