"""Table: publishing."""

from __future__ import annotations

from harness.programs import line
from harness.table import Row, at_least

WITH_PUBLISHERS = ("libzmq", "monocoque", "omq", "zeromq", "rzmq")

ROW = Row(
    "publish",
    "PUB to SUB by tcp, deliveries each second",
    "Two threads where the system puts them: one publishes, one has all subscribers. The publisher stays 16 MiB or "
    "50,000 messages ahead at most and the high-water marks are above that, so that nothing is dropped; all must "
    "arrive.",
    (
        line("64 B", "M/s", "publish", at_least(12), WITH_PUBLISHERS, size=64, count=3_000_000, place="free"),
        line(
            "1 KiB", "M/s", "publish", at_least(2.2), WITH_PUBLISHERS, size=1024, count=800_000, place="free"
        ),
        line(
            "16 KiB", "k/s", "publish", at_least(160), WITH_PUBLISHERS, size=16384, count=80_000, place="free"
        ),
        line(
            "64 B, 8 subscribers",
            "M/s",
            "publish",
            at_least(15),
            WITH_PUBLISHERS,
            size=64,
            count=600_000,
            place="free",
            ends=8,
        ),
    ),
)
