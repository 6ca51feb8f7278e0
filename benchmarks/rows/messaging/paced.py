"""Tables: how long messages are on their way, at rates from one a second to a million."""

from __future__ import annotations

from harness.programs import PERCENTILES, paced
from harness.table import Line, Row, times_the_peer

RATES = (1, 10, 100, 1_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
#: Peers beside libzmq, by transport; those left out are slower than libzmq at each rate, or have no such transport.
#: `raw` is the floor: a sender that writes its messages itself, to a receiver that sleeps in its read.
OTHERS = {"tcp": ("omq", "monocoque", "raw"), "ipc": ("raw",)}


def _lines(transport: str) -> list[Line]:
    """The rates, and the same number of messages in rows of ten."""
    others = OTHERS.get(transport, ())
    # Through shared memory there is no peer: it is to be no slower than libzmq's own way between processes.
    against = "ipc" if transport == "shm" else transport
    lines = [
        line
        for rate in RATES
        for line in paced(f"{rate:,}/s", transport, against, others, times_the_peer(1), rate=rate, at=rate)
    ]
    for rate in (1_000, 10_000):
        what = f"{rate:,}/s in tens"
        lines += paced(what, transport, against, (), times_the_peer(1), rate=rate * 10, burst=10)
    return lines


ROWS = tuple(
    Row(
        f"paced-{transport}",
        f"µs from PUSH to PULL by {transport}, 64 B, at a rate",
        "Two threads, where the system puts them. The sender sleeps until shortly before a message is due, and then "
        f"spins; the time runs from before its send until the receiver has the message. {PERCENTILES}",
        _lines(transport),
    )
    for transport in ("tcp", "ipc", "shm", "inproc")
)
