"""Table: timers of an event loop."""

from __future__ import annotations

import time

from harness.clock import median
from harness.loops import PEERS, PLAYERS, new_loop
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better
from harness.workloads import nothing


def timers(loop_of: str, count: int) -> dict[str, float]:
    """Nanoseconds for a timer of ten seconds: scheduled; scheduled and cancelled at once."""
    loop = new_loop(loop_of)

    def settle() -> None:
        loop.call_soon(loop.stop)
        loop.run_forever()

    def schedule() -> float:
        began = time.perf_counter_ns()
        handles = [loop.call_later(10, nothing) for _ in range(count)]
        took = time.perf_counter_ns() - began
        for handle in handles:
            handle.cancel()
        settle()
        return took / count

    def cancel() -> float:
        began = time.perf_counter_ns()
        for _ in range(count):
            loop.call_later(10, nothing).cancel()
        took = time.perf_counter_ns() - began
        settle()
        return took / count

    figures = {"schedule": median(schedule), "cancel": median(cancel)}
    loop.close()
    return figures


TIMERS = Contest(timers, players=PLAYERS, as_argument="loop_of", count=Size(50_000, 500))

ROW = Row(
    "timers",
    "Timers, for each",
    "50,000 of ten seconds; `call_later` alone, and with `cancel`. The clean-up is not counted.",
    (
        Line("scheduled", "ns", TIMERS, "schedule", None, {**PEERS, "rloop": times_better(2.5)}),
        Line("scheduled and cancelled", "ns", TIMERS, "cancel", None, {**PEERS, "rloop": times_better(2)}),
    ),
)
