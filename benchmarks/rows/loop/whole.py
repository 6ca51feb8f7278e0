"""Table: what happens once for each loop, executor call or child process."""

from __future__ import annotations

import asyncio
import time

from harness.clock import median
from harness.loops import PEERS, PLAYERS, new_loop
from harness.measure import Size
from harness.table import Contest, Line, Row, at_most, times_better
from harness.workloads import nothing


def whole(loop_of: str, count: int) -> dict[str, float]:
    """Microseconds to make, run and close a loop, and for an empty call in the default executor."""

    def loops() -> float:
        began = time.perf_counter_ns()
        for _ in range(count):
            loop = new_loop(loop_of)
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()
        return (time.perf_counter_ns() - began) / count / 1e3

    async def executor() -> float:
        loop = asyncio.get_running_loop()
        began = time.perf_counter_ns()
        for _ in range(10):
            await asyncio.gather(*[loop.run_in_executor(None, nothing) for _ in range(100)])
        return (time.perf_counter_ns() - began) / 1000 / 1e3

    made = new_loop(loop_of)
    figures = {"loop": median(loops), "executor": median(lambda: made.run_until_complete(executor()))}
    made.run_until_complete(made.shutdown_default_executor())
    made.close()
    return figures


def children(loop_of: str, count: int, megabytes: int) -> dict[str, float]:
    """Milliseconds to start /bin/true and wait for it, in a parent that has touched so much memory."""
    memory = bytearray(megabytes << 20)
    memory[::4096] = b"x" * len(memory[::4096])

    async def main() -> float:
        began = time.perf_counter_ns()
        for _ in range(count):
            child = await asyncio.create_subprocess_exec("/bin/true")
            await child.wait()
        return (time.perf_counter_ns() - began) / count / 1e6

    loop = new_loop(loop_of)
    asyncio.set_event_loop(loop)
    took = median(lambda: loop.run_until_complete(main()))
    asyncio.set_event_loop(None)
    loop.close()
    return {"child": took}


def _children(name: str, megabytes: int) -> Contest:
    return Contest(children, name, PLAYERS, as_argument="loop_of", count=Size(20, 2), megabytes=megabytes)


WHOLE = Contest(whole, players=PLAYERS, as_argument="loop_of", count=Size(100, 5))
CHILD, LARGE = _children("child", 1), _children("large", 500)

ROW = Row(
    "whole",
    "Loops, executor calls, child processes",
    "A loop made, run for one turn and closed; an empty call in the default executor, 100 at a time; /bin/true started "
    "and waited for.",
    (
        Line(
            "empty call in the executor", "µs", WHOLE, "executor", None, {**PEERS, "uvloop": times_better(2)}
        ),
        Line("made, run, closed", "µs", WHOLE, "loop", at_most(60), PEERS),
        Line("child process", "ms", CHILD, "child", at_most(0.55), PEERS),
        Line(
            "child of a parent of 500 MB",
            "ms",
            LARGE,
            "child",
            None,
            {CHILD.by("ropewalk"): None, "uvloop": None},
        ),
    ),
)
