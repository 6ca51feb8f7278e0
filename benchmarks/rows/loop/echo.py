"""Table: 32 connections that ask and are answered."""

from __future__ import annotations

from harness.loop_load import SIZE, load, server
from harness.loops import PEERS, PLAYERS
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better

#: The larger size of a message.
LARGE = 64 * 1024


def echo(loop_of: str, kind: str, size: int, seconds: float) -> dict[str, float]:
    """So many bytes there and back."""
    with server(loop_of, kind) as known:
        return load(known, b"x" * size, size, seconds)


def _lines(kind: str, what: str, bound: float, size: int = SIZE) -> tuple[Line, Line]:
    players = PLAYERS if size > SIZE else {**PLAYERS, "raw": ()}
    contest = Contest(
        echo,
        kind if size == SIZE else f"{kind} of {size >> 10} KiB",
        players,
        as_argument="loop_of",
        timeout=60.0,
        kind=kind,
        size=size,
        seconds=Size(1.0, 0.2),
    )
    against = {**dict.fromkeys(name for name in players if name != "ropewalk"), "uvloop": times_better(bound)}
    return (
        Line(what, "/s", contest, "rate", None, against, more_is_better=True),
        Line(f"{what}: the server's time", "µs", contest, "busy", None, PEERS),
    )


ROW = Row(
    "echo",
    "1 KiB, or 64 KiB, there and back on 32 connections, answers each second",
    "Server and client have a process each, on two cores; the client is one for all: Python, epoll, raw sockets. `raw` "
    "is a server of the same make, and the client's own limit where a loop is near it. The server's time is what its "
    "process has run for each answer, which the client does not limit.",
    (
        *_lines("sockets", "sock_recv, sock_sendall", 2.2),
        *_lines("streams", "streams", 1.3),
        *_lines("protocol", "protocol, tcp", 1.10),
        *_lines("unix", "protocol, unix", 1.08),
        *_lines("protocol", "protocol, tcp, 64 KiB", 1, LARGE),
    ),
)
