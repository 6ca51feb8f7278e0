"""Timing shared by contests: calls in sequence, rounds that grow until they can be timed, messages to a thread."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: How often `median` repeats a measurement in its interpreter; the first one warms up.
TIMES = 5


def median(measure: Callable[[], float]) -> float:
    """The middle one of five measurements, after one to warm up."""
    measure()
    return sorted(measure() for _ in range(TIMES))[TIMES // 2]


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
