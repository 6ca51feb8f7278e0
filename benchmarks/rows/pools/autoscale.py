"""Table: a pool that grows under a burst."""

from __future__ import annotations

import importlib
import multiprocessing
import time
from typing import Any

from harness import workloads
from harness.measure import Size
from harness.pools import FORKSERVER, OURS
from harness.rendezvous import Rendezvous
from harness.table import Contest, Line, Row, at_most


def _start(peer: str, most: int) -> Any:
    if peer == FORKSERVER:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["concurrent.futures.process", "harness.workloads"])
        return importlib.import_module("concurrent.futures.process").ProcessPoolExecutor(
            most, mp_context=context
        )
    if peer == "loky":
        return importlib.import_module("loky").ProcessPoolExecutor(most)
    return importlib.import_module("ropewalk").Pool(
        kind="process", preload=("harness.workloads",), min_workers=1, max_workers=most
    )


def burst(peer: str, most: int) -> dict[str, float]:
    """From one worker to `most` of them: the time from the first task of a burst until so many run at once."""
    pool, meeting = _start(peer, most), Rendezvous()
    pool.submit(workloads.nothing).result()
    began = time.perf_counter()
    futures = [pool.submit(workloads.arrive, meeting.arrivals, meeting.gate) for _ in range(4 * most)]
    meeting.await_pids(most)
    seconds = time.perf_counter() - began
    meeting.open_gate()
    pids = {future.result(60) for future in futures}
    pool.shutdown()
    meeting.close()
    return {"seconds": seconds, "workers": len(pids)}


BURST = Contest(burst, players={OURS: ("ropewalk",), FORKSERVER: (), "loky": ("loky",)}, most=Size(16, 4))

ROW = Row(
    "autoscale",
    "a burst for a pool that follows its load",
    "From one worker, which has run a task, to 16: from the first of 64 submissions until 16 processes run a task "
    "at the same time. The standard library's executor starts a worker for each submission that finds none at rest, "
    "and keeps it for ever; loky starts all of them when it is first used.",
    (
        Line(
            "16 workers run",
            "ms",
            BURST,
            "seconds",
            at_most(50),
            dict.fromkeys((FORKSERVER, "loky")),
            scale=1e3,
        ),
    ),
)
