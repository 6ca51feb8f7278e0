"""Table: what drives a server of many connections."""

from __future__ import annotations

from dataclasses import dataclass

from harness.measure import Case, Size
from harness.programs import Program
from harness.table import Line, Row

#: What may ask the kernel for the bytes of many connections: ours first, then io_uring in two ways.
DRIVERS = ("epoll", "sends", "multishot")


@dataclass(frozen=True)
class Driven:
    """A server of so many connections, of which each has a message in flight."""

    ends: int

    def by(self, player: str) -> Case:
        """The case of one driver."""
        arguments = {
            "contender": player,
            "path": Program("drivers"),
            "contest": "drivers",
            "driver": player,
            "ends": self.ends,
            "count": Size(20_000 if self.ends == 1 else 100_000, 2_000),
        }
        return Case(f"{self.ends}, {player}", "harness.programs:play", arguments, timeout=60.0)


def _lines(ends: int) -> tuple[Line, Line]:
    ours, *others = DRIVERS
    peers = dict.fromkeys(others)
    echoes, server = f"{ends} connections, echoes", f"{ends} connections, server"
    return (
        Line(echoes, "k/s", Driven(ends), "rate", None, peers, ours, 1e-3, more_is_better=True),
        Line(server, "µs", Driven(ends), "cpu", None, peers, ours),
    )


ROW = Row(
    "drivers",
    "What drives a server of many tcp connections: epoll, or io_uring",
    "No ZeroMQ, and epoll stands for us: a server on one core sends back 66 B at a time, and clients on another spin, "
    "each with one message in flight. Echoes each second, and the server's processor time for each. `sends` is epoll "
    "whose writes of one look are one submission; `multishot` is io_uring alone, with a single issuer, deferred work, "
    "multishot receives into provided buffers and registered descriptors.",
    (*_lines(1), *_lines(4), *_lines(16), *_lines(64), *_lines(512)),
)
