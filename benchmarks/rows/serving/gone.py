"""Table: a client leaves, or its deadline passes, while its tool sits in C code."""

from __future__ import annotations

import http.client
import json
import statistics
import time

from harness.measure import Size
from harness.serving import BODY, Running, server
from harness.table import Contest, Line, Row, at_most

JSON = {"Content-Type": "application/json"}


def _answer(running: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    connection.request("POST", "/v1/tools/echo", BODY, JSON)
    response = connection.getresponse()
    response.read()
    connection.close()
    if response.status != 200:
        raise RuntimeError(f"the next call was answered by {response.status}")


def gone(way: str, times: int) -> dict[str, float]:
    """Milliseconds from a client's end, or its deadline, to the answer of the call behind it, on the only worker."""
    took: list[float] = []
    with server("ropewalk", "http", setting="one") as running:
        for _ in range(times):
            for left in running.folder.glob("spins-*"):
                left.unlink()
            connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
            headers = {**JSON, "X-Ropewalk-Timeout": "0.5"} if way == "deadline" else JSON
            sent = time.perf_counter()
            connection.request("POST", "/v1/tools/spin", json.dumps({"folder": str(running.folder)}), headers)
            end = time.monotonic() + 30
            while not list(running.folder.glob("spins-*")):
                if time.monotonic() > end:
                    raise RuntimeError("the tool did not begin")
                time.sleep(0.0005)
            if way == "deadline":
                began = sent + 0.5
            else:
                began = time.perf_counter()
                connection.close()
            _answer(running)
            took.append((time.perf_counter() - began) * 1e3)
            connection.close()
    return {"p50": statistics.median(took), "most": max(took)}


OURS = {"ropewalk": ("ropewalk", "pydantic")}
LEFT = Contest(gone, "left", None, way="left", times=Size(20, 2), needs=OURS["ropewalk"])
DEADLINE = Contest(gone, "deadline", None, way="deadline", times=Size(10, 1), needs=OURS["ropewalk"])

ROW = Row(
    "gone",
    "The core is free again",
    "A server with one worker, whose tool holds the interpreter's lock in a loop of C's. From the client's end, or "
    "from its deadline, to the whole answer of the next call, by the worker in its place.",
    (
        Line("client gone, p50", "ms", LEFT, "p50", at_most(50), headline=True),
        Line("client gone, the slowest", "ms", LEFT, "most"),
        Line("deadline, p50", "ms", DEADLINE, "p50", at_most(50), headline=True),
        Line("deadline, the slowest", "ms", DEADLINE, "most"),
    ),
)
