"""Table: 32 connections that ask and are answered."""

from __future__ import annotations

from harness.loop_load import SIZE, load, server
from harness.loops import PLAYERS
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better


def echo(loop_of: str, kind: str, seconds: float) -> dict[str, float]:
    """1 KiB there and back."""
    with server(loop_of, kind) as known:
        return load(known, b"x" * SIZE, SIZE, seconds)


def _lines(kind: str, what: str, bound: float) -> tuple[Line, Line]:
    players = {**PLAYERS, "raw": ()}
    contest = Contest(
        echo, kind, players, as_argument="loop_of", timeout=60.0, kind=kind, seconds=Size(1.0, 0.2)
    )
    peers = dict.fromkeys(("asyncio", "uvloop", "rloop"))
    against = {**peers, "uvloop": times_better(bound), "raw": None}
    return (
        Line(what, "/s", contest, "rate", None, against, more_is_better=True),
        Line(f"{what}: the server's time", "µs", contest, "busy", None, peers),
    )


ROW = Row(
    "echo",
    "1 KiB there and back on 32 connections, answers each second",
    "Server and client have a process each, on two cores; the client is one for all: Python, epoll, raw sockets. `raw` "
    "is a server of the same make, and the client's own limit where a loop is near it. The server's time is what its "
    "process has run for each answer, which the client does not limit.",
    (
        *_lines("sockets", "sock_recv, sock_sendall", 2.2),
        *_lines("streams", "streams", 1.3),
        *_lines("protocol", "protocol, tcp", 1.10),
        *_lines("unix", "protocol, unix", 1.08),
    ),
)
