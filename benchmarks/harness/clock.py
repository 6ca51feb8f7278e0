"""Timing shared by contests: calls in sequence, rounds that grow until they can be timed, messages to a thread."""

from __future__ import annotations

import threading
import time
import timeit
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: How often `median` repeats a measurement in its interpreter; the first one warms up.
TIMES = 5


def median(measure: Callable[[], float]) -> float:
    """The middle one of five measurements, after one to warm up."""
    measure()
    return sorted(measure() for _ in range(TIMES))[TIMES // 2]


def per_statement(statement: str, given: Mapping[str, object], calls: int) -> float:
    """Nanoseconds of a statement on local variables, without the frame that a call of it would cost.

    It stands ten times in the loop, whose own cost is so a tenth for each; the collector of garbage is off.
    """
    names = "\n".join(f"{name} = given[{name!r}]" for name in given)
    timer = timeit.Timer("\n".join([statement] * 10), names, globals={"given": given})
    turns = max(1, calls // 10)
    return median(lambda: timer.timeit(turns)) / (10 * turns) * 1e9


def seconds_of(step: Callable[[], object]) -> float:
    """What one call takes; the middle one of five, after one to warm up."""

    def once() -> float:
        began = time.perf_counter()
        step()
        return time.perf_counter() - began

    return median(once)


def repeat(seconds: float, step: Callable[[], object]) -> int:
    """Repeats a step for so long, and at least twice; says how often it was."""
    count, until = 0, time.perf_counter() + seconds
    while count < 2 or time.perf_counter() < until:
        step()
        count += 1
    return count


def rate(turn: Callable[[int], object], seconds: float, least: int) -> float:
    """Tasks a second of a turn that takes about so long; shorter turns find its size and warm up.

    A turn has a multiple of ``least`` tasks.
    """
    tasks = 2 * least
    while True:
        began = time.perf_counter()
        turn(tasks)
        spent = time.perf_counter() - began
        if spent >= seconds / 4:
            break
        tasks *= 4
    tasks = max(tasks, int(tasks * seconds / spent)) // least * least
    began = time.perf_counter()
    turn(tasks)
    return tasks / (time.perf_counter() - began)


def per_call(call: Callable[[], object], calls: int) -> dict[str, float]:
    """Nanoseconds of a call, after a tenth as many to warm up."""
    for _ in range(calls // 10):
        call()
    began = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return {"ns": (time.perf_counter_ns() - began) / calls}


def per_message(
    messages: int, produce: Callable[[], object], consume: Callable[[], object]
) -> dict[str, float]:
    """Nanoseconds for a message: from the start of the publishing thread to the last reception."""
    thread = threading.Thread(target=produce)
    began = time.perf_counter_ns()
    thread.start()
    consume()
    took = time.perf_counter_ns() - began
    thread.join()
    return {"ns": took / messages}
