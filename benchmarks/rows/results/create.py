"""Table: making a success."""

from __future__ import annotations

from harness.clock import per_call
from harness.results import CALLS, FLOOR, INCLUDES, PLAYERS, kinds
from harness.table import Contest, Line, Row, times_better


def create(peer: str, calls: int) -> dict[str, float]:
    """``Ok(1)``"""
    ok, _ = kinds(peer)
    return per_call(lambda: ok(1), calls)


MADE = Contest(create, players=PLAYERS, calls=CALLS)

ROW = Row(
    "create",
    "making an Ok, ns",
    INCLUDES,
    (FLOOR, Line("Ok(1)", "ns", MADE, "ns", None, {"result": times_better(2), "returns": times_better(3.5)})),
)
