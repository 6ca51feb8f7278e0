"""Table: calls that a worker runs together."""

from __future__ import annotations

from harness.measure import Size
from harness.serving import WORKERS, load, server
from harness.table import Contest, Line, Row, times_better
from rows.serving.echo import CALLERS, LOAD


def batch(tool: str, program: str, seconds: float) -> dict[str, float]:
    """Calls each second."""
    with server("ropewalk", "http") as running:
        words = {"port": running.port, "path": f"/v1/tools/{tool}", "body": '{"item": 1}'}
        return load(program, "closed", **words, callers=CALLERS, seconds=seconds)


def _contest(name: str, tool: str) -> Contest:
    needs = ("ropewalk", "pydantic")
    return Contest(batch, name, None, tool=tool, program=LOAD, seconds=Size(4.0, 0.2), needs=needs)


ONE, MANY = _contest("alone", "single"), _contest("together", "together")

ROW = Row(
    "batch",
    "A tool that costs 2 ms, and 0.1 ms for each item",
    f"A hundred callers over HTTP, {WORKERS} workers: each call alone, and with a batch of 64 and a window of 1 ms. "
    "The cost is a sleep, so the workers wait for no core.",
    (
        Line(
            "calls",
            "/s",
            MANY,
            "rate",
            None,
            {ONE.by("ropewalk"): times_better(10)},
            more_is_better=True,
            headline=True,
        ),
        Line("p50", "ms", MANY, "p50", None, {ONE.by("ropewalk"): None}, scale=1e-3),
    ),
)
