"""Row: functions of ``__main__``, as scripts and notebooks have them, beside functions that can be imported."""

from __future__ import annotations

import collections
import sys
import time
from typing import TYPE_CHECKING, Any

import _peers
import _workloads
from _measure import Case, Options, Outcome
from _report import Figure, at_least, figure, times_better
from _row import Row
from _rows_tasks import EXECUTOR, WINDOW, _rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_SOURCE = """
rate = 1

def nothing():
    pass

def increment(number):
    return number + rate
"""
_HOMES = ("importable", "__main__")


def _function(home: str, name: str) -> Callable[..., Any]:
    if home == "importable":
        found: Callable[..., Any] = getattr(_workloads, name)
        return found
    main = vars(sys.modules["__main__"])
    exec(_SOURCE, main)
    made: Callable[..., Any] = main[name]
    return made


def submissions(peer: str, home: str, seconds: float) -> dict[str, float]:
    """Tasks a second with a hundred in flight."""
    nothing = _function(home, "nothing")
    contestant = _peers.ALL[peer](2, ("_workloads",))
    submit, take = contestant.submit, contestant.take

    def turn(tasks: int) -> None:
        flight: collections.deque[Any] = collections.deque()
        for _ in range(tasks):
            if len(flight) == WINDOW:
                take(flight.popleft())
            flight.append(submit(nothing))
        while flight:
            take(flight.popleft())

    rate = _rate(turn, seconds)
    contestant.close()
    return {"rate": rate}


def maps(peer: str, home: str, inputs: int, chunksize: int | None) -> dict[str, float]:
    """Inputs a second of a map, after one turn to warm up."""
    increment = _function(home, "increment")
    contestant = _peers.ALL[peer](2, ("_workloads",))
    contestant.map(increment, range(min(inputs, 20_000)), chunksize)
    began = time.perf_counter()
    results = contestant.map(increment, range(inputs), chunksize)
    seconds = time.perf_counter() - began
    if len(results) != inputs or results[-1] != inputs:
        raise RuntimeError("the map's results are wrong")
    contestant.close()
    return {"rate": inputs / seconds}


def _cases(options: Options) -> Sequence[Case]:
    inputs, seconds = options.size(500_000, 4_000), 0.02 if options.quick else 0.5
    cases = []
    for peer, chunksize in (("ropewalk", None), (EXECUTOR, 8192)):
        for home in _HOMES:
            arguments: dict[str, object] = {"peer": peer, "home": home}
            needs = _peers.needs(peer)
            label = f"{peer}, {home}"
            cases.append(
                Case(
                    f"{label}, submit",
                    "_rows_functions:submissions",
                    {**arguments, "seconds": seconds},
                    needs,
                )
            )
            more = {**arguments, "inputs": inputs, "chunksize": chunksize}
            cases.append(Case(f"{label}, map", "_rows_functions:maps", more, needs))
    return cases


def _figures(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    def against(what: str, unit: str, ours: str, theirs: str, **goal: Any) -> Figure:
        return figure(outcomes, what, unit, (ours, "rate"), (theirs, "rate"), more_is_better=True, **goal)

    for how, unit in (("submit", "tasks/s"), ("map", "inputs/s")):
        for home in _HOMES:
            goal = {"goal": times_better(20)} if how == "submit" else {}
            ours, theirs = f"ropewalk, {home}, {how}", f"{EXECUTOR}, {home}, {how}"
            yield against(f"{how}, {home}", unit, ours, theirs, **goal)
        ours, theirs = f"ropewalk, __main__, {how}", f"ropewalk, importable, {how}"
        yield against(f"{how}, __main__ against importable", unit, ours, theirs, goal=times_better(0.95))
    ours = ("ropewalk, __main__, submit", "rate")
    goal = at_least(200_000)
    yield figure(outcomes, "submit, __main__", "tasks/s", ours, None, more_is_better=True, goal=goal)


FUNCTIONS = Row(
    "functions",
    "functions of __main__ and functions that can be imported, 2 workers",
    "Submit: a hundred empty tasks in flight. Map: 500,000 tiny inputs, the executor with chunksize 8192, Ropewalk "
    "with none. Every other row measures functions that can be imported.",
    _cases,
    _figures,
)
