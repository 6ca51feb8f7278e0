"""Table: pipelines under CURVE."""

from __future__ import annotations

from harness.programs import line
from harness.table import Row, at_least

WITH_CURVE = ("libzmq", "monocoque", "omq", "rzmq")

ROW = Row(
    "curve",
    "PUSH to PULL by tcp under CURVE, messages each second",
    "As `push`; both ends have keys.",
    (
        line(
            "64 B",
            "M/s",
            "push",
            at_least(1.7),
            WITH_CURVE,
            size=64,
            count=1_000_000,
            place="free",
            curve="yes",
        ),
        line(
            "16 KiB",
            "k/s",
            "push",
            at_least(55),
            WITH_CURVE,
            size=16384,
            count=40_000,
            place="free",
            curve="yes",
        ),
    ),
)
