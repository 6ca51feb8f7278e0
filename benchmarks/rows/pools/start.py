"""Table: how fast workers start."""

from __future__ import annotations

import os
import time
from pathlib import Path

from harness import pools, workloads
from harness.measure import Size
from harness.pools import EXECUTOR, FORKSERVER, PLAYERS, SPAWN
from harness.rendezvous import Rendezvous
from harness.table import Contest, Line, Row, at_most, times_better


def hundred(peer: str, workers: int, numpy: bool) -> dict[str, float]:
    """Start so many workers and let each run a task; what each of them and their helper processes weigh then.

    A helper that outlives a pool (zygote, forkserver) is warm: a pool of one worker ran before.
    """
    contestant = pools.ALL[peer]
    contestant.load()
    preload = ("numpy", "harness.workloads") if numpy else ("harness.workloads",)
    first = contestant(1, preload)
    first.call(workloads.numpy_version if numpy else workloads.nothing)
    meeting = Rendezvous()
    began = time.perf_counter()
    pool = contestant(workers, preload)
    handles = [pool.submit(workloads.arrive, meeting.arrivals, meeting.gate) for _ in range(workers)]
    meeting.await_pids(workers, 120.0)
    meeting.open_gate()
    pids = {pool.take(handle) for handle in handles}
    seconds = time.perf_counter() - began
    if len(pids) != workers:
        raise RuntimeError(f"{len(pids)} processes ran the tasks of {workers} workers")
    if numpy:
        # Imported where it was not preloaded; and then idle.
        meeting.close_gate()
        handles = [pool.submit(workloads.hold, meeting.arrivals, meeting.gate, 8) for _ in range(workers)]
        meeting.await_pids(workers, 120.0)
        meeting.open_gate()
        pids = {pool.take(handle) for handle in handles}
    time.sleep(0.3)
    helpers = _descendants(os.getpid()) - pids
    figures = {
        "seconds": seconds,
        "workers": sum(_kib(pid, "Pss") for pid in pids) / 1024,
        "private": sum(_kib(pid, "Private_Clean") + _kib(pid, "Private_Dirty") for pid in pids) / 1024,
        "helpers": sum(_kib(pid, "Pss") for pid in helpers) / 1024,
    }
    pool.close()
    first.close()
    meeting.close()
    return figures


def cold(peer: str, numpy: bool) -> dict[str, float]:
    """The first pool of a program: from asking for it to its first result, with and without importing it."""
    if numpy:
        import numpy as _  # noqa: F401  # the user's program has it, whichever pool it takes
    contestant = pools.ALL[peer]
    function = workloads.numpy_version if numpy else workloads.nothing
    began = time.perf_counter()
    contestant.load()
    imported = time.perf_counter()
    pool = contestant(2, ("numpy", "harness.workloads") if numpy else ("harness.workloads",))
    pool.call(function)
    ended = time.perf_counter()
    pool.close()
    return {"pool": ended - imported, "with import": ended - began, "closing": time.perf_counter() - ended}


def weight(pids: set[int]) -> float:
    """The memory of processes in MiB: each page that several share is divided among them."""
    return sum(_kib(pid, "Pss") for pid in pids) / 1024


def _kib(pid: int, entry: str) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith(entry + ":"))


def _descendants(root: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            parents[int(entry.name)] = int(status.rpartition(")")[2].split()[1])
    found, fresh = set[int](), {root}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh}
        found |= fresh
    return found


#: Peers that take seconds to start a hundred workers play three rounds.
HUNDRED = Contest(hundred, players=PLAYERS, rounds={SPAWN: 3, "loky": 3}, workers=Size(100, 3), numpy=False)
BARE = Contest(cold, "bare", PLAYERS, numpy=False)
NUMPY = Contest(cold, "NumPy", PLAYERS, needs=("numpy",), numpy=True)
PEERS = dict.fromkeys((EXECUTOR, FORKSERVER, SPAWN, "loky"))


def _cold(what: str, contest: Contest, bound: float) -> tuple[Line, Line]:
    named = f"cold first pool, {what}"
    return (
        Line(
            f"{named}: from Pool() to the first result",
            "ms",
            contest,
            "pool",
            at_most(bound),
            PEERS,
            scale=1e3,
        ),
        Line(f"{named}: the pool's own import with it", "ms", contest, "with import", None, PEERS, scale=1e3),
    )


ROW = Row(
    "start",
    "starting workers",
    "Workers: from asking for the pool until 100 distinct processes have each run a task, the helper "
    "process (zygote, forkserver) already warm on both sides and preloading the tasks' module; spawn, "
    "loky: three rounds. Cold: a fresh program, 2 workers; the NumPy variant's program has imported "
    "NumPy before the clock starts.",
    (
        Line(
            "100 workers, each has run a task",
            "s",
            HUNDRED,
            "seconds",
            at_most(0.12),
            {
                FORKSERVER: times_better(10),
                SPAWN: times_better(20),
                "loky": times_better(40),
                EXECUTOR: None,
            },
        ),
        *_cold("bare", BARE, 60),
        *_cold("NumPy", NUMPY, 150),
    ),
)
