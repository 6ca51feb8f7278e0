"""Table: round trips on one core."""

from __future__ import annotations

from harness.programs import PEERS, line
from harness.table import Row, at_most, times_better

AGAINST_ALL = {"raw, by epoll": None, **dict.fromkeys(PEERS), "libzmq": times_better(3)}
WITH_FLOORS = ("raw, by epoll", *PEERS)

ROW = Row(
    "roundtrip",
    "REQ/REP round trips on one core",
    "Two threads of one process, both pinned to the same core (the last line: one thread with both ends); a batch to "
    "warm up, and the median of nine. `raw` is blocking sockets with a length before each message. `raw, by epoll` "
    "sleeps in an epoll set before each read, as a program that waits for more than one "
    "descriptor must: ropewalk makes the same calls.",
    (
        line("tcp, 64 B", "µs", "roundtrip", at_most(15), AGAINST_ALL, size=64, count=45_000, place="one"),
        line(
            "tcp, 16 KiB",
            "µs",
            "roundtrip",
            at_most(17.5),
            WITH_FLOORS,
            size=16384,
            count=45_000,
            place="one",
        ),
        line(
            "ipc, 64 B",
            "µs",
            "roundtrip",
            at_most(10),
            WITH_FLOORS,
            transport="ipc",
            size=64,
            count=45_000,
            place="one",
        ),
        line(
            "shm, 64 B",
            "µs",
            "roundtrip",
            at_most(10),
            (),
            transport="shm",
            size=64,
            count=45_000,
            place="one",
        ),
        line(
            "tcp, 64 B, one thread",
            "µs",
            "onethread",
            at_most(10),
            WITH_FLOORS,
            size=64,
            count=45_000,
            place="one",
        ),
    ),
)
