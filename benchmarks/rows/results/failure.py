"""Table: reporting a failure by a result instead of by an exception."""

from __future__ import annotations

from typing import Any

from harness.clock import per_call
from harness.results import CALLS, INCLUDES, PLAYERS, kinds
from harness.table import Contest, Line, Row


def failure(peer: str, calls: int) -> dict[str, float]:
    """A function fails, and its caller takes another value."""
    if peer == "exception":
        error = ValueError

        def fails() -> int:
            raise error

        def call() -> int:
            try:
                return fails()
            except ValueError:
                return 0

        return per_call(call, calls)
    _, err = kinds(peer)
    if peer == "returns":
        return per_call(lambda: err("no").value_or(0), calls)

    def refuses() -> Any:
        return err("no")

    return per_call(lambda: refuses().unwrap_or(0), calls)


MADE = Contest(failure, players=PLAYERS, calls=CALLS)

ROW = Row(
    "failure",
    "a function that fails, and a caller that goes on, ns",
    INCLUDES + " The exception is raised one frame below, and caught.",
    (
        Line(
            "fail, and go on with another value",
            "ns",
            MADE,
            "ns",
            None,
            dict.fromkeys(("exception", "result", "returns")),
        ),
    ),
)
