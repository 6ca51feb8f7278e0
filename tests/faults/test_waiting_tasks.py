"""Workers are killed while tasks wait in turns, are dropped, or wait for their next run: each ends exactly once."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

import pytest
from tests.polling import until
from tests.tasks import Gate

import ropewalk


def sometimes(number: int) -> int:
    """Raises for some numbers, by chance for others, and takes a moment."""
    if number % 5 == 0 or random.random() < 0.2:
        raise ConnectionError(number)
    return number


@pytest.mark.parametrize("overflow", ["block", "drop_oldest"])
def test_each_task_ends_once_while_workers_are_killed(make_pool: Callable[..., Any], overflow: str) -> None:
    capacity = 40 if overflow == "drop_oldest" else None
    pool = make_pool(2, kind="process", capacity=capacity, overflow=overflow, aging=0.01)
    retry = ropewalk.Retry(attempts=4, backoff=0.002, max_delay=0.01, on=ConnectionError)
    chance = random.Random(7)
    ends: Counter[int] = Counter()
    futures = []
    stop = threading.Event()

    def kill() -> None:
        # Not without end: a pool whose workers keep dying waits longer and longer before it starts others.
        for _ in range(30):
            if stop.wait(0.01):
                return
            for pid in pool.statistics().worker_pids[:1]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        for number in range(600):
            client = chance.choice([None, "a", "b"])
            priority = chance.choice([0, 0, 0, -1, 1])
            future = pool.options(client=client, priority=priority, retries=retry).submit(sometimes, number)
            future.add_done_callback(lambda _, number=number: ends.update([number]))
            futures.append(future)
            if number % 40 == 0:
                futures[chance.randrange(len(futures))].cancel()
        outcomes: Counter[str] = Counter()
        for number, future in enumerate(futures):
            try:
                assert future.result(60) == number
                outcomes["returned"] += 1
            except CancelledError:
                outcomes["cancelled"] += 1
            except ConnectionError:
                outcomes["raised"] += 1
                # A run whose worker died counts, too.
                assert future.task.attempt == 4
            except ropewalk.TaskDropped:
                outcomes["dropped"] += 1
            except ropewalk.WorkerCrashed as error:
                outcomes["crashed"] += 1
                # The third worker in a row that dies of a task is its last.
                assert isinstance(error, ropewalk.PoisonTask) or future.task.attempt == 4  # noqa: PT017
    finally:
        stop.set()
        killer.join()
    until(lambda: len(ends) == len(futures))
    assert set(ends.values()) == {1}
    now = pool.statistics()
    assert (now.queued, now.running, now.delayed) == (0, 0, 0)
    assert now.submitted == len(futures) == now.completed + now.failed + now.cancelled
    assert (now.completed, now.dropped) == (outcomes["returned"], outcomes["dropped"])
    assert outcomes["returned"] > 0
    assert (outcomes["dropped"] > 0) == (overflow == "drop_oldest")


def test_a_delayed_run_outlives_all_workers(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process")
    retry = ropewalk.Retry(backoff=0.3, jitter="none")
    future = pool.options(retries=retry).submit(once, gate)
    until(lambda: pool.statistics().delayed == 1)
    for pid in pool.statistics().worker_pids:
        os.kill(pid, signal.SIGKILL)
    assert future.result(60) == 2
    assert future.task.attempt == 2


def once(gate: Gate) -> int:
    gate.mark("run")
    if len(gate.marks("run")) == 1:
        raise ConnectionError
    return len(gate.marks("run"))
