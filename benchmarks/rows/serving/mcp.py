"""Table: tools called by agents, and the health of a server whose workers all spin."""

from __future__ import annotations

import contextlib
import json
import time

from harness.measure import Size
from harness.serving import MCP_PLAYERS, WORKERS, load, loading, server
from harness.table import Contest, Line, Row, at_least, at_most, times_better
from rows.serving.echo import LOAD

CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "echo", "arguments": {"text": "hello world"}},
}


def call(contender: str, program: str, seconds: float) -> dict[str, float]:
    """Calls each second."""
    with server(contender, "mcp") as running:
        words = {"port": running.port, "path": "/mcp", "body": json.dumps(CALL), "revision": "2025-11-25"}
        accept = "application/json, text/event-stream"
        return load(program, "closed", **words, accept=accept, callers=100, seconds=seconds)


def health(contender: str, program: str, seconds: float) -> dict[str, float]:
    """How long `/healthz` takes while every worker holds its interpreter's lock in C code."""
    with server(contender, "http") as running, contextlib.ExitStack() as stack:
        body = json.dumps({"folder": str(running.folder)})
        for _ in range(WORKERS):
            words = {"port": running.port, "path": "/v1/tools/spin", "body": body, "callers": 1}
            stack.enter_context(loading(program, "closed", **words, seconds=seconds + 60, warm=0))
        end = time.monotonic() + 30
        while len(list(running.folder.glob("spins-*"))) < WORKERS:
            if time.monotonic() > end:
                raise RuntimeError("the workers do not spin")
            time.sleep(0.01)
        words = {"port": running.port, "path": "/healthz", "method": "GET", "callers": 1}
        return load(program, "closed", **words, seconds=seconds)


CALLS = Contest(call, "", MCP_PLAYERS, as_argument="contender", program=LOAD, seconds=Size(5.0, 0.2))
HEALTH = Contest(
    health,
    "health",
    {"ropewalk": ("ropewalk", "pydantic")},
    as_argument="contender",
    program=LOAD,
    seconds=Size(3.0, 0.2),
)

ROW = Row(
    "mcp",
    "MCP, and /healthz",
    "tools/call at /mcp, a hundred callers, without sessions; the SDK runs the tool in its own process, Ropewalk in "
    "workers. /healthz: one caller, while every worker of the server, and with it every core, is busy.",
    (
        Line("tools/call", "/s", CALLS, "rate", at_least(15_000), more_is_better=True),
        Line(
            "tools/call",
            "/s",
            CALLS,
            "rate",
            None,
            {"MCP SDK": times_better(10)},
            more_is_better=True,
            headline=True,
        ),
        Line("tools/call, errors", "", CALLS, "errors", at_most(0)),
        Line("/healthz, p99", "ms", HEALTH, "p99", at_most(5), scale=1e-3),
    ),
)
