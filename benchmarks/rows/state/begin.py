"""Table: what does not depend on the size of the state."""

from __future__ import annotations

import time
from typing import Any

from harness.clock import median, per_statement
from harness.measure import Size
from harness.states import NEEDS, OURS, names
from harness.table import Contest, Goal, Line, Row, Side, at_most, times_the_peer


def begin(peer: str, items: int, calls: int, undone: int, versions: int) -> dict[str, float]:
    """Nanoseconds of a transaction that does nothing, by `run` and in a block; of a snapshot; of an undo."""
    from harness.bank import bank, bump, nothing

    assert peer == OURS
    store = bank(items)
    name = names(items)[7]
    # The history is full, as that of a program soon is.
    for _ in range(versions):
        store.run(bump, name)

    def undo() -> float:
        for _ in range(undone):
            store.run(bump, name)
        before = store.snapshot().accounts[name].balance
        began = time.perf_counter_ns()
        for _ in range(undone):
            store.undo()
        took = time.perf_counter_ns() - began
        assert store.snapshot().accounts[name].balance == before - undone
        return took / undone

    given = {"store": store, "nothing": nothing}
    return {
        "run": per_statement("store.run(nothing)", given, calls),
        "block": per_statement("with store.transaction(): pass", given, calls // 5),
        "snapshot": per_statement("store.snapshot()", given, calls),
        "undo": median(undo),
    }


SIZES: dict[str, Any] = {"calls": Size(50_000, 100), "undone": Size(40, 3), "versions": Size(1000, 5)}
FEW = Contest(begin, "50 items", {OURS: NEEDS}, items=50, **SIZES)
MANY = Contest(begin, "50,000 items", {OURS: NEEDS}, items=Size(50_000, 50), **SIZES)


def _lines(what: str, metric: str, goal: float | None) -> tuple[Line, ...]:
    own = None if goal is None else at_most(goal)
    same: dict[Side, Goal | None] = {FEW.by(OURS): times_the_peer(1.1)}
    return (
        Line(f"{what}, 50 items", "ns", FEW, metric, own),
        Line(f"{what}, 50,000 items", "ns", MANY, metric, own, same),
    )


ROW = Row(
    "begin",
    "begin, snapshot and undo",
    "The statement alone. `run` of a task that does nothing has the call of its function in it, and a transaction from "
    "its begin to its end; so has the block, beside the two calls of its context manager. The store keeps a thousand "
    "versions, and has had as many. Forty calls of `undo` take back what forty transactions have changed.",
    (
        *_lines("a task that does nothing", "run", 200),
        *_lines("a block that does nothing", "block", None),
        *_lines("a snapshot", "snapshot", 200),
        *_lines("an undo", "undo", 200),
    ),
)
