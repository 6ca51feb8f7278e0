"""Table: one call from another thread."""

from __future__ import annotations

import threading
import time

from harness.loops import PEERS, PLAYERS, new_loop
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better

#: The longest that the calls of one loop may take together.
SECONDS = 10.0


def crossing(loop_of: str, busy: bool, calls: int) -> dict[str, float]:
    """`call_soon_threadsafe`, one call at a time, with a pause before each.

    `busy`: a callback of the loop schedules itself all the while; otherwise the loop sleeps.
    """
    loop = new_loop(loop_of)
    runner = threading.Thread(target=loop.run_forever)
    arrived, done = 0, threading.Lock()
    done.acquire()
    clock = time.perf_counter_ns

    def arrive() -> None:
        nonlocal arrived
        arrived = clock()
        done.release()

    def work() -> None:
        loop.call_soon(work)

    if busy:
        loop.call_soon(work)
    runner.start()
    costs: list[int] = []
    delays: list[int] = []
    # A loop that keeps the interpreter lock from its callers plays fewer of them.
    end = time.perf_counter() + SECONDS
    while len(costs) < calls and (time.perf_counter() < end or len(costs) < 20):
        time.sleep(0.0005)
        before = clock()
        loop.call_soon_threadsafe(arrive)
        after = clock()
        done.acquire()
        costs.append(after - before)
        delays.append(arrived - before)
    loop.call_soon_threadsafe(loop.stop)
    runner.join()
    loop.close()
    del costs[: len(costs) // 10], delays[: len(delays) // 10]
    costs.sort()
    delays.sort()
    return {
        "cost": costs[len(costs) // 2],
        "arrives": delays[len(delays) // 2] / 1000,
        "arrives, p90": delays[len(delays) * 9 // 10] / 1000,
    }


def _crossing(name: str, busy: bool, calls: int) -> Contest:
    return Contest(crossing, name, PLAYERS, as_argument="loop_of", busy=busy, calls=Size(calls, 20))


IDLE, BUSY = _crossing("idle", False, 2_000), _crossing("busy", True, 300)
_GOALS = PEERS | {"rloop": times_better(1.0)}

ROW = Row(
    "crossing",
    "One call from another thread",
    "`call_soon_threadsafe` half a millisecond after the last one, by a thread that then waits for the callback. "
    "The cost is what the call takes its caller, two clock readings included; it arrives when the callback begins. "
    "The idle loop sleeps. In the busy one a callback schedules itself; the caller gets the interpreter lock first.",
    tuple(
        Line(f"{name}: {what}", unit, contest, metric, None, _GOALS)
        for name, contest in (("idle", IDLE), ("busy", BUSY))
        for what, unit, metric in (
            ("the caller's cost, p50", "ns", "cost"),
            ("arrives, p50", "µs", "arrives"),
            ("arrives, p90", "µs", "arrives, p90"),
        )
    ),
)
