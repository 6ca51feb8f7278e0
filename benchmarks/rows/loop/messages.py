"""Table: datagrams by the loop's operations on sockets."""

from __future__ import annotations

from harness.loop_load import connect_datagrams, load, server
from harness.loops import PLAYERS as LOOPS
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better

MESSAGE = b"x" * 64
#: uvloop and rloop lack these operations.
PLAYERS = {name: needs for name, needs in LOOPS.items() if name not in ("uvloop", "rloop")}
PEERS = dict.fromkeys(name for name in PLAYERS if name != "ropewalk")


def messages(loop_of: str, seconds: float) -> dict[str, float]:
    """64 bytes there and back, and the server's time for an answer."""
    # Within one host nothing is lost while the server's buffer has room for all that is under way.
    with server(loop_of, "messages") as known:
        return load(known, MESSAGE, len(MESSAGE), seconds, connecting=connect_datagrams)


MESSAGES = Contest(messages, players=PLAYERS, as_argument="loop_of", timeout=60.0, seconds=Size(1.0, 0.2))

ROW = Row(
    "messages",
    "Datagrams by sock_recvfrom and sock_sendto",
    "64 bytes there and back over UDP; 32 clients of one process, epoll and raw sockets, each with one message under "
    "way; one socket of the server's, on which one task receives and answers. uvloop and rloop lack these operations.",
    (
        Line("answers", "/s", MESSAGES, "rate", None, PEERS, more_is_better=True),
        Line(
            "the server's time for an answer",
            "µs",
            MESSAGES,
            "busy",
            None,
            {**PEERS, "asyncio": times_better(1)},
        ),
    ),
)
