"""Workers are killed while others are replaced: every task has one result, and the pool is as large as before."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.polling import until

import ropewalk

WORKERS = 3


def work(number: int) -> int:
    until_then = time.perf_counter() + 0.002
    while time.perf_counter() < until_then:
        pass
    return number


def test_kills_while_others_are_recycled(make_pool: Callable[..., Any]) -> None:
    pool: ropewalk.Pool = make_pool(WORKERS, kind="process", max_tasks=25, retries=50, poison_after=None)
    until(lambda: pool.statistics().ready == WORKERS)
    chance, killed, ends = random.Random(7), set[int](), threading.Event()

    def kill() -> None:
        while not ends.wait(0.05):
            victims = [pid for pid in pool.statistics().worker_pids if pid not in killed]
            if victims:
                victim = chance.choice(victims)
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    killed.add(victim)

    killer = threading.Thread(target=kill)
    killer.start()
    results: list[int] = []
    try:
        deadline = time.monotonic() + 3
        number = 0
        while time.monotonic() < deadline or not killed:
            futures = [pool.submit(work, number + step) for step in range(60)]
            number += len(futures)
            results.extend(future.result(60) for future in futures)
    finally:
        ends.set()
        killer.join()
    assert results == list(range(number))
    until(lambda: pool.statistics().ready == WORKERS)
    now = pool.statistics()
    assert now.completed == now.submitted == number
    assert now.crashed <= len(killed)
    assert now.recycled["max_tasks"] > 0
    assert pool.submit(abs, -1).result(60) == 1


def test_workers_grow_old_under_load_without_a_dip(make_pool: Callable[..., Any]) -> None:
    # To import this module may take a worker longer than it is to live.
    pool: ropewalk.Pool = make_pool(WORKERS, kind="process", max_age=0.05, preload=[__name__])
    until(lambda: pool.statistics().ready == WORKERS)
    least, ends = [WORKERS], threading.Event()

    def look() -> None:
        while not ends.is_set():
            least[0] = min(least[0], pool.statistics().ready)

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for number, answer in enumerate(pool.map(work, range(800), chunksize=1)):
            assert answer == number
    finally:
        ends.set()
        looker.join()
    until(lambda: pool.statistics().recycled["max_age"] >= 3)
    assert least == [WORKERS]


def test_a_zygote_that_is_killed_while_workers_are_replaced(make_pool: Callable[..., Any]) -> None:
    pool: ropewalk.Pool = make_pool(2, kind="process", max_age=0.05, retries=20, poison_after=None)
    zygote = pool.submit(os.getppid).result(60)
    futures = [pool.submit(work, number) for number in range(200)]
    os.kill(zygote, signal.SIGKILL)
    assert [future.result(60) for future in futures] == list(range(200))
    until(lambda: pool.statistics().ready == 2)
