"""Table: functions of ``__main__``, as scripts and notebooks have them, beside functions that can be imported."""

from __future__ import annotations

import collections
import sys
import time
from typing import TYPE_CHECKING, Any

from harness import pools, workloads
from harness.clock import rate
from harness.measure import Size
from harness.pools import EXECUTOR, OURS, PLAYERS
from harness.table import Contest, Line, Row, at_least, times_better

if TYPE_CHECKING:
    from collections.abc import Callable

_SOURCE = """
rate = 1

def nothing():
    pass

def increment(number):
    return number + rate
"""
WINDOW = 100


def _function(home: str, name: str) -> Callable[..., Any]:
    if home == "importable":
        found: Callable[..., Any] = getattr(workloads, name)
        return found
    main = vars(sys.modules["__main__"])
    exec(_SOURCE, main)
    made: Callable[..., Any] = main[name]
    return made


def submissions(peer: str, home: str, seconds: float) -> dict[str, float]:
    """Tasks a second with a hundred in flight."""
    nothing = _function(home, "nothing")
    contestant = pools.ALL[peer](2, ("harness.workloads",))
    submit, take = contestant.submit, contestant.take

    def turn(tasks: int) -> None:
        flight: collections.deque[Any] = collections.deque()
        for _ in range(tasks):
            if len(flight) == WINDOW:
                take(flight.popleft())
            flight.append(submit(nothing))
        while flight:
            take(flight.popleft())

    figures = {"rate": rate(turn, seconds, WINDOW)}
    contestant.close()
    return figures


def maps(peer: str, home: str, inputs: int) -> dict[str, float]:
    """Inputs a second of a map, after one turn to warm up; Ropewalk chooses its own chunks."""
    increment = _function(home, "increment")
    contestant = pools.ALL[peer](2, ("harness.workloads",))
    chunksize = None if peer == OURS else 8192
    contestant.map(increment, range(min(inputs, 20_000)), chunksize)
    began = time.perf_counter()
    results = contestant.map(increment, range(inputs), chunksize)
    seconds = time.perf_counter() - began
    if len(results) != inputs or results[-1] != inputs:
        raise RuntimeError("the map's results are wrong")
    contestant.close()
    return {"rate": inputs / seconds}


def _submit(home: str) -> Contest:
    return Contest(submissions, f"{home}, submit", PLAYERS, home=home, seconds=Size(0.5, 0.02))


def _map(home: str) -> Contest:
    return Contest(maps, f"{home}, map", PLAYERS, home=home, inputs=Size(500_000, 4_000))


def _line(what: str, unit: str, contest: Contest, *rest: Any) -> Line:
    return Line(what, unit, contest, "rate", *rest, more_is_better=True)


IMPORTED, IN_MAIN = "importable", "__main__"
#: A function of ``__main__`` may cost this little more than one that can be imported.
ALIKE = times_better(0.95)

ROW = Row(
    "functions",
    "functions of __main__ and functions that can be imported, 2 workers",
    "Submit: a hundred empty tasks in flight. Map: 500,000 tiny inputs, the executor with chunksize 8192, Ropewalk "
    "with none. Every other row measures functions that can be imported.",
    (
        _line("submit, importable", "tasks/s", _submit(IMPORTED), None, {EXECUTOR: times_better(20)}),
        _line(
            "submit, __main__",
            "tasks/s",
            _submit(IN_MAIN),
            at_least(200_000),
            {EXECUTOR: times_better(20), _submit(IMPORTED).by(OURS): ALIKE},
        ),
        _line("map, importable", "inputs/s", _map(IMPORTED), None, {EXECUTOR: None}),
        _line(
            "map, __main__",
            "inputs/s",
            _map(IN_MAIN),
            None,
            {EXECUTOR: None, _map(IMPORTED).by(OURS): ALIKE},
        ),
    ),
)
