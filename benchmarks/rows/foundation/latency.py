"""Table: how soon a submitted task runs."""

from __future__ import annotations

from harness.programs import Foundation
from harness.table import Goal, Line, Row, times_better, times_the_peer


def _latency(around: str, title: str, rayon: Goal | None, bs: Goal | None) -> Row:
    contest = Foundation(f"latency-{around}")
    peers = {"rayon": rayon, "taskflow": None, "BS::thread_pool": bs, "std::async": None}
    ours, idle = "ropewalk, fixed", around == "idle"
    return Row(
        f"latency-{around}",
        title,
        "From just before the submission until the task itself reads the clock; one task at a time. The submitter "
        "looks a thousand times and then yields its core between looks, in both languages. A p99 is that of a round.",
        (
            Line("submit → complete, p50", "µs", contest, "p50", None, peers, ours, headline=idle),
            Line("submit → complete, p99", "µs", contest, "p99", None, peers, ours),
        ),
    )


ROWS = (
    _latency("idle", "Latency, one task after the other", times_the_peer(1.0), times_better(4)),
    _latency("asleep", "Latency, a millisecond's pause before each task", None, None),
    _latency("loaded", "Latency beside a busy thread on each core", times_the_peer(1.0), None),
)
