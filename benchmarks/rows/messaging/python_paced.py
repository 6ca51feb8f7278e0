"""Tables: how long messages are on their way in Python, at rates from one a second to a hundred thousand."""

from __future__ import annotations

from harness.messaging_ends import PLAYERS
from harness.messaging_pace import awaited, awaited_in_a_thread, blocking
from harness.programs import PERCENTILES, messages_at
from harness.table import Contest, Goal, Line, Row, Side, at_most, times_the_peer

RATES = (1, 10, 100, 1_000, 10_000, 20_000, 50_000, 100_000)
#: An awaited receive costs asyncio more than ten microseconds.
AWAITED = RATES[:-2]
#: Through shared memory: the rates, and at most so many microseconds at some. At 1,000/s each message finds the loop
#: asleep, below that the core too; at 100,000/s the next one comes before the loop would sleep.
AWAITED_NEAR_RATES = (100, 1_000, 10_000, 20_000, 50_000, 100_000)
AWAITED_NEAR = {1_000: at_most(25), 100_000: at_most(2)}
#: A thread that sends and one that receives share an interpreter.
INPROC = RATES[:-3]


def _lines(transport: str, rates: tuple[int, ...]) -> list[Line]:
    # Through shared memory there is no peer: it is to be no slower than pyzmq's own way between processes.
    against = "ipc" if transport == "shm" else transport
    lines = list[Line]()
    for rate in rates:
        ours, theirs = (
            Contest(
                blocking, f"{rate:,}/s by {way}", PLAYERS, transport=way, rate=rate, count=messages_at(rate)
            )
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


def _in_a_thread(rate: int) -> Contest:
    players = {"iceoryx2": ("iceoryx2",)}
    return Contest(awaited_in_a_thread, f"{rate:,}/s", players, rate=rate, count=messages_at(rate))


def _awaited(transport: str, rates: tuple[int, ...]) -> list[Line]:
    against = "ipc" if transport == "shm" else transport

    def contest(loop: str, rate: int, way: str) -> Contest:
        name = f"{rate:,}/s by {way} on {loop}"
        return Contest(
            awaited, name, PLAYERS, loop_of=loop, transport=way, rate=rate, count=messages_at(rate)
        )

    lines = list[Line]()
    for rate in rates:
        ours, theirs = contest("ropewalk", rate, transport), contest("asyncio", rate, against)
        for metric in ("p50", "p90", "p99"):
            goal = AWAITED_NEAR.get(rate) if (transport, metric) == ("shm", "p50") else None
            peers: dict[Side, Goal | None] = {theirs.by("pyzmq"): times_the_peer(1)}
            if transport == "shm":
                peers[contest("ropewalk", rate, "ipc").by("ropewalk")] = times_the_peer(1)
                peers[_in_a_thread(rate).by("iceoryx2")] = times_the_peer(1)
            lines.append(
                Line(f"{rate:,}/s, {metric}", "µs", ours, metric, goal, peers, at=rate, curve=metric)
            )
            if transport == "shm" and metric == "p50":
                stock = contest("asyncio", rate, transport)
                lines.append(Line(f"{rate:,}/s, {metric}, on asyncio's loop", "µs", stock, metric, goal))
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
        _awaited("tcp", AWAITED),
    ),
    Row(
        "python-paced-awaited-shm",
        "µs from PUSH to an awaited PULL by shm in Python, 64 B, at a rate",
        WHAT
        + "Where no loop is named, Ropewalk's receiver is on its own; pyzmq's is on asyncio's, by ipc. iceoryx2's "
        "loop awaits a thread that waits. " + PERCENTILES,
        _awaited("shm", AWAITED_NEAR_RATES),
    ),
)
