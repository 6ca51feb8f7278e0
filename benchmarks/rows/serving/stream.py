"""Table: a stream of a million items."""

from __future__ import annotations

import json

from harness.measure import Size
from harness.serving import load, server
from harness.table import Contest, Line, Row, at_least, at_most
from rows.serving.echo import LOAD


def stream(program: str, count: int) -> dict[str, float]:
    """Items each second, and what memory the server's process grows by."""
    with server("ropewalk", "http") as running:
        words = {"port": running.port, "path": "/v1/tools/numbers"}
        load(program, "stream", **words, body=json.dumps({"count": 1000}))
        before = running.memory()
        figures = load(program, "stream", **words, body=json.dumps({"count": count}))
        grown = running.memory() - before
    if figures["lines"] != count:
        raise RuntimeError(f"{figures['lines']} of {count} items came")
    return {"rate": figures["rate"], "grown": grown / 2**20}


OURS = Contest(
    stream, "", None, program=LOAD, count=Size(1_000_000, 2000), needs=("ropewalk", "pydantic"), timeout=240.0
)

ROW = Row(
    "stream",
    "A stream of a million items",
    "A generator of numbers, read as lines of JSON by one client; the start of the call is in the time.",
    (
        Line("items", "/s", OURS, "rate", at_least(300_000), more_is_better=True, headline=True),
        Line("memory grown", "MiB", OURS, "grown", at_most(16)),
    ),
)
