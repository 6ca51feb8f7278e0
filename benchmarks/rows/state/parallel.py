"""Table: tasks whose contracts are disjoint, by one call."""

from __future__ import annotations

import time
from dataclasses import make_dataclass
from typing import TYPE_CHECKING, Any

from harness.measure import Size
from harness.states import NEEDS
from harness.table import Contest, Line, Row, at_most, times_better

if TYPE_CHECKING:
    from collections.abc import Callable

ALL, TURN = "run_all", "run, one after the other"
PLAYERS = {ALL: NEEDS, TURN: NEEDS}


def parts(peer: str, fields: int, each: int, seconds: float, calls: int) -> dict[str, float]:
    """Seconds for each job, where so many tasks change a field of their own each, `each` times; and for all jobs."""
    from ropewalk.state import Store, paths, task

    names = [f"field{number}" for number in range(fields)]
    state: Any = make_dataclass("State", [(name, int) for name in names], frozen=True, slots=True)
    places: Any = paths(state)

    def adder(name: str) -> Callable[..., Any]:
        def add(draft: Any) -> None:
            if seconds:
                time.sleep(seconds)
            setattr(draft, name, getattr(draft, name) + 1)

        return task(writes=[getattr(places, name)], label=name)(add)

    jobs = [adder(name) for name in names] * each
    with Store(state(*[0] * fields)) as store:

        def once() -> float:
            began = time.perf_counter()
            if peer == ALL:
                store.run_all(jobs)
            else:
                for job in jobs:
                    store.run(job)
            return time.perf_counter() - began

        once()
        middle = sorted(once() for _ in range(calls))[calls // 2]
        assert {getattr(store.snapshot(), name) for name in names} == {store.version // fields}
    return {"job": middle / len(jobs), "call": middle}


WAITING = Contest(parts, "8 that wait", PLAYERS, fields=8, each=1, seconds=0.001, calls=Size(40, 3))
SMALL = Contest(parts, "8 small", PLAYERS, fields=8, each=1, seconds=0, calls=Size(400, 3))
ONE = Contest(parts, "one part", PLAYERS, fields=1, each=64, seconds=0, calls=Size(100, 3))

ROW = Row(
    "parallel",
    "disjoint tasks",
    "Tasks that add 1 to a field of their own each, in memory, by one `run_all`, and by `run` in turn: eight that "
    "each sleep for 1 ms before; eight that do nothing else, which shows what it costs to hand them over; 64 jobs "
    "of one task, which stay in the calling thread. The middle call, the first line whole and the others for each job.",
    (
        Line("8 that wait 1 ms", "ms", WAITING, "call", None, {TURN: times_better(2)}, ours=ALL, scale=1e3),
        Line("8 small, each", "µs", SMALL, "job", None, {TURN: None}, ours=ALL, scale=1e6),
        Line("64 of one task, each", "µs", ONE, "job", at_most(4), {TURN: None}, ours=ALL, scale=1e6),
    ),
)
