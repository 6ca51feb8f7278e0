"""Tables: how long messages are on their way in Python, at rates from ten a second to a hundred thousand."""

from __future__ import annotations

from harness.measure import Size
from harness.messaging_ends import PLAYERS
from harness.messaging_pace import awaited, blocking
from harness.programs import PERCENTILES
from harness.table import Contest, Line, Row, times_the_peer

RATES = (10, 100, 1_000, 10_000, 20_000, 50_000, 100_000)
#: An awaited receive costs asyncio more than ten microseconds.
AWAITED = RATES[:-2]
#: A thread that sends and one that receives share an interpreter.
INPROC = RATES[:-3]


def _count(rate: int) -> Size:
    return Size(max(rate, 30), max(rate // 100, 10))


def _lines(transport: str, rates: tuple[int, ...]) -> list[Line]:
    # Through shared memory there is no peer: it is to be no slower than pyzmq's own way between processes.
    against = "ipc" if transport == "shm" else transport
    lines = list[Line]()
    for rate in rates:
        ours, theirs = (
            Contest(blocking, f"{rate:,}/s by {way}", PLAYERS, transport=way, rate=rate, count=_count(rate))
            for way in (transport, against)
        )
        lines += [
            Line(
                f"{rate:,}/s, {metric}",
                "µs",
                ours,
                metric,
                None,
                {theirs.by("pyzmq"): times_the_peer(1)},
                at=rate,
                curve=metric,
            )
            for metric in ("p50", "p90", "p99")
        ]
    return lines


def _awaited() -> list[Line]:
    lines = list[Line]()
    for rate in AWAITED:
        ours, theirs = (
            Contest(
                awaited,
                f"{rate:,}/s on {loop}",
                PLAYERS,
                loop_of=loop,
                transport="tcp",
                rate=rate,
                count=_count(rate),
            )
            for loop in ("ropewalk", "asyncio")
        )
        lines += [
            Line(
                f"{rate:,}/s, {metric}",
                "µs",
                ours,
                metric,
                None,
                {theirs.by("pyzmq"): times_the_peer(1)},
                at=rate,
                curve=metric,
            )
            for metric in ("p50", "p90", "p99")
        ]
    return lines


WHAT = (
    "The sender is a process of its own that sleeps until shortly before a message is due, and then spins; by inproc "
    "it is a thread that sleeps. The time runs from before its send until the receiver has the message. "
)

ROWS = (
    *(
        Row(
            f"python-paced-{transport}",
            f"µs from PUSH to PULL by {transport} in Python, 64 B, at a rate",
            WHAT + PERCENTILES,
            _lines(transport, INPROC if transport == "inproc" else RATES),
        )
        for transport in ("tcp", "ipc", "shm", "inproc")
    ),
    Row(
        "python-paced-awaited",
        "µs from PUSH to an awaited PULL by tcp in Python, 64 B, at a rate",
        WHAT + "Ropewalk's receiver is on its own loop, pyzmq's on asyncio's. " + PERCENTILES,
        _awaited(),
    ),
)
