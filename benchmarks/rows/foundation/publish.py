"""Table: one event to many subscribers."""

from __future__ import annotations

from harness.programs import Foundation
from harness.table import Line, Row, at_most


def _publish(subscribers: int, most: float) -> Row:
    contest = Foundation(f"publish-{subscribers}")
    many = f"ublish to {subscribers} subscriber{'s' if subscribers > 1 else ''}"
    return Row(
        f"publish-{subscribers}",
        f"P{many}",
        "One event, one thread; every handler stores two words and does nothing else. “Handlers alone” is a loop over "
        "the boxed handlers without a bus around it.",
        (
            Line(
                f"p{many}, through a handle",
                "ns",
                contest,
                "event",
                at_most(most),
                dict.fromkeys(("handlers alone", "arc-swap, handle", "eventpp, list")),
                "ropewalk, handle",
                headline=subscribers == 10,
            ),
            Line(
                f"p{many}, by the topic's name",
                "ns",
                contest,
                "event",
                None,
                dict.fromkeys(("arc-swap, name", "eventpp, name", "mutexed")),
                "ropewalk, name",
            ),
        ),
    )


ROWS = (_publish(1, 12), _publish(10, 25), _publish(100, 170))
