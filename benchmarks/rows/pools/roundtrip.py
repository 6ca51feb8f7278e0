"""Table: what a task costs alone."""

from __future__ import annotations

import time

from harness import pools, workloads
from harness.clock import repeat
from harness.measure import Size, percentile
from harness.pools import EXECUTOR, FORKSERVER, OUR_THREADS, PLAYERS, POOL, THREADS
from harness.table import Contest, Line, Row, at_most, times_better

PAUSE = 0.02


def roundtrip(peer: str, seconds: float, pauses: int) -> dict[str, float]:
    """Times of the empty task, one after another without a pause, then each after a pause."""
    contestant = pools.ALL[peer](2, ("harness.workloads",))
    call, nothing, clock = contestant.call, workloads.nothing, time.perf_counter_ns
    repeat(seconds / 4, lambda: call(nothing))
    hot: list[int] = []
    until = clock() + int(seconds * 1e9)
    while (began := clock()) < until or len(hot) < 50:
        call(nothing)
        hot.append(clock() - began)
    woken: list[int] = []
    for _ in range(pauses):
        time.sleep(PAUSE)
        began = clock()
        call(nothing)
        woken.append(clock() - began)
    contestant.close()
    return {
        "hot p50": percentile(hot, 0.5) / 1e3,
        "hot p99": percentile(hot, 0.99) / 1e3,
        "woken p50": percentile(woken, 0.5) / 1e3,
        "woken p99": percentile(woken, 0.99) / 1e3,
    }


ALONE = Contest(roundtrip, players=PLAYERS, seconds=Size(0.4, 0.02), pauses=Size(40, 2))
PEERS = dict.fromkeys(
    (EXECUTOR, POOL, FORKSERVER, THREADS, "loky", "pebble", "mpire", "joblib"),
)

ROW = Row(
    "roundtrip",
    "one empty task and its answer, 2 workers",
    f"From submit to the result in hand, pool warm. Hot: one after another; woken: after {PAUSE} s of "
    "nothing, so that a worker sleeps. Each in its shortest way: submit().result(), apply(), "
    "schedule().result().",
    (
        Line(
            "hot, p50",
            "µs",
            ALONE,
            "hot p50",
            at_most(8),
            {**PEERS, EXECUTOR: times_better(15), POOL: times_better(7)},
        ),
        Line("woken, p50", "µs", ALONE, "woken p50", at_most(50), PEERS),
        Line("hot, p99", "µs", ALONE, "hot p99", None, PEERS),
        Line("threads: hot p50", "µs", ALONE, "hot p50", None, {THREADS: None}, OUR_THREADS),
        Line("threads: woken p50", "µs", ALONE, "woken p50", None, {THREADS: None}, OUR_THREADS),
    ),
)
