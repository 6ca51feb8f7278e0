"""Table: the sizes of errors and results."""

from __future__ import annotations

from harness.programs import Foundation
from harness.table import Line, Row, at_most

SIZES = Foundation("sizes", rounds=1)

ROW = Row(
    "sizes",
    "Sizes",
    "What the compiler says.",
    (
        Line("an error value", "bytes", SIZES, "error", at_most(16)),
        Line("a result, beside its payload", "bytes", SIZES, "beside", at_most(16)),
    ),
)
