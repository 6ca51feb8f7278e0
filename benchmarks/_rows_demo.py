"""Row: the demonstration on real input, the standard library measured by ``examples/complexity.py``."""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING

import _peers
from _measure import HERE, Case, Options, Outcome
from _report import Figure, figure, times_better
from _row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EXAMPLES = HERE.parent / "examples"
EXECUTOR, POOL = "ProcessPoolExecutor fork", "multiprocessing.Pool"
PEERS = ("ropewalk", EXECUTOR, POOL)
WORKERS = 2


def loop(share: int) -> dict[str, float]:
    """A plain loop in one process, over every so-manieth file."""
    complexity = importlib.import_module("complexity")
    measure, files = complexity.measure, complexity.stdlib_files()[::share]
    began = time.perf_counter()
    found = [measure(file) for file in files]
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "working": seconds, "files": len(found)}


def pooled(peer: str, share: int) -> dict[str, float]:
    """A pool's map; peers get the chunk size 1, which suits files that come the largest first."""
    contestant_type = _peers.ALL[peer]
    contestant_type.load()
    complexity = importlib.import_module("complexity")
    measure, files = complexity.measure, complexity.stdlib_files()[::share]
    began = time.perf_counter()
    contestant = contestant_type(WORKERS, ("complexity",))
    contestant.call(measure, files[-1])
    started = time.perf_counter()
    found = contestant.map(measure, files, None if peer == "ropewalk" else 1)
    ended = time.perf_counter()
    contestant.close()
    return {"seconds": ended - began, "working": ended - started, "files": len(found)}


def _cases(options: Options) -> Sequence[Case]:
    share = options.size(2, 100)
    paths, rounds = (str(EXAMPLES),), min(3, options.rounds)
    cases = [Case("plain loop", "_rows_demo:loop", {"share": share}, ("rich",), rounds, paths=paths)]
    return cases + [
        Case(
            peer,
            "_rows_demo:pooled",
            {"peer": peer, "share": share},
            _peers.needs(peer),
            rounds,
            paths=paths,
        )
        for peer in PEERS
    ]


def _figures(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    whole, working = "all of it, the pool's start with it", "the map alone, pool warm"
    yield from (
        figure(
            outcomes, whole, "s", ("ropewalk", "seconds"), ("plain loop", "seconds"), goal=times_better(1.9)
        ),
        figure(
            outcomes, working, "s", ("ropewalk", "working"), ("plain loop", "working"), goal=times_better(1.9)
        ),
        *(figure(outcomes, whole, "s", ("ropewalk", "seconds"), (peer, "seconds")) for peer in PEERS[1:]),
    )


DEMO = Row(
    "demo",
    "the complexity of the standard library, 2 workers",
    "Wall time over every second file of the standard library, the largest first, reading them included, the "
    "function's module imported beforehand. The loop runs in a fresh process of its own.",
    _cases,
    _figures,
)
