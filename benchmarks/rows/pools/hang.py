"""Table: a task that hangs in C code and holds the GIL."""

from __future__ import annotations

import time
from typing import Any

from harness import pools, workloads
from harness.measure import Size, percentile
from harness.pools import OURS, PLAYERS
from harness.table import Contest, Line, Row, at_most

PATIENCE = 10.0
"""Seconds after which something that has not ended is called a hang."""
LIMIT = 0.5
"""How long the task may be silent; to a peer, how long it may run."""
FOREVER = 60


def hanging(peer: str, repeats: int) -> dict[str, float]:
    """Hang the only worker in C with the GIL: seconds beyond the limit until its future knew, and until the next ran.

    Of ours, the error must have the stack. A peer has none to show.
    """
    contestant: Any = pools.ALL[peer](1, ("harness.workloads",))
    contestant.call(workloads.nothing)
    pool = contestant.pool.options(hang_timeout=LIMIT) if peer == OURS else contestant.pool
    told, ready = list[float](), list[float]()
    for _ in range(repeats):
        began = time.perf_counter()
        if peer == OURS:
            hung = pool.submit(workloads.sit_in_c, FOREVER)
        else:
            hung = pool.schedule(workloads.sit_in_c, args=(FOREVER,), timeout=LIMIT)
        error = hung.exception(PATIENCE)
        told.append(time.perf_counter() - began - LIMIT)
        contestant.submit(workloads.nothing).result(PATIENCE)
        ready.append(time.perf_counter() - began - LIMIT)
        if not isinstance(error, TimeoutError):
            raise RuntimeError(f"a hung task ended with {error!r}")
        if peer == OURS and "sit_in_c" not in (getattr(error, "stack", None) or ""):
            raise RuntimeError(f"there is no stack of the hung task: {error!r}")
    contestant.close()
    return {
        "told": percentile(told, 0.5),
        "ready": percentile(ready, 0.5),
        "ready greatest": max(ready),
    }


HANGING = Contest(hanging, "hanging", PLAYERS, repeats=Size(6, 1))

ROW = Row(
    "hang",
    f"a hang in C holding the GIL, found after {LIMIT} s, 1 worker",
    "From submit, less the time after which a silent task counts as hung (pebble: its time limit). Ropewalk's future "
    "has the stack of the task; the worker is killed, and the next task runs in its replacement.",
    (
        Line("its future knows", "ms", HANGING, "told", at_most(100), {"pebble": None}, scale=1e3),
        Line("the next task has run", "ms", HANGING, "ready", at_most(100), {"pebble": None}, scale=1e3),
        Line("the next task has run, greatest of a round", "ms", HANGING, "ready greatest", scale=1e3),
    ),
)
