"""Table: interpreters of one process as workers."""

from __future__ import annotations

import time

from harness import pools, workloads
from harness.clock import repeat
from harness.measure import Size, percentile
from harness.pools import INTERPRETERS, OUR_INTERPRETERS, OURS, PLAYERS, SPAWN
from harness.rendezvous import Rendezvous
from harness.table import Contest, Line, Row, at_most, times_better

_CHOSEN = {name: PLAYERS[name] for name in (OUR_INTERPRETERS, INTERPRETERS, SPAWN, OURS)}


def ready(peer: str, workers: int) -> dict[str, float]:
    """From asking for the pool until so many workers each hold a task, after a pool of one worker has been used."""
    contestant = pools.ALL[peer]
    contestant.load()
    first = contestant(1)
    first.call(workloads.nothing)
    meeting = Rendezvous()
    began = time.perf_counter()
    pool = contestant(workers)
    handles = [pool.submit(workloads.arrive, meeting.arrivals, meeting.gate) for _ in range(workers)]
    # Each of them holds on to one task, so as many workers have come as tasks.
    meeting.await_pids(workers, 60.0)
    seconds = time.perf_counter() - began
    meeting.open_gate()
    for handle in handles:
        pool.take(handle)
    began = time.perf_counter()
    pool.close()
    closing = time.perf_counter() - began
    first.close()
    meeting.close()
    return {"ready": seconds, "closing": closing}


def roundtrip(peer: str, seconds: float) -> dict[str, float]:
    """Times of the empty task, one after another."""
    contestant = pools.ALL[peer](2)
    call, clock = contestant.call, time.perf_counter_ns
    repeat(seconds / 4, lambda: call(workloads.nothing))
    hot: list[int] = []
    until = clock() + int(seconds * 1e9)
    while (began := clock()) < until or len(hot) < 50:
        call(workloads.nothing)
        hot.append(clock() - began)
    contestant.close()
    return {"hot p50": percentile(hot, 0.5) / 1e3}


def pure(peer: str, tasks: int) -> dict[str, float]:
    """So many tasks of pure Python, some milliseconds each, by two workers."""
    pool = pools.ALL[peer](2)
    for handle in [pool.submit(workloads.count_primes, 100) for _ in range(4)]:
        pool.take(handle)
    began = time.perf_counter()
    for handle in [pool.submit(workloads.count_primes, 4000) for _ in range(tasks)]:
        pool.take(handle)
    seconds = time.perf_counter() - began
    pool.close()
    return {"seconds": seconds}


FOUR = Contest(ready, "4 workers", _CHOSEN, workers=Size(4, 2))
TEN = Contest(ready, "10 workers", _CHOSEN, workers=Size(10, 2))
HOT = Contest(roundtrip, "round trip", _CHOSEN, seconds=Size(0.4, 0.02))
PURE = Contest(pure, "pure Python", _CHOSEN, tasks=Size(200, 2))
GOALS = {SPAWN: times_better(6), INTERPRETERS: times_better(3), OURS: None}

ROW = Row(
    "interpreters",
    "interpreters of one process as workers",
    "Ready: from asking for the pool until so many tasks are held by as many workers; a pool of one worker was used "
    "before, so that what a program imports once is there on every side. Pure Python: counting primes, 2 workers. "
    "Needs Python 3.14.",
    (
        Line("4 workers ready", "ms", FOUR, "ready", None, GOALS, OUR_INTERPRETERS, scale=1e3),
        Line("10 workers ready", "ms", TEN, "ready", None, GOALS, OUR_INTERPRETERS, scale=1e3),
        Line(
            "10 workers closed",
            "ms",
            TEN,
            "closing",
            None,
            dict.fromkeys((SPAWN, INTERPRETERS, OURS)),
            OUR_INTERPRETERS,
            scale=1e3,
        ),
        Line(
            "one empty task and its answer, p50",
            "µs",
            HOT,
            "hot p50",
            at_most(25),
            dict.fromkeys((INTERPRETERS, OURS)),
            OUR_INTERPRETERS,
        ),
        Line(
            "pure Python, 2 workers",
            "s",
            PURE,
            "seconds",
            None,
            {OURS: times_better(1.0), INTERPRETERS: None, SPAWN: None},
            OUR_INTERPRETERS,
        ),
    ),
)
