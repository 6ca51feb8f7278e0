"""Table: what the gateway adds to a task."""

from __future__ import annotations

import statistics
import time

from harness.measure import Size
from harness.serving import BODY, load, server
from harness.table import Contest, Line, Row, at_most
from rows.serving.echo import LOAD


def gateway(program: str, seconds: float) -> dict[str, float]:
    """Microseconds of a call by one caller, and of a task of the same function."""
    import ropewalk
    from harness.serving_tools import echo

    with server("ropewalk", "http") as running:
        words = {"port": running.port, "path": "/v1/tools/echo", "body": BODY, "callers": 1}
        http = load(program, "closed", **words, seconds=seconds)
        grpc = load(program, "closed", **(words | {"protocol": "grpc"}), seconds=seconds)
    took: list[float] = []
    with ropewalk.Pool(2, kind="process") as pool:
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            pool.submit(echo, "hello world").result()
            took.append((time.perf_counter() - began) * 1e6)
    task = statistics.median(took)
    return {
        "task": task,
        "http": http["p50"],
        "grpc": grpc["p50"],
        "over http": http["p50"] - task,
        "over grpc": grpc["p50"] - task,
    }


OURS = Contest(gateway, "", None, program=LOAD, seconds=Size(3.0, 0.2), needs=("ropewalk", "pydantic"))

ROW = Row(
    "gateway",
    "What the gateway adds to a task",
    "One caller, the next call when it has its answer: the median of whole calls, the client's own work included, less "
    "the median of `pool.submit(echo, ...).result()` in the same round.",
    (
        Line("a task", "µs", OURS, "task"),
        Line("HTTP over a task", "µs", OURS, "over http", at_most(40), headline=True),
        Line("gRPC over a task", "µs", OURS, "over grpc", at_most(40), headline=True),
    ),
)
