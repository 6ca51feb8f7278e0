"""Table: what it costs to keep records of tasks."""

from __future__ import annotations

import collections
import statistics
import time
from typing import Any

from harness import pools, workloads
from harness.clock import repeat
from harness.measure import Size
from harness.table import Contest, Line, Row, times_the_peer

WINDOW = 100
#: The records that a pool keeps by default, and none.
KEPT = {"with": 1000, "without": 0}


def recorded(seconds: float, slices: int) -> dict[str, float]:
    """Microseconds of a task alone and in a window, of two pools that differ in their records, turn by turn."""
    players = {
        name: pools.Ropewalk(2, ("harness.workloads",), records=records) for name, records in KEPT.items()
    }
    times: dict[str, list[float]] = {}
    for player in players.values():
        repeat(seconds / 4, lambda player=player: player.call(workloads.nothing))
    for _ in range(slices):
        for name, player in players.items():
            times.setdefault(f"hot {name}", []).append(_hot(player, seconds / slices))
            times.setdefault(f"window {name}", []).append(_window(player, seconds / slices))
    kept = len(players["with"].pool.records()), len(players["without"].pool.records())
    if not 0 < kept[0] <= KEPT["with"] or kept[1]:
        raise RuntimeError(f"the pools keep {kept} records")
    for player in players.values():
        player.close()
    return {name: statistics.median(values) * 1e6 for name, values in times.items()}


def _hot(player: pools.Ropewalk, seconds: float) -> float:
    """The median of tasks that are handed in one after another."""
    clock, taken = time.perf_counter, list[float]()
    until = clock() + seconds
    while (began := clock()) < until or not taken:
        player.call(workloads.nothing)
        taken.append(clock() - began)
    return statistics.median(taken)


def _window(player: pools.Ropewalk, seconds: float) -> float:
    """What each task takes while a hundred are in flight."""
    submit, clock, tasks = player.pool.submit, time.perf_counter, 0
    flight: collections.deque[Any] = collections.deque(submit(workloads.nothing) for _ in range(WINDOW))
    began = clock()
    until = began + seconds
    while clock() < until:
        for _ in range(WINDOW):
            flight.popleft().result()
            flight.append(submit(workloads.nothing))
        tasks += WINDOW
    taken = clock() - began
    while flight:
        flight.popleft().result()
    return taken / max(tasks, 1)


BOTH = Contest(recorded, needs=("ropewalk",), seconds=Size(1.0, 0.04), slices=Size(25, 2))


def _line(what: str, name: str) -> Line:
    without = {("ropewalk", f"{name} without"): times_the_peer(1.05)}
    return Line(f"{what}: records=1000 against records=0", "µs", BOTH, f"{name} with", None, without)


ROW = Row(
    "records",
    "keeping records of tasks, 2 workers",
    "Empty tasks of two pools that differ in `records` alone, turn by turn in one program, everything warm. The "
    "histograms are kept by both.",
    (_line("one task, hot", "hot"), _line("100 in flight, each task", "window")),
)
