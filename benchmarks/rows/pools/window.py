"""Table: what tasks cost in a full window."""

from __future__ import annotations

import asyncio
import collections
import queue
from typing import Any

from harness import pools, workloads
from harness.clock import rate
from harness.measure import Size
from harness.pools import EXECUTOR, OUR_THREADS, PLAYERS, POOL, THREADS
from harness.table import Contest, Line, Row, at_least, times_better

WINDOW = 100


def results(peer: str, seconds: float) -> dict[str, float]:
    """Tasks a second with a hundred in flight: hand one in, take the oldest."""
    contestant = pools.ALL[peer](2, ("harness.workloads",))
    submit, take, nothing = contestant.submit, contestant.take, workloads.nothing

    def turn(tasks: int) -> None:
        flight: collections.deque[Any] = collections.deque()
        for _ in range(min(WINDOW, tasks)):
            flight.append(submit(nothing))
        for _ in range(tasks - WINDOW):
            take(flight.popleft())
            flight.append(submit(nothing))
        while flight:
            take(flight.popleft())

    figures = {"rate": rate(turn, seconds, WINDOW)}
    contestant.close()
    return figures


def callbacks(peer: str, seconds: float) -> dict[str, float]:
    """The same by done-callbacks: each puts its future in a queue, which the main thread takes from."""
    contestant = pools.ALL[peer](2, ("harness.workloads",))
    submit, nothing = contestant.submit, workloads.nothing

    def turn(tasks: int) -> None:
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(min(WINDOW, tasks)):
            submit(nothing).add_done_callback(done.put)
        for _ in range(tasks - WINDOW):
            done.get().result()
            submit(nothing).add_done_callback(done.put)
        for _ in range(min(WINDOW, tasks)):
            done.get().result()

    figures = {"rate": rate(turn, seconds, WINDOW)}
    contestant.close()
    return figures


def coroutines(peer: str, seconds: float, run: bool) -> dict[str, float]:
    """The same by asyncio: a hundred coroutines that await one task after another.

    ``run`` says whether by ``await pool.run(f)``, which only Ropewalk has, or by ``loop.run_in_executor``.
    """
    contestant: Any = pools.ALL[peer](2, ("harness.workloads",))
    pool, nothing = contestant.pool, workloads.nothing

    async def crowd(tasks: int) -> None:
        loop = asyncio.get_running_loop()

        async def walker() -> None:
            for _ in range(tasks // WINDOW):
                if run:
                    await pool.run(nothing)
                else:
                    await loop.run_in_executor(pool, nothing)

        await asyncio.gather(*(walker() for _ in range(WINDOW)))

    with asyncio.Runner() as runner:
        figures = {"rate": rate(lambda tasks: runner.run(crowd(tasks)), seconds, WINDOW)}
    contestant.close()
    return figures


SECONDS = Size(0.5, 0.02)
PLAIN = Contest(results, "results", PLAYERS, seconds=SECONDS)
CALLED = Contest(callbacks, "callbacks", PLAYERS, seconds=SECONDS)
AWAITED = Contest(coroutines, "run_in_executor", PLAYERS, seconds=SECONDS, run=False)
RUN = Contest(coroutines, "pool.run", PLAYERS, seconds=SECONDS, run=True)


def _line(what: str, contest: Contest, *rest: Any, **more: Any) -> Line:
    return Line(what, "tasks/s", contest, "rate", *rest, more_is_better=True, **more)


ROW = Row(
    "window",
    "a hundred empty tasks in flight, 2 workers",
    "Tasks handed in and results taken by one thread (or one event loop), pool warm. Callbacks: each "
    "done-callback is SimpleQueue.put. asyncio: a hundred coroutines, each awaiting one task after "
    "another.",
    (
        _line(
            "100 in flight",
            PLAIN,
            at_least(200_000),
            {
                EXECUTOR: times_better(20),
                POOL: times_better(10),
                "pebble": times_better(14),
                THREADS: None,
                "loky": None,
                "mpire": None,
            },
        ),
        _line(
            "100 in flight, done-callbacks",
            CALLED,
            None,
            {EXECUTOR: times_better(8), "pebble": None},
        ),
        _line("100 in flight, asyncio, pool.run", RUN, None, {AWAITED.by(EXECUTOR): times_better(8)}),
        _line("100 in flight, asyncio, run_in_executor", AWAITED, None, {EXECUTOR: times_better(8)}),
        _line("threads: 100 in flight", PLAIN, None, {THREADS: None}, OUR_THREADS),
        _line("threads: 100 in flight, done-callbacks", CALLED, None, {THREADS: None}, OUR_THREADS),
        _line("threads: 100 in flight, asyncio", AWAITED, None, {THREADS: None}, OUR_THREADS),
    ),
)
