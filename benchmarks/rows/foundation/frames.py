"""Table: a value and an error through ten frames."""

from __future__ import annotations

from harness.programs import Foundation
from harness.table import Line, Row, times_better, times_the_peer

FRAMES = Foundation("frames")

ROW = Row(
    "frames",
    "A value and an error through ten frames",
    "Ten functions that are never inlined, each of which asks the one below and adds one. The error has a code "
    "and a message; making and dropping it are in the time, except in the line that says so.",
    (
        Line(
            "value through ten frames",
            "ns",
            FRAMES,
            "value",
            None,
            dict.fromkeys(("two fields by hand", "std::expected, two fields", "exception")),
        ),
        Line(
            "error made and passed through ten frames",
            "ns",
            FRAMES,
            "error",
            None,
            {
                "std::expected, two fields": times_the_peer(1.3),
                "std::expected, pointer": None,
                "two fields by hand": None,
                "exception": times_better(120),
            },
            headline=True,
        ),
        Line(
            "error at hand through ten frames",
            "ns",
            FRAMES,
            "error",
            None,
            {"std::expected, two fields": None},
            "ropewalk, error at hand",
        ),
    ),
)
