"""Table: datagrams that are answered."""

from __future__ import annotations

from harness.loop_load import SIZE, connect_datagrams, load, server
from harness.loops import PEERS, PLAYERS
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better


def datagrams(loop_of: str, senders: int, seconds: float) -> dict[str, float]:
    """1 KiB there and back by UDP."""
    with server(loop_of, "datagrams") as known:
        return load(known, b"x" * SIZE, SIZE, seconds, connecting=connect_datagrams, count=senders)


def _lines(senders: int, what: str) -> tuple[Line, Line]:
    contest = Contest(
        datagrams,
        f"datagrams-{senders}",
        {**PLAYERS, "raw": ()},
        as_argument="loop_of",
        timeout=60.0,
        senders=senders,
        seconds=Size(1.0, 0.2),
    )
    against = {**dict.fromkeys(PEERS, times_better(1.1)), "raw": None}
    return (
        Line(what, "/s", contest, "rate", None, against, more_is_better=True),
        Line(f"{what}: the server's time", "µs", contest, "busy", None, PEERS),
    )


ROW = Row(
    "datagrams",
    "1 KiB there and back by UDP, answers each second",
    "Server and client have a process each, as in `echo`. Every sender has a socket of its own and asks again as soon "
    "as it has its answer. The server's time is what its process has run for each answer, which the client does not "
    "limit.",
    (*_lines(32, "32 senders"), *_lines(1, "one sender")),
)
