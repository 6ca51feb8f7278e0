"""Table: a task that leaks."""

from __future__ import annotations

import importlib
import multiprocessing
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import workloads
from harness.measure import Size
from harness.pools import FORKSERVER, OURS, POOL
from harness.table import Contest, Line, Row, at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

WORKERS = 2
#: What one worker may have before it is replaced, in bytes.
MOST = 100 << 20
#: Calls after which a peer that counts them has leaked as much.
CALLS = 96
#: Calls between two looks at the memory.
EACH = 50


def _private(pid: int) -> int:
    """The private memory of a process in bytes; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


def _start(peer: str) -> tuple[Any, Callable[[int], Iterable[int]], Callable[[], Iterable[int]]]:
    """A pool, what maps the leaking task over so many numbers, and the process ids of its workers."""
    if peer == POOL:
        context = multiprocessing.get_context("fork")
        pool = importlib.import_module("multiprocessing.pool").Pool(
            WORKERS, maxtasksperchild=CALLS, context=context
        )
        return (
            pool,
            lambda calls: pool.imap(workloads.leak, range(calls)),
            lambda: [process.pid for process in list(pool._pool)],
        )
    if peer == FORKSERVER:
        executor = importlib.import_module("concurrent.futures.process").ProcessPoolExecutor(
            WORKERS, mp_context=multiprocessing.get_context("forkserver"), max_tasks_per_child=CALLS
        )
    elif peer == "loky":
        # Once it has grown by 300 MB a worker of loky leaves by itself; it takes psutil to know.
        executor = importlib.import_module("loky").ProcessPoolExecutor(WORKERS)
    else:
        ours = importlib.import_module("ropewalk").Pool(WORKERS, kind="process", max_rss=MOST)
        return (
            ours,
            lambda calls: ours.map(workloads.leak, range(calls), chunksize=1),
            lambda: ours.statistics().worker_pids,
        )
    return executor, lambda calls: _windowed(executor, calls), lambda: list(executor._processes or ())


def _windowed(executor: Any, calls: int) -> Iterator[int]:
    """`map` of an executor that would take all inputs at once."""
    flying = []
    for number in range(calls):
        flying.append(executor.submit(workloads.leak, number))
        if len(flying) >= 16:
            yield flying.pop(0).result()
    for future in flying:
        yield future.result()


def leak(peer: str, calls: int) -> dict[str, float]:
    """So many calls that leak a megabyte each: the most memory that the workers had together, and what was lost."""
    pool, run, pids = _start(peer)
    greatest, seen, came = 0, set[int](), 0
    began = time.perf_counter()
    for number, answer in enumerate(run(calls)):
        came += answer == number
        if number % EACH == 0:
            alive = list(pids())
            seen.update(alive)
            greatest = max(greatest, sum(_private(pid) for pid in alive))
    seconds = time.perf_counter() - began
    if hasattr(pool, "shutdown"):
        pool.shutdown()
    else:
        pool.close()
        pool.join()
    return {"greatest": greatest, "lost": calls - came, "rate": calls / seconds, "workers": len(seen)}


LEAK = Contest(
    leak,
    players={OURS: ("ropewalk",), FORKSERVER: (), POOL: (), "loky": ("loky", "psutil")},
    timeout=900.0,
    calls=Size(50_000, 300),
)
PEERS = dict.fromkeys((FORKSERVER, POOL, "loky"))

ROW = Row(
    "leak",
    "a task that leaks 1 MB a call",
    f"{WORKERS} workers. Ours has max_rss={MOST >> 20} MB; the standard library's pools count, and replace a worker "
    f"after {CALLS} tasks; loky replaces one that has grown by 300 MB. The private memory of all workers together is "
    f"read every {EACH} calls.",
    (
        Line("most memory of the workers together", "MB", LEAK, "greatest", at_most(600), PEERS, scale=1e-6),
        Line("results lost", "tasks", LEAK, "lost", at_most(0), PEERS),
        Line("calls", "/s", LEAK, "rate", None, PEERS, more_is_better=True),
        Line("worker processes seen", "processes", LEAK, "workers", None, PEERS),
    ),
)
