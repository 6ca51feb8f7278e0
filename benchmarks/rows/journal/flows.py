"""Table: steps of flows that are on the disk when they return."""

from __future__ import annotations

import shutil
import time

from harness.logs import LOG, OURS, RECORD, appender, folder
from harness.measure import Size
from harness.steps import DBOS, ON_SQLITE, PLAYERS, Runner
from harness.table import Contest, Line, Row, at_most, times_better


def steps(peer: str, runs: int, count: int) -> dict[str, float]:
    """Flows at once with so many steps each; the time of all, for each step."""
    where = folder()
    if peer == LOG:
        append = appender(LOG, where)
        began = time.perf_counter()
        for _ in range(count):
            append([RECORD])
        took = (time.perf_counter() - began) / count
    else:
        runner = Runner(peer, where)
        runner.steps(runs, 3)
        began = time.perf_counter()
        runner.steps(runs, count)
        took = (time.perf_counter() - began) / (runs * count)
        runner.close()
    shutil.rmtree(where)
    return {"each": took}


def mapped(peer: str, count: int) -> dict[str, float]:
    """A flow with maps of 64 steps; the time of all, for each step."""
    where = folder()
    runner = Runner(peer, where)
    runner.maps(2)
    began = time.perf_counter()
    runner.maps(count)
    took = (time.perf_counter() - began) / (64 * count)
    runner.close()
    shutil.rmtree(where)
    return {"each": took}


ONE = Contest(steps, "one flow", {**PLAYERS, LOG: ()}, runs=1, count=Size(200, 3))
MANY = Contest(steps, "64 flows at once", PLAYERS, runs=64, count=Size(30, 2))
MAPS = Contest(mapped, "maps of 64", {peer: PLAYERS[peer] for peer in (OURS, ON_SQLITE)}, count=Size(100, 2))

ROW = Row(
    "flows",
    "durable steps",
    "A step is a function that returns 64 bytes at once; when it returns, its result is on the disk. One flow runs its "
    "steps one after the other, 64 flows do so at once in one process, and a flow runs maps of 64 steps. The time is "
    "that of everything between the start of the flows and their results, for each step. SQLite under Ropewalk's own "
    "steps has a write-ahead log, `synchronous=FULL` and one exclusive connection; DBOS makes its own settings. The "
    "bare log only writes such a result and calls `fdatasync`.",
    (
        Line(
            "a step of one flow",
            "µs",
            ONE,
            "each",
            None,
            {LOG: None, ON_SQLITE: None, DBOS: None},
            scale=1e6,
        ),
        Line(
            "a step, 64 flows at once",
            "µs",
            MANY,
            "each",
            at_most(25),
            {ON_SQLITE: times_better(10), DBOS: times_better(80)},
            scale=1e6,
        ),
        Line(
            "a step of a map of 64", "µs", MAPS, "each", at_most(25), {ON_SQLITE: times_better(10)}, scale=1e6
        ),
    ),
)
