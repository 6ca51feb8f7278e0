"""Table: what is asked of the allocator."""

from __future__ import annotations

from harness.programs import Foundation
from harness.table import Line, Row, at_most

COUNTED = Foundation("allocations", rounds=1)
HANDLE, NAME = "ropewalk, handle", "ropewalk, name"

ROW = Row(
    "allocations",
    "Allocations",
    "Blocks asked of the allocator for each of 100,000 tasks or events, after as many that are not counted; "
    "counted in a program of its own, so that the counter is in no time. One round: the number is exact.",
    (
        Line("blocks for a task", "", COUNTED, "blocks", at_most(1.05), {"rayon": None}, "ropewalk, fixed"),
        Line(
            "blocks for an event, through a handle",
            "",
            COUNTED,
            "blocks",
            at_most(0),
            {"arc-swap, handle": None},
            HANDLE,
        ),
        Line(
            "blocks for an event, by name", "", COUNTED, "blocks", at_most(0), {"arc-swap, name": None}, NAME
        ),
    ),
)
