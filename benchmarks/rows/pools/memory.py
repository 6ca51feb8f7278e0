"""Table: what a hundred idle workers weigh."""

from __future__ import annotations

from harness.measure import Size
from harness.pools import FORKSERVER, PLAYERS, SPAWN
from harness.table import Contest, Line, Row, at_most, times_better
from rows.pools.start import hundred

IDLE = Contest(hundred, players=PLAYERS, needs=("numpy",), rounds=3, workers=Size(100, 3), numpy=True)
PEERS = dict.fromkeys((FORKSERVER, SPAWN, "loky"))

ROW = Row(
    "memory",
    "what 100 idle workers weigh",
    "Sums of Pss over /proc/PID/smaps_rollup of the workers after each ran two tasks and a pause; "
    "zygote, forkserver and trackers are stated apart. Each worker has imported NumPy, by preload where "
    "the contestant has one.",
    (
        Line(
            "PSS of 100 idle workers, NumPy imported",
            "MB",
            IDLE,
            "workers",
            at_most(120),
            {**PEERS, SPAWN: times_better(12)},
        ),
        Line("private memory of the workers", "MB", IDLE, "private", None, PEERS),
        Line("PSS of the helper processes", "MB", IDLE, "helpers", None, PEERS),
        Line("starting them", "s", IDLE, "seconds", None, PEERS),
    ),
)
