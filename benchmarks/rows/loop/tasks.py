"""Table: tasks and futures of an event loop."""

from __future__ import annotations

import asyncio
import time

from harness.clock import median
from harness.loops import PEERS, PLAYERS, new_loop
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better


def tasks(loop_of: str, count: int) -> dict[str, float]:
    """A second's worth of: `sleep(0)` of one task and of a hundred, futures awaited, coroutines gathered."""
    loop = new_loop(loop_of)

    async def sleeper(times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)

    async def sleepers(number: int) -> float:
        times = count // number
        began = time.perf_counter_ns()
        await asyncio.gather(*[sleeper(times) for _ in range(number)])
        return number * times / (time.perf_counter_ns() - began) * 1e9

    async def futures() -> float:
        began = time.perf_counter_ns()
        for _ in range(count // 2):
            future = loop.create_future()
            loop.call_soon(future.set_result, None)
            await future
        return (count // 2) / (time.perf_counter_ns() - began) * 1e9

    async def one() -> int:
        return 1

    async def gather() -> float:
        number = count // 5
        began = time.perf_counter_ns()
        await asyncio.gather(*[one() for _ in range(number)])
        return number / (time.perf_counter_ns() - began) * 1e9

    run = loop.run_until_complete
    figures = {
        "one": median(lambda: run(sleepers(1))),
        "hundred": median(lambda: run(sleepers(100))),
        "futures": median(lambda: run(futures())),
        "gather": median(lambda: run(gather())),
    }
    loop.close()
    return figures


TASKS = Contest(tasks, players=PLAYERS, as_argument="loop_of", count=Size(50_000, 1000))


def _line(what: str, metric: str) -> Line:
    peers = dict.fromkeys(PEERS, times_better(1.1))
    return Line(what, "/s", TASKS, metric, None, peers, more_is_better=True)


ROW = Row(
    "tasks",
    "Tasks and futures, each second",
    "Tasks and futures are asyncio's own on every loop. Making them is counted.",
    (
        _line("sleep(0), one task", "one"),
        _line("sleep(0), 100 tasks", "hundred"),
        _line("futures awaited", "futures"),
        _line("gather of 10,000", "gather"),
    ),
)
