"""Rows of messaging in Python, each end in a process of its own."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import _messaging_ends as ends
from _measure import Case, Options, Outcome
from _report import Figure, at_least, at_most, figure
from _row import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from _report import Goal

#: Modules without which a peer is left out.
_NEEDS = {"ropewalk": ("ropewalk",), "pyzmq": ("zmq",), "pyomq": ("pyomq",), "raw": ()}
#: Batches of round trips; their median counts, and the first is to warm up.
_BATCHES = 9


def trip(peer: str, count: int) -> dict[str, float]:
    """Microseconds of a blocking round trip of 64 B."""
    ends.settle("one")
    address, batch = ends.free_address(), max(count // (_BATCHES + 1), 1)
    with ends.beside(peer, "serve", address, "one", "asyncio", 64, batch * (_BATCHES + 1)):
        trips = ends.ask(peer, address, 64, count)
        trips(batch)
        return {"us": statistics.median(trips(batch) for _ in range(_BATCHES)) / batch * 1e6}


def trip_async(peer: str, loop_of: str, count: int) -> dict[str, float]:
    """Microseconds of a round trip of 64 B between two event loops."""
    ends.settle("one")
    address = ends.free_address()
    count -= count % 10
    with ends.beside(peer, "serve_async", address, "one", loop_of, 64, count):
        times = ends.driven(loop_of, ends.ask_async(peer, address, 64, count))
    return {"us": statistics.median(times[1:]) / (count // 10) * 1e6}


def flow(peer: str, way: str, size: int, count: int, loop_of: str = "asyncio") -> dict[str, float]:
    """Messages each second, at the receiver."""
    address = ends.free_address()
    if way == "asyncio":
        with ends.beside(peer, "push_async", address, "free", loop_of, size, count):
            return {"rate": ends.driven(loop_of, ends.pull_async(peer, address, size, count))}
    sender = {"recv": "push", "recv_many": "push_many", "uncopied": "push_uncopied"}[way]
    with ends.beside(peer, sender, address, "free", loop_of, size, count):
        if way == "recv_many":
            return {"rate": ends.pull_many(peer, address, size, count)}
        return {"rate": ends.pull(peer, address, size, count, copy=way == "recv")}


# --- round trips -------------------------------------------------------------


def _trip_cases(options: Options) -> Sequence[Case]:
    count = options.size(30_000, 200)
    made = [
        Case(f"blocking, {peer}", "_rows_messaging_python:trip", {"peer": peer, "count": count}, needs)
        for peer, needs in _NEEDS.items()
    ]
    count = options.size(10_000, 200)
    for loop_of, peers in (("asyncio", ("ropewalk", "pyzmq", "pyomq")), ("ropewalk", ("ropewalk",))):
        for peer in peers:
            arguments: dict[str, object] = {"peer": peer, "loop_of": loop_of, "count": count}
            needs = tuple({*_NEEDS[peer], *([] if loop_of == "asyncio" else [loop_of])})
            made.append(
                Case(f"{loop_of}'s loop, {peer}", "_rows_messaging_python:trip_async", arguments, needs)
            )
    return made


def _trip_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    stock = ("asyncio's loop, pyzmq", "asyncio's loop, pyomq")
    lines: tuple[tuple[str, str, Goal, tuple[str, ...]], ...] = (
        ("blocking", "blocking", at_most(17.5), ("blocking, raw", "blocking, pyzmq", "blocking, pyomq")),
        ("asyncio, the stock loop", "asyncio's loop", at_most(48), stock),
        ("asyncio, our loop", "ropewalk's loop", at_most(22), stock),
    )
    for what, group, goal, peers in lines:
        ours = (f"{group}, ropewalk", "us")
        yield figure(outcomes, what, "µs", ours, goal=goal)
        for peer in peers:
            yield figure(outcomes, what, "µs", ours, (peer, "us"))


TRIPS = Row(
    "python-roundtrip",
    "REQ/REP round trips of 64 B by tcp, in Python, on one core",
    "Two processes, both pinned to the same core; both ends alike, blocking or on the same kind of loop. `raw` is "
    "Python's own blocking sockets with a length before each message.",
    _trip_cases,
    _trip_figures,
)

# --- pipelines ---------------------------------------------------------------

#: What is measured, how it receives, bytes, messages, the goal in thousands, and who plays.
_FLOWS = (
    ("recv(), 64 B", "recv", 64, 1_500_000, 2500, ("ropewalk", "pyzmq", "pyomq")),
    ("recv_many(), 64 B", "recv_many", 64, 5_000_000, 6000, ("ropewalk",)),
    ("asyncio, 64 B", "asyncio", 64, 150_000, 700, ("ropewalk", "pyzmq", "pyomq")),
    ("zero-copy, 16 KiB", "uncopied", 16384, 80_000, 165, ("ropewalk", "pyzmq", "pyomq")),
)


def _flow_cases(options: Options) -> Sequence[Case]:
    made: list[Case] = []
    for what, way, size, count, _, peers in _FLOWS:
        for peer in peers:
            arguments: dict[str, object] = {
                "peer": peer,
                "way": way,
                "size": size,
                "count": options.size(count, count // 100),
            }
            made.append(
                Case(f"{what}, {peer}", "_rows_messaging_python:flow", arguments, _NEEDS[peer], timeout=60.0)
            )
    return made


def _flow_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    for what, _, _, _, goal, peers in _FLOWS:
        ours = (f"{what}, ropewalk", "rate")
        yield figure(outcomes, what, "k/s", ours, scale=1e-3, goal=at_least(goal), more_is_better=True)
        # Nobody else takes many in a call: their recv() is what there is to compare with.
        beside = "recv(), 64 B" if len(peers) == 1 else what
        for peer in ("pyzmq", "pyomq"):
            theirs = (f"{beside}, {peer}", "rate")
            yield figure(outcomes, what, "k/s", ours, theirs, scale=1e-3, more_is_better=True)


PUSH = Row(
    "python-push",
    "PUSH to PULL by tcp, in Python, messages each second",
    "Two processes where the system puts them, both ends alike: `recv()` with `send()`, `recv_many()` with "
    "`send_many()`, asyncio's stock loop on both, `copy=False` on both. Timed at the receiver; all must arrive.",
    _flow_cases,
    _flow_figures,
)

ROWS = (TRIPS, PUSH)
