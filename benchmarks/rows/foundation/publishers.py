"""Table: two publishers on one topic."""

from __future__ import annotations

from harness.programs import Foundation
from harness.table import Line, Row, at_least


def _publishers(subscribers: int) -> Row:
    return Row(
        f"publishers-{subscribers}",
        f"Two publishers on one topic, {subscribers} subscriber{'s' if subscribers > 1 else ''}",
        "The rate of two threads together over that of one: the fastest of ten turns of each, in turn, from when the "
        "first begins until the last is done. “Handlers alone” shares nothing that is written: its gain is the "
        "machine's.",
        (
            Line(
                "gain of a second publisher",
                "×",
                Foundation(f"publishers-{subscribers}"),
                "gain",
                at_least(1.7),
                dict.fromkeys(("handlers alone", "arc-swap, handle", "eventpp, list", "mutexed")),
                "ropewalk, handle",
                more_is_better=True,
            ),
        ),
    )


ROWS = (_publishers(1), _publishers(10))
