"""Table: pipelines in Python, each end in a process of its own."""

from __future__ import annotations

from harness import messaging_ends as ends
from harness.measure import Size
from harness.messaging_ends import PLAYERS
from harness.table import Contest, Line, Row, at_least


def flow(peer: str, way: str, size: int, count: int, loop_of: str = "asyncio") -> dict[str, float]:
    """Messages each second, at the receiver."""
    address = ends.free_address()
    if way == "asyncio":
        with ends.beside(peer, "push_async", address, "free", loop_of, size, count):
            return {"rate": ends.driven(loop_of, ends.pull_async(peer, address, size, count))}
    sender = {"recv": "push", "recv_many": "push_many", "uncopied": "push_uncopied"}[way]
    with ends.beside(peer, sender, address, "free", loop_of, size, count):
        if way == "recv_many":
            return {"rate": ends.pull_many(peer, address, size, count)}
        return {"rate": ends.pull(peer, address, size, count, copy=way == "recv")}


def _flow(way: str, size: int, count: int) -> Contest:
    return Contest(flow, way, PLAYERS, timeout=60.0, way=way, size=size, count=Size(count, count // 100))


RECV, MANY = _flow("recv", 64, 1_500_000), _flow("recv_many", 64, 5_000_000)
ASYNC, UNCOPIED = _flow("asyncio", 64, 150_000), _flow("uncopied", 16384, 80_000)
PEERS = ("pyzmq", "pyomq")


def _line(what: str, contest: Contest, goal: float, beside: Contest | None = None) -> Line:
    peers = dict.fromkeys((beside or contest).by(peer) for peer in PEERS)
    return Line(what, "k/s", contest, "rate", at_least(goal), peers, scale=1e-3, more_is_better=True)


ROW = Row(
    "python-push",
    "PUSH to PULL by tcp, in Python, messages each second",
    "Two processes where the system puts them, both ends alike: `recv()` with `send()`, `recv_many()` with "
    "`send_many()`, asyncio's stock loop on both, `copy=False` on both. Timed at the receiver; all must arrive.",
    (
        _line("recv(), 64 B", RECV, 2500),
        # Nobody else takes many in a call: their recv() is what there is to compare with.
        _line("recv_many(), 64 B", MANY, 6000, RECV),
        _line("asyncio, 64 B", ASYNC, 700),
        _line("zero-copy, 16 KiB", UNCOPIED, 165),
    ),
)
