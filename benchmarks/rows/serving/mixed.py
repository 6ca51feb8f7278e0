"""Table: quick calls beside matrix products, which have a pool of their own."""

from __future__ import annotations

import json

from harness.measure import Size
from harness.serving import BODY, load, loading, server
from harness.table import Contest, Line, Row, times_the_peer
from rows.serving.echo import LOAD

#: Quick calls each second.
RATE = 200.0


def mixed(way: str, program: str, seconds: float) -> dict[str, float]:
    """How long an echo takes, alone and beside products."""
    with server("ropewalk", "http") as running:
        product = {"port": running.port, "path": "/v1/tools/product", "body": json.dumps({"size": 1000})}
        load(program, "closed", **product, callers=1, seconds=0.1, warm=0)
        words = {"port": running.port, "path": "/v1/tools/echo", "body": BODY, "rate": RATE}
        if way == "alone":
            return load(program, "open", **words, seconds=seconds)
        with loading(program, "open", **product, rate=RATE * 3 / 7, seconds=seconds + 60):
            return load(program, "open", **words, seconds=seconds)


def _contest(way: str) -> Contest:
    needs = ("ropewalk", "pydantic", "numpy")
    return Contest(mixed, way, None, way=way, program=LOAD, seconds=Size(5.0, 0.3), needs=needs)


ALONE, MIXED = _contest("alone"), _contest("mixed")

ROW = Row(
    "mixed",
    "70 % echo, 30 % products of 1000 × 1000",
    f"{RATE:g} echoes each second, on a pool of two workers; beside them three products to seven echoes, on a pool of "
    "one worker, most of which are refused. Times count from when a call was due.",
    (
        Line("echo, p50", "ms", MIXED, "p50", None, {ALONE.by("ropewalk"): None}, scale=1e-3),
        Line(
            "echo, p99",
            "ms",
            MIXED,
            "p99",
            None,
            {ALONE.by("ropewalk"): times_the_peer(2)},
            scale=1e-3,
            headline=True,
        ),
    ),
)
