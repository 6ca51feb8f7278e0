"""Table: calls from other threads."""

from __future__ import annotations

import threading
import time

from harness.clock import TIMES
from harness.loops import PEERS, PLAYERS, new_loop
from harness.measure import Size
from harness.table import Contest, Goal, Line, Row, at_least, at_most, times_better


def foreign(loop_of: str, threads: int, each: int, state: bool) -> dict[str, float]:
    """`call_soon_threadsafe` from several threads at once, on a loop that runs in another one.

    `state`: every callback writes a number, and one thread more reads it all the while.
    """
    loop = new_loop(loop_of)
    runner = threading.Thread(target=loop.run_forever)
    runner.start()
    total, seen, ended = threads * each, 0, threading.Event()

    def call() -> None:
        nonlocal seen
        seen += 1
        if seen == total:
            ended.set()

    def once() -> tuple[float, float, float]:
        nonlocal seen
        seen = 0
        ended.clear()
        barrier = threading.Barrier(threads + 1 + state)
        spans: list[tuple[int, int]] = []
        samples: list[int] = []

        def write(sampled: bool) -> None:
            schedule, clock = loop.call_soon_threadsafe, time.perf_counter_ns
            barrier.wait()
            began = clock()
            if sampled:
                for _ in range(each):
                    before = clock()
                    schedule(call)
                    samples.append(clock() - before)
            else:
                for _ in range(each):
                    schedule(call)
            spans.append((began, clock()))

        def read() -> None:
            barrier.wait()
            reads = 0
            while reads < each:
                reads += 1 + 0 * seen

        # The first thread times each call of its own, and its speed is not counted.
        workers = [threading.Thread(target=write, args=(number == 0,)) for number in range(threads)]
        if state:
            workers.append(threading.Thread(target=read))
        for worker in workers:
            worker.start()
        barrier.wait()
        for worker in workers:
            worker.join()
        ended.wait(60)
        finished = time.perf_counter_ns()
        first, last = min(span[0] for span in spans), max(span[1] for span in spans)
        samples.sort()
        return (
            total / (last - first) * 1e9,
            total / (finished - first) * 1e9,
            samples[len(samples) * 99 // 100],
        )

    once()
    rounds = [once() for _ in range(TIMES)]
    loop.call_soon_threadsafe(loop.stop)
    runner.join()
    loop.close()
    middle = [sorted(values)[TIMES // 2] for values in zip(*rounds, strict=True)]
    return {"registered": middle[0], "ran": middle[1], "p99": middle[2]}


def _foreign(name: str, each: int, state: bool) -> Contest:
    return Contest(
        foreign, name, PLAYERS, as_argument="loop_of", threads=10, each=Size(each, 50), state=state
    )


PLAIN, BESIDE_A_READER = _foreign("", 5_000, False), _foreign("reader", 20_000, True)


#: Every loop, and how far ahead of the fastest one ours is to be.
_GOALS = PEERS | {"rloop": times_better(1.2)}


def _line(what: str, contest: Contest, metric: str, goal: Goal) -> Line:
    return Line(what, "/s", contest, metric, goal, _GOALS, more_is_better=True)


ROW = Row(
    "foreign",
    "`call_soon_threadsafe` from ten threads, 5,000 each",
    "From the first call to the last; to the last callback; the 99th percentile of a call in one of the threads, "
    "its two clock readings included. The loop runs in a thread of its own.",
    (
        _line("registered", PLAIN, "registered", at_least(8e6)),
        _line("registered and run", PLAIN, "ran", at_least(7e6)),
        Line("p99 of a call", "ns", PLAIN, "p99", at_most(250), _GOALS),
        _line("10 writers of 20,000 and a reader", BESIDE_A_READER, "registered", at_least(8.5e6)),
    ),
)
