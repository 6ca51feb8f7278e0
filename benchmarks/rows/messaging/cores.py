"""Table: round trips across two cores."""

from __future__ import annotations

from harness.programs import PEERS, line
from harness.table import Row, at_most

BOTH_WAYS = ("raw, spinning", *PEERS)
"""The floor plays both ways, spinning and asleep."""

ROW = Row(
    "cores",
    "REQ/REP round trips of 64 B across two cores",
    "Two threads, each pinned to a core of its own, with whatever threads its library starts. `raw, spinning` asks its "
    "socket again and again and never sleeps.",
    (
        line("tcp", "µs", "roundtrip", at_most(11), BOTH_WAYS, size=64, count=18_000, place="two"),
        line(
            "ipc",
            "µs",
            "roundtrip",
            at_most(6),
            BOTH_WAYS,
            transport="ipc",
            size=64,
            count=18_000,
            place="two",
        ),
        line("shm", "µs", "roundtrip", at_most(0.6), (), transport="shm", size=64, count=90_000, place="two"),
        line(
            "inproc",
            "µs",
            "roundtrip",
            at_most(0.6),
            ("libzmq",),
            transport="inproc",
            size=64,
            count=18_000,
            place="two",
        ),
    ),
)
