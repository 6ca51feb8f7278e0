"""Rows: how fast workers start, and what a hundred of them weigh."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import _peers
import _workloads
from _measure import Case, Options, Outcome
from _rendezvous import Rendezvous
from _report import Figure, at_most, figure, times_better
from _row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FORK, FORKSERVER, SPAWN = (
    "ProcessPoolExecutor fork",
    "ProcessPoolExecutor forkserver",
    "ProcessPoolExecutor spawn",
)


def hundred(peer: str, workers: int, numpy: bool) -> dict[str, float]:
    """Start so many workers and let each run a task; what each of them and their helper processes weigh then.

    A helper that outlives a pool (zygote, forkserver) is warm: a pool of one worker ran before.
    """
    contestant = _peers.ALL[peer]
    contestant.load()
    preload = ("numpy", "_workloads") if numpy else ("_workloads",)
    first = contestant(1, preload)
    first.call(_workloads.numpy_version if numpy else _workloads.nothing)
    meeting = Rendezvous()
    began = time.perf_counter()
    pool = contestant(workers, preload)
    handles = [pool.submit(_workloads.arrive, meeting.bell, meeting.gate) for _ in range(workers)]
    meeting.await_pids(workers, 120.0)
    meeting.open_gate()
    pids = {pool.take(handle) for handle in handles}
    seconds = time.perf_counter() - began
    if len(pids) != workers:
        raise RuntimeError(f"{len(pids)} processes ran the tasks of {workers} workers")
    if numpy:
        # Imported where it was not preloaded; and then idle.
        meeting.close_gate()
        handles = [pool.submit(_workloads.hold, meeting.bell, meeting.gate, 8) for _ in range(workers)]
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
    contestant = _peers.ALL[peer]
    function = _workloads.numpy_version if numpy else _workloads.nothing
    began = time.perf_counter()
    contestant.load()
    imported = time.perf_counter()
    pool = contestant(2, ("numpy", "_workloads") if numpy else ("_workloads",))
    pool.call(function)
    ended = time.perf_counter()
    pool.close()
    return {"pool": ended - imported, "with import": ended - began, "closing": time.perf_counter() - ended}


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


def _start_cases(options: Options) -> Sequence[Case]:
    workers = options.size(100, 3)
    contestants = (("ropewalk", None), (FORK, None), (FORKSERVER, None), (SPAWN, 3), ("loky", 3))
    cases = [
        Case(
            name,
            "_rows_start:hundred",
            {"peer": name, "workers": workers, "numpy": False},
            _peers.needs(name),
            rounds,
        )
        for name, rounds in contestants
    ]
    for numpy, label in ((False, "bare"), (True, "NumPy")):
        cases += [
            Case(
                f"{name}, {label}",
                "_rows_start:cold",
                {"peer": name, "numpy": numpy},
                (*(("numpy",) if numpy else ()), *_peers.needs(name)),
            )
            for name, _ in contestants
        ]
    return cases


def _start_figures(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    hundred, ours = "100 workers, each has run a task", ("ropewalk", "seconds")
    yield from (
        figure(outcomes, hundred, "s", ours, goal=at_most(0.12)),
        figure(outcomes, hundred, "s", ours, (FORKSERVER, "seconds"), goal=times_better(10)),
        figure(outcomes, hundred, "s", ours, (SPAWN, "seconds"), goal=times_better(20)),
        figure(outcomes, hundred, "s", ours, ("loky", "seconds"), goal=times_better(40)),
        figure(outcomes, hundred, "s", ours, (FORK, "seconds")),
    )
    for label, bound in (("bare", 60), ("NumPy", 150)):
        ours = (f"ropewalk, {label}", "pool")
        what = f"cold first pool, {label}: from Pool() to the first result"
        yield figure(outcomes, what, "ms", ours, scale=1e3, goal=at_most(bound))
        for peer in (FORK, FORKSERVER, SPAWN, "loky"):
            yield figure(outcomes, what, "ms", ours, (f"{peer}, {label}", "pool"), scale=1e3)
        what = f"cold first pool, {label}: the pool's own import with it"
        for peer in (FORK, FORKSERVER, SPAWN, "loky"):
            yield figure(
                outcomes,
                what,
                "ms",
                (f"ropewalk, {label}", "with import"),
                (f"{peer}, {label}", "with import"),
                scale=1e3,
            )


def _memory_cases(options: Options) -> Sequence[Case]:
    workers = options.size(100, 3)
    return [
        Case(
            name,
            "_rows_start:hundred",
            {"peer": name, "workers": workers, "numpy": True},
            ("numpy", *_peers.needs(name)),
            min(3, options.rounds),
        )
        for name in ("ropewalk", FORKSERVER, SPAWN, "loky")
    ]


def _memory_figures(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    what = "PSS of 100 idle workers, NumPy imported"
    yield from (
        figure(outcomes, what, "MB", ("ropewalk", "workers"), goal=at_most(120)),
        figure(outcomes, what, "MB", ("ropewalk", "workers"), (SPAWN, "workers"), goal=times_better(12)),
    )
    for peer in (FORKSERVER, "loky"):
        yield figure(outcomes, what, "MB", ("ropewalk", "workers"), (peer, "workers"))
    for peer in (FORKSERVER, SPAWN, "loky"):
        yield figure(
            outcomes, "private memory of the workers", "MB", ("ropewalk", "private"), (peer, "private")
        )
        yield figure(
            outcomes, "PSS of the helper processes", "MB", ("ropewalk", "helpers"), (peer, "helpers")
        )
        yield figure(outcomes, "starting them", "s", ("ropewalk", "seconds"), (peer, "seconds"))


START = Row(
    "start",
    "starting workers",
    "Workers: from asking for the pool until 100 distinct processes have each run a task, the helper "
    "process (zygote, forkserver) already warm on both sides and preloading the tasks' module; spawn, "
    "loky: three rounds. Cold: a fresh program, 2 workers; the NumPy variant's program has imported "
    "NumPy before the clock starts.",
    _start_cases,
    _start_figures,
)
MEMORY = Row(
    "memory",
    "what 100 idle workers weigh",
    "Sums of Pss over /proc/PID/smaps_rollup of the workers after each ran two tasks and a pause; "
    "zygote, forkserver and trackers are stated apart. Each worker has imported NumPy, by preload where "
    "the contestant has one.",
    _memory_cases,
    _memory_figures,
)
