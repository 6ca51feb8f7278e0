"""Table: four steps, one after another."""

from __future__ import annotations

from typing import Any

from harness.clock import per_call
from harness.results import CALLS, FLOOR, INCLUDES, PLAYERS, kinds
from harness.table import Contest, Line, Row, times_better


def chain(peer: str, calls: int) -> dict[str, float]:
    """``Ok(1).map(f).and_then(g).map(f).unwrap_or(0)``, in each package's own names."""
    ok, _ = kinds(peer)

    def more(number: int) -> int:
        return number + 1

    def wrap(number: int) -> Any:
        return ok(number)

    if peer == "returns":
        return per_call(lambda: ok(1).map(more).bind(wrap).map(more).value_or(0), calls)
    return per_call(lambda: ok(1).map(more).and_then(wrap).map(more).unwrap_or(0), calls)


MADE = Contest(chain, players=PLAYERS, calls=CALLS)

ROW = Row(
    "chain",
    "make, map, and_then, map, unwrap_or, ns",
    INCLUDES + " The three functions are Python's and in the time: the same for all.",
    (
        FLOOR,
        Line(
            "a chain of four",
            "ns",
            MADE,
            "ns",
            None,
            {"result": times_better(2), "returns": times_better(3.5)},
        ),
    ),
)
