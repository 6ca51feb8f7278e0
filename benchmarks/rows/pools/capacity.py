"""Table: a hundred tasks at once, by threads in processes and by processes."""

from __future__ import annotations

import importlib
import time
from collections import deque
from typing import Any

from harness import workloads
from harness.measure import Size, percentile
from harness.pools import OURS, SPAWN
from harness.rendezvous import Rendezvous
from harness.table import Contest, Line, Row, at_least, at_most, times_better
from rows.pools.start import weight

SHAPED = "ropewalk 4 x 25"


def _make(peer: str, capacity: int) -> Any:
    if peer == SPAWN:
        import multiprocessing

        executor = importlib.import_module("concurrent.futures.process").ProcessPoolExecutor
        return executor(capacity, mp_context=multiprocessing.get_context("spawn"))
    pool = importlib.import_module("ropewalk").Pool
    if peer == SHAPED:
        workers = max(1, capacity // 25)
        return pool(workers, kind="process", threads=capacity // workers, preload=("harness.workloads",))
    return pool(capacity, kind="process", preload=("harness.workloads",))


def held(peer: str, capacity: int) -> dict[str, float]:
    """From asking for the pool until it holds so many tasks at once, and the memory of its processes then."""
    first = _make(peer, 1)
    first.submit(workloads.nothing).result()
    meeting = Rendezvous()
    began = time.perf_counter()
    pool = _make(peer, capacity)
    handles = [pool.submit(workloads.arrive, meeting.arrivals, meeting.gate) for _ in range(capacity)]
    pids = set(meeting.await_pids(capacity, 120.0))
    seconds = time.perf_counter() - began
    figures = {"ready": seconds, "memory": weight(pids)}
    meeting.open_gate()
    for handle in handles:
        handle.result()
    pool.shutdown()
    first.shutdown()
    meeting.close()
    return figures


def echo(peer: str, capacity: int, seconds: float) -> dict[str, float]:
    """Echoes at full load for so long: their number, those that were lost or failed, and how late they came."""
    pool = _make(peer, capacity)
    flying: deque[tuple[float, int, Any]] = deque()
    latencies: list[float] = []
    wrong = number = 0
    began = time.perf_counter()
    while (now := time.perf_counter()) - began < seconds or flying:
        while now - began < seconds and len(flying) < capacity:
            flying.append((time.perf_counter(), number, pool.submit(workloads.increment, number)))
            number += 1
        since, expected, future = flying.popleft()
        try:
            wrong += future.result(60) != expected + 1
        except Exception:  # Whatever it is called: no task was to fail.
            wrong += 1
        latencies.append(time.perf_counter() - since)
    took = time.perf_counter() - began
    pool.shutdown()
    return {"rate": number / took, "p99": percentile(latencies, 0.99), "wrong": float(wrong)}


_CHOSEN = {OURS: ("ropewalk",), SHAPED: ("ropewalk",), SPAWN: ()}
HELD = Contest(held, "held", _CHOSEN, rounds={SPAWN: 3}, capacity=Size(100, 4))
ECHO = Contest(echo, "echo", _CHOSEN, rounds=1, capacity=Size(100, 4), seconds=Size(30.0, 0.1))


def _echoes(what: str, ours: str) -> tuple[Line, Line, Line]:
    return (
        Line(f"echo, {what}: tasks", "1/s", ECHO, "rate", at_least(20_000), {}, ours),
        Line(f"echo, {what}: p99", "ms", ECHO, "p99", at_most(8), {}, ours, scale=1e3),
        Line(f"echo, {what}: lost or failed", "", ECHO, "wrong", at_most(0), {}, ours),
    )


ROW = Row(
    "capacity",
    "a hundred tasks at once",
    "Held: from asking for the pool until it holds a hundred tasks; the memory of the workers (PSS) then; a pool of "
    "one worker was used before. Echo: a hundred in flight for 30 s, from submit to the answer in hand.",
    (
        Line(
            "4 processes of 25 threads: ready",
            "s",
            HELD,
            "ready",
            at_most(0.25),
            {SPAWN: None, OURS: None},
            SHAPED,
        ),
        Line(
            "4 processes of 25 threads: memory",
            "MiB",
            HELD,
            "memory",
            None,
            {SPAWN: times_better(9), OURS: None},
            SHAPED,
        ),
        *_echoes("100 processes", OURS),
        *_echoes("4 processes of 25 threads", SHAPED),
    ),
)
