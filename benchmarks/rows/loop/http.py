"""Table: two HTTP servers."""

from __future__ import annotations

import time

from harness.loop_load import connect, load, server
from harness.loops import PEERS, PLAYERS
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def http(loop_of: str, kind: str, seconds: float) -> dict[str, float]:
    """A small answer to a GET on a connection that is kept."""
    with server(loop_of, kind) as known:
        with connect(known[0]) as connection:
            connection.send(REQUEST)
            time.sleep(0.2)
            length = len(connection.recv(65536))
        return load(known, REQUEST, length, seconds)


def _line(kind: str, *needs: str) -> Line:
    contest = Contest(
        http,
        kind,
        PLAYERS,
        as_argument="loop_of",
        needs=needs,
        timeout=60.0,
        kind=kind,
        seconds=Size(1.0, 0.2),
    )
    peers = {**PEERS, "uvloop": times_better(1.08)}
    return Line(kind, "/s", contest, "rate", None, peers, more_is_better=True)


ROW = Row(
    "http",
    "HTTP servers, answers each second",
    "uvicorn with httptools and an empty ASGI application, aiohttp's server with an empty handler; 32 connections that "
    "are kept, one client for all, as in `echo`.",
    (_line("uvicorn", "uvicorn", "httptools"), _line("aiohttp", "aiohttp")),
)
