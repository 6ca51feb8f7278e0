"""Calls beside many idle connections: `python -m tests.faults.idle_connections [10000]`.

The connections are open, say nothing, and take a descriptor at each of their two ends, so the limit of descriptors
(`RLIMIT_NOFILE`, which is raised as far as the system allows) bounds how many there can be.
"""

from __future__ import annotations

import http.client
import json
import resource
import select
import socket
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ropewalk.serving import Server

_TOOLS = "from ropewalk.serving import tool\n\n@tool\ndef add(a: int, b: int = 1) -> int:\n    return a + b\n"
#: Descriptors that the process needs besides.
_OTHERS = 200


@dataclass(frozen=True, slots=True)
class Result:
    """What was seen."""

    connections: int
    #: Connections that the server has ended.
    ended: int
    #: Seconds of each call before the connections were open, and beside them.
    alone: list[float]
    beside: list[float]

    def __str__(self) -> str:
        before, now = (statistics.median(each) * 1e6 for each in (self.alone, self.beside))
        return (
            f"{self.connections} idle connections, {self.ended} ended; the median of {len(self.beside)} calls was "
            f"{before:.0f} us without them and is {now:.0f} us"
        )


def room() -> int:
    """Raises the limit of descriptors, and returns how many connections can be open."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return (100_000 if most == resource.RLIM_INFINITY else most - _OTHERS) // 2


def _calls(address: str, count: int) -> list[float]:
    connection = http.client.HTTPConnection(address, timeout=60)
    times: list[float] = []
    try:
        for number in range(count):
            began = time.perf_counter()
            body = json.dumps({"a": number})
            connection.request("POST", "/v1/tools/add", body, {"content-type": "application/json"})
            answer = connection.getresponse().read()
            times.append(time.perf_counter() - began)
            if json.loads(answer) != number + 1:
                raise AssertionError(f"a call was answered by {answer!r}")
    finally:
        connection.close()
    return times


def run(connections: int, calls: int) -> Result:
    """Opens connections, and calls a tool before and meanwhile."""
    idle: list[socket.socket] = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "idle_tools.py").write_text(_TOOLS)
        app = Path(folder) / "idle_tools.py"
        with Server(app, http="127.0.0.1:0", workers=1, head_timeout=600) as server:
            server.wait_ready()
            assert server.http is not None
            host, _, port = server.http.rpartition(":")
            try:
                alone = _calls(server.http, calls)
                idle.extend(socket.create_connection((host, int(port)), 60) for _ in range(connections))
                beside = _calls(server.http, calls)
                poll = select.poll()
                for one in idle:
                    poll.register(one, select.POLLIN | select.POLLRDHUP)
                ended = len(poll.poll(0))
            finally:
                for one in idle:
                    one.close()
    return Result(connections, ended, alone, beside)


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    possible = min(wanted, room())
    if possible < wanted:
        print(f"RLIMIT_NOFILE has room for {possible} connections")
    print(run(possible, 1000))
