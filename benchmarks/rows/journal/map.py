"""Table: what a journal costs a map, and a map whose inputs have all finished before."""

from __future__ import annotations

import os
import shutil
import time
from itertools import repeat
from typing import Any

from harness import workloads
from harness.logs import OURS, folder
from harness.measure import Size
from harness.table import Contest, Line, Row, at_most, times_the_peer

PLAIN = "map without a journal"
PLAYERS: dict[str, tuple[str, ...]] = {OURS: ("ropewalk",), PLAIN: ("ropewalk",)}


def mapped(peer: str, tasks: int, seconds: float) -> dict[str, float]:
    """Seconds of a map whose tasks burn so much time each, from the call to the last result, for each input."""
    import ropewalk

    where = folder()
    journal: dict[str, Any] = {"journal": os.path.join(where, "run.wal")} if peer == OURS else {}
    with ropewalk.Pool(2) as pool:
        for _ in pool.map(workloads.spin, repeat(seconds, tasks // 8 + 1)):
            pass
        began = time.perf_counter()
        # The inputs differ, as those of a program do.
        inputs = (seconds + number * 1e-12 for number in range(tasks))
        count = sum(1 for _ in pool.map(workloads.spin, inputs, **journal))
        took = time.perf_counter() - began
    shutil.rmtree(where)
    assert count == tasks
    return {"each": took / tasks}


def again(peer: str, inputs: int) -> dict[str, float]:
    """Seconds of a map whose results are all in its journal, from the call to the last result."""
    import ropewalk

    assert peer == OURS
    where = folder()
    path = os.path.join(where, "run.wal")
    with ropewalk.Pool(2) as pool:
        assert sum(1 for _ in pool.map(workloads.increment, range(inputs), journal=path)) == inputs
        began = time.perf_counter()
        total = sum(pool.map(workloads.increment, range(inputs), journal=path))
        took = time.perf_counter() - began
    shutil.rmtree(where)
    assert total == inputs * (inputs + 1) // 2
    return {"whole": took}


MAP = Contest(mapped, "tasks of 1 ms", PLAYERS, tasks=Size(5000, 20), seconds=Size(1e-3, 1e-4))
AGAIN = Contest(again, "a million finished inputs", {OURS: PLAYERS[OURS]}, inputs=Size(1_000_000, 100))

ROW = Row(
    "map",
    "a map with a journal",
    "Two worker processes run tasks that burn a millisecond each; a result is yielded when it is on the disk. The time "
    "is that of the whole map, for each input. Then a map over a million inputs whose results are all in the journal: "
    "from the call, which opens the file and checks every record, to the last result as an object.",
    (
        Line("an input of 1 ms", "µs", MAP, "each", None, {PLAIN: times_the_peer(1.05)}, scale=1e6),
        Line("a million finished inputs", "s", AGAIN, "whole", at_most(1)),
    ),
)
