"""Table: calls beside ten thousand connections that send nothing."""

from __future__ import annotations

import resource

from harness.measure import Size
from harness.serving import BODY, load, loading, server
from harness.table import Contest, Line, Row, times_the_peer
from rows.serving.echo import LOAD


def idle(connections: int, program: str, seconds: float) -> dict[str, float]:
    """How long a call takes, and what a connection weighs."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if connections and limit < connections + 200:
        raise RuntimeError(f"this user may open {limit} files: raise RLIMIT_NOFILE")
    with server("ropewalk", "http", setting="patient") as running:
        words = {"port": running.port, "path": "/v1/tools/echo", "body": BODY, "callers": 10}
        before = running.memory()
        if not connections:
            return load(program, "closed", **words, seconds=seconds)
        with loading(program, "idle", port=running.port, connections=connections) as held:
            assert held.stdout is not None
            if not held.stdout.readline():
                raise RuntimeError("the connections were not accepted")
            grown = (running.memory() - before) / connections
            return load(program, "closed", **words, seconds=seconds) | {"each": grown}


def _contest(name: str, connections: int | Size) -> Contest:
    needs = ("ropewalk", "pydantic")
    return Contest(
        idle, name, None, connections=connections, program=LOAD, seconds=Size(3.0, 0.2), needs=needs
    )


NONE, MANY = _contest("none", 0), _contest("many", Size(10_000, 100))

ROW = Row(
    "idle",
    "Ten thousand idle connections",
    "Echo by HTTP, ten callers, beside connections that have sent nothing, and without them.",
    (
        Line(
            "p99",
            "ms",
            MANY,
            "p99",
            None,
            {NONE.by("ropewalk"): times_the_peer(1.5)},
            scale=1e-3,
            headline=True,
        ),
        Line("memory of a connection", "KiB", MANY, "each", scale=1 / 1024),
    ),
)
