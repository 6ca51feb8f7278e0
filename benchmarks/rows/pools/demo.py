"""Table: the demonstration on real input, the standard library measured by ``examples/complexity.py``."""

from __future__ import annotations

import importlib
import time

from harness import pools
from harness.measure import BENCHMARKS, Size
from harness.pools import EXECUTOR, OURS, PLAYERS, POOL
from harness.table import Contest, Line, Row, times_better

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
    contestant_type = pools.ALL[peer]
    contestant_type.load()
    complexity = importlib.import_module("complexity")
    measure, files = complexity.measure, complexity.stdlib_files()[::share]
    began = time.perf_counter()
    contestant = contestant_type(WORKERS, ("complexity",))
    contestant.call(measure, files[-1])
    started = time.perf_counter()
    found = contestant.map(measure, files, None if peer == OURS else 1)
    ended = time.perf_counter()
    contestant.close()
    return {"seconds": ended - began, "working": ended - started, "files": len(found)}


EXAMPLES = (str(BENCHMARKS.parent / "examples"),)
SHARE = Size(2, 100)
LOOP = Contest(loop, needs=("rich",), rounds=3, paths=EXAMPLES, share=SHARE).by("plain loop")
POOLED = Contest(pooled, players=PLAYERS, rounds=3, paths=EXAMPLES, share=SHARE)
DOUBLED = {LOOP: times_better(1.9)}

ROW = Row(
    "demo",
    "the complexity of the standard library, 2 workers",
    "Wall time over every second file of the standard library, the largest first, reading them included, the "
    "function's module imported beforehand. The loop runs in a fresh process of its own.",
    (
        Line(
            "all of it, the pool's start with it",
            "s",
            POOLED,
            "seconds",
            None,
            {**DOUBLED, EXECUTOR: None, POOL: None},
        ),
        Line("the map alone, pool warm", "s", POOLED, "working", None, DOUBLED),
    ),
)
