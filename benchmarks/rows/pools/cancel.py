"""Table: ending a running task, by cancelling it and by its time limit."""

from __future__ import annotations

import time
from concurrent.futures import CancelledError
from typing import Any

from harness import names, pools, workloads
from harness.measure import Size, percentile
from harness.pools import OURS, PLAYERS
from harness.rendezvous import Rendezvous
from harness.table import Contest, Line, Row, at_most

PATIENCE = 5.0
"""Seconds after which something that has not ended is called a hang."""
LIMIT = 0.2
"""The time limit of the tasks that overrun theirs."""
FOREVER = 60.0


def cancelling(peer: str, repeats: int) -> dict[str, float]:
    """Cancel the running task of the only worker: milliseconds until the next task has run in its place."""
    contestant: Any = pools.ALL[peer](1, ("harness.workloads",))
    meeting = Rendezvous()
    contestant.call(workloads.nothing)
    times: dict[str, list[float]] = {"spinning": [], "sleeping": []}
    for kind, function in (
        ("spinning", workloads.spin_after_announcing),
        ("sleeping", workloads.sleep_after_announcing),
    ):
        for _ in range(repeats):
            running = contestant.submit(function, meeting.arrivals, FOREVER)
            meeting.await_pids(1)
            began = time.perf_counter()
            stopped = running.cancel(running=True) if peer == OURS else running.cancel()
            contestant.submit(workloads.nothing).result(PATIENCE)
            times[kind].append(time.perf_counter() - began)
            try:
                running.result(PATIENCE)
                stopped = False
            except CancelledError:
                pass
            if not stopped:
                raise RuntimeError("a running task was not cancelled")
    contestant.close()
    meeting.close()
    return {kind: percentile(values, 0.5) for kind, values in times.items()} | {
        f"{kind} greatest": max(values) for kind, values in times.items()
    }


def limits(peer: str, repeats: int) -> dict[str, float]:
    """Tasks that overrun their limit: how late they were said to have."""
    contestant: Any = pools.ALL[peer](1, ("harness.workloads",))
    contestant.call(workloads.nothing)
    times: dict[str, list[float]] = {"spinning": [], "sleeping": []}
    pool = names.limited(contestant.pool, LIMIT) if peer == OURS else contestant.pool
    for kind, function in (("spinning", workloads.spin), ("sleeping", workloads.sleep)):
        for _ in range(repeats):
            began = time.perf_counter()
            if peer == OURS:
                late = pool.submit(function, FOREVER)
            else:
                late = pool.schedule(function, args=(FOREVER,), timeout=LIMIT)
            error = late.exception(PATIENCE)
            times[kind].append(time.perf_counter() - began - LIMIT)
            if not isinstance(error, TimeoutError):
                raise RuntimeError(f"an overrun task ended with {error!r}")
            contestant.call(workloads.nothing)
    contestant.close()
    return {kind: percentile(values, 0.5) for kind, values in times.items()} | {
        f"{kind} greatest": max(values) for kind, values in times.items()
    }


CANCELLED = Contest(cancelling, "cancelling", PLAYERS, repeats=Size(10, 1))
LIMITED = Contest(limits, "limits", PLAYERS, repeats=Size(4, 1))


def _lines(what: str, contest: Contest, kind: str, bound: float) -> tuple[Line, Line]:
    named = f"{what} ({kind} task)"
    return (
        Line(named, "ms", contest, kind, at_most(bound), {"pebble": None}, scale=1e3),
        Line(f"{named}, greatest of a round", "ms", contest, f"{kind} greatest", scale=1e3),
    )


ROW = Row(
    "cancel",
    "ending a running task, 1 worker",
    "Cancel: from the call until another task has run in the freed slot. Limit: from submit until the "
    "future says TimeoutError, less the limit; no other task waits.",
    (
        *_lines("cancel, the next task has run", CANCELLED, "spinning", 5),
        *_lines("cancel, the next task has run", CANCELLED, "sleeping", 5),
        *_lines(f"a limit of {LIMIT} s, exceeded by", LIMITED, "spinning", 10),
        *_lines(f"a limit of {LIMIT} s, exceeded by", LIMITED, "sleeping", 10),
    ),
)
