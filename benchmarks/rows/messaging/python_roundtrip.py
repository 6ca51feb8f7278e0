"""Table: round trips in Python, each end in a process of its own."""

from __future__ import annotations

import statistics

from harness import messaging_ends as ends
from harness.measure import Size
from harness.messaging_ends import PLAYERS
from harness.table import Contest, Line, Row, at_most

#: Batches of round trips; their median counts, and the first is to warm up.
BATCHES = 9


def trip(peer: str, count: int) -> dict[str, float]:
    """Microseconds of a blocking round trip of 64 B."""
    ends.settle("one")
    address, batch = ends.free_address(), max(count // (BATCHES + 1), 1)
    with ends.beside(peer, "serve", address, "one", "asyncio", 64, batch * (BATCHES + 1)):
        trips = ends.ask(peer, address, 64, count)
        trips(batch)
        return {"us": statistics.median(trips(batch) for _ in range(BATCHES)) / batch * 1e6}


def trip_async(peer: str, loop_of: str, count: int) -> dict[str, float]:
    """Microseconds of a round trip of 64 B between two event loops."""
    ends.settle("one")
    address = ends.free_address()
    count -= count % 10
    with ends.beside(peer, "serve_async", address, "one", loop_of, 64, count):
        times = ends.driven(loop_of, ends.ask_async(peer, address, 64, count))
    return {"us": statistics.median(times[1:]) / (count // 10) * 1e6}


BLOCKING = Contest(trip, "blocking", {**PLAYERS, "raw": ()}, count=Size(30_000, 200))
STOCK = Contest(trip_async, "asyncio's loop", PLAYERS, loop_of="asyncio", count=Size(10_000, 200))
OUR_LOOP = Contest(trip_async, "ropewalk's loop", PLAYERS, loop_of="ropewalk", count=Size(10_000, 200))

ROW = Row(
    "python-roundtrip",
    "REQ/REP round trips of 64 B by tcp, in Python, on one core",
    "Two processes, both pinned to the same core; both ends alike, blocking or on the same kind of loop. `raw` is "
    "Python's own blocking sockets with a length before each message.",
    (
        Line("blocking", "µs", BLOCKING, "us", at_most(17.5), dict.fromkeys(("raw", "pyzmq", "pyomq"))),
        Line("asyncio, the stock loop", "µs", STOCK, "us", at_most(48), dict.fromkeys(("pyzmq", "pyomq"))),
        Line(
            "asyncio, our loop",
            "µs",
            OUR_LOOP,
            "us",
            at_most(22),
            dict.fromkeys((STOCK.by("pyzmq"), STOCK.by("pyomq"))),
        ),
    ),
)
