"""Table: callbacks of an event loop."""

from __future__ import annotations

import time

from harness.clock import median
from harness.loops import PEERS, PLAYERS, new_loop
from harness.measure import Size
from harness.table import Contest, Line, Row, at_most, times_better
from harness.workloads import nothing


def calls(loop_of: str, count: int) -> dict[str, float]:
    """Nanoseconds for a callback that does nothing: many at once, and one that schedules the next."""
    loop = new_loop(loop_of)

    def burst() -> float:
        began = time.perf_counter_ns()
        for _ in range(count):
            loop.call_soon(nothing)
        loop.call_soon(loop.stop)
        loop.run_forever()
        return (time.perf_counter_ns() - began) / count

    left = 0

    def step() -> None:
        nonlocal left
        left -= 1
        if left:
            loop.call_soon(step)
        else:
            loop.stop()

    def chain() -> float:
        nonlocal left
        left = count
        began = time.perf_counter_ns()
        loop.call_soon(step)
        loop.run_forever()
        return (time.perf_counter_ns() - began) / count

    figures = {"burst": median(burst), "chain": median(chain)}
    loop.close()
    return figures


def floor_of_calls(count: int) -> dict[str, float]:
    """The same function called in a loop of Python's own: what is left if a loop cost nothing."""

    def direct() -> float:
        began = time.perf_counter_ns()
        for function in [nothing] * count:
            function()
        return (time.perf_counter_ns() - began) / count

    return {"burst": median(direct)}


CALLS = Contest(calls, players=PLAYERS, as_argument="loop_of", count=Size(50_000, 500))
FLOOR = Contest(floor_of_calls, count=Size(50_000, 500)).by("a plain call")

ROW = Row(
    "calls",
    "Callbacks that do nothing, for each",
    "50,000 `call_soon` and their run; and a callback that schedules the next. The loop is warm.",
    (
        Line(
            "scheduled and run",
            "ns",
            CALLS,
            "burst",
            at_most(90),
            {FLOOR: None, **PEERS, "uvloop": times_better(4.5), "rloop": times_better(2.5)},
        ),
        Line(
            "a chain",
            "ns",
            CALLS,
            "chain",
            at_most(130),
            {**PEERS, "uvloop": times_better(5), "rloop": times_better(1.7)},
        ),
    ),
)
