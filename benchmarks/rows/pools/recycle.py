"""Table: workers that are replaced under full load."""

from __future__ import annotations

import importlib
import multiprocessing
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from harness import workloads
from harness.measure import Size, percentile
from harness.pools import FORKSERVER, OURS, POOL
from harness.table import Contest, Line, Row, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS = 4
#: Seconds of processor time of each task.
TASK = 0.001
PATIENCE = 60.0


class Load:
    """A pool at full load for some time: how many tasks it did, how late they were, and how many failed."""

    def __init__(self, submit: Callable[[], Callable[[float], Any]], seconds: float) -> None:
        flying: deque[tuple[float, Callable[[float], Any]]] = deque()
        self.latencies: list[float] = []
        self.failed = 0
        began = time.perf_counter()
        while (now := time.perf_counter()) - began < seconds:
            while len(flying) < 2 * WORKERS:
                flying.append((time.perf_counter(), submit()))
            self._take(*flying.popleft())
        self.rate = len(self.latencies) / (now - began)
        while flying:
            self._take(*flying.popleft())

    def _take(self, since: float, result: Callable[[float], Any]) -> None:
        try:
            result(PATIENCE)
        except Exception:  # Whatever it is called: nobody asked the task to fail.
            self.failed += 1
        self.latencies.append(time.perf_counter() - since)


def _make(peer: str, most_tasks: int | None) -> tuple[Any, Callable[[], Callable[[float], Any]]]:
    """A pool whose workers have so many tasks, and what submits a task to it."""
    if peer == POOL:
        context = multiprocessing.get_context("fork")
        pool = importlib.import_module("multiprocessing.pool").Pool(
            WORKERS, maxtasksperchild=most_tasks, context=context
        )
        return pool, lambda: pool.apply_async(workloads.spin, (TASK,)).get
    if peer == FORKSERVER:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["concurrent.futures.process", "harness.workloads"])
        executor = importlib.import_module("concurrent.futures.process").ProcessPoolExecutor(
            WORKERS, mp_context=context, max_tasks_per_child=most_tasks
        )
        return executor, lambda: executor.submit(workloads.spin, TASK).result
    ours = importlib.import_module("ropewalk").Pool(
        WORKERS, kind="process", preload=("harness.workloads",), max_tasks=most_tasks
    )
    return ours, lambda: ours.submit(workloads.spin, TASK).result


def _end(pool: Any) -> None:
    if hasattr(pool, "shutdown"):
        pool.shutdown()
    else:
        pool.close()
        pool.join()


class Recycling:
    """Recycles one worker of ours after the other, or none, and counts the ready ones all the time."""

    def __init__(self, pool: Any, each: float | None) -> None:
        self.least = WORKERS
        self.asked = 0
        self._pool, self._each = pool, each
        self._over = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._recycle, self._look)]
        for thread in self._threads:
            thread.start()

    def _recycle(self) -> None:
        while not self._over.wait(self._each) and self._each is not None:
            oldest = min(
                worker.id for worker in self._pool.statistics().workers_detail if worker.state != "leaving"
            )
            self.asked += self._pool.recycle(oldest)

    def _look(self) -> None:
        # Often enough to see a gap of a start, and seldom enough not to be the load itself.
        while not self._over.wait(0.0005):
            self.least = min(self.least, self._pool.statistics().ready)

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def _figures(plain: Load, recycled: Load) -> dict[str, float]:
    return {
        "p99": percentile(recycled.latencies, 0.99),
        "p99 without": percentile(plain.latencies, 0.99),
        "p99 ratio": percentile(recycled.latencies, 0.99) / percentile(plain.latencies, 0.99),
        "greatest": max(recycled.latencies),
        "share": recycled.rate / plain.rate,
        "rate": recycled.rate,
        "failed": plain.failed + recycled.failed,
    }


def each_second(peer: str, seconds: float, each: float) -> dict[str, float]:
    """One worker is replaced in `each` seconds: the same load without that and with it.

    A peer counts tasks, so its limit is as many as it does in the time in which each of its workers is to be replaced.
    """
    pool, submit = _make(peer, None)
    Load(submit, seconds / 10)
    if peer == OURS:
        looking = Recycling(pool, None)
        plain = Load(submit, seconds)
        looking.end()
        recycling = Recycling(pool, each)
        recycled = Load(submit, seconds)
        recycling.end()
        _end(pool)
        return {**_figures(plain, recycled), "least": recycling.least, "replaced": recycling.asked}
    plain = Load(submit, seconds)
    _end(pool)
    pool, submit = _make(peer, max(1, int(plain.rate * each)))
    Load(submit, seconds / 10)
    recycled = Load(submit, seconds)
    _end(pool)
    return _figures(plain, recycled)


def each_tasks(peer: str, seconds: float, tasks: int) -> dict[str, float]:
    """Each worker is replaced after so many tasks: the same load without that and with it."""
    loads = []
    for most in (None, tasks):
        pool, submit = _make(peer, most)
        Load(submit, seconds / 10)
        loads.append(Load(submit, seconds))
        _end(pool)
    return _figures(*loads)


PLAYERS = {OURS: ("ropewalk",), FORKSERVER: (), POOL: ()}
SECOND = Contest(each_second, "one each second", PLAYERS, seconds=Size(10.0, 0.5), each=Size(1.0, 0.1))
TASKS = Contest(each_tasks, "each 25 tasks", PLAYERS, seconds=Size(4.0, 0.3), tasks=25)
PEERS = dict.fromkeys((FORKSERVER, POOL))

ROW = Row(
    "recycle",
    "workers that are replaced under full load",
    f"{WORKERS} workers, tasks of {TASK * 1e3:g} ms of processor time, {2 * WORKERS} of them in flight. Each round "
    "compares a pool with itself: the same load without replacements and with them. One each second: `Pool.recycle` of "
    "the oldest worker; peers count tasks, so they have a limit that comes to the same. Ready workers are those of "
    "`statistics()`, read each half millisecond, also in the load without replacements. loky replaces workers for "
    "their memory alone: see `leak`.",
    (
        Line("one each second: ready workers, at the least", "workers", SECOND, "least", at_least(WORKERS)),
        Line("one each second: p99", "× without", SECOND, "p99 ratio", at_most(1.1), PEERS),
        Line(
            "one each second: tasks done",
            "of those without",
            SECOND,
            "share",
            at_least(0.99),
            PEERS,
            more_is_better=True,
        ),
        Line("one each second: slowest task", "ms", SECOND, "greatest", None, PEERS, scale=1e3),
        Line("one each second: failed tasks", "tasks", SECOND, "failed", at_most(0), PEERS),
        Line(
            "each 25 tasks: tasks done", "of those without", TASKS, "share", None, PEERS, more_is_better=True
        ),
        Line("each 25 tasks: p99", "× without", TASKS, "p99 ratio", None, PEERS),
        Line("each 25 tasks: failed tasks", "tasks", TASKS, "failed", at_most(0), PEERS),
    ),
)
