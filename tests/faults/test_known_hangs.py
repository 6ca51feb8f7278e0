"""What hangs other pools, as their users have reported it."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import is_alive, until

import ropewalk

ROOT = Path(__file__).resolve().parents[2]


def test_a_backlog_outlives_the_workers_that_may_run_few_tasks(make_pool: Callable[..., Any]) -> None:
    """python/cpython#115634: a limit of tasks for each worker, and more tasks than that."""
    pool = make_pool(1, kind="process", max_tasks_per_child=2)
    pids = [future.result(60) for future in [pool.submit(os.getpid) for _ in range(10)]]
    assert len(set(pids)) >= 5
    assert all(pids.count(pid) <= 2 for pid in pids)


@pytest.mark.parametrize("running", [False, True])
def test_a_shutdown_after_a_cancellation_ends(make_pool: Callable[..., Any], running: bool) -> None:
    """python/cpython#94440: a task that is cancelled right after its submission, and a shutdown."""
    for _ in range(20):
        pool = make_pool(1, kind="process")
        pool.submit(int).result(60)
        pool.submit(int).cancel(running=running)
        pool.shutdown(wait=True)


@pytest.mark.parametrize("how", ["shut down", "dropped", "open"])
def test_accepted_tasks_are_run_though_their_workers_leave(make_pool: Callable[..., Any], how: str) -> None:
    """python/cpython#152978 (#119592, #152967): workers with a limit of tasks, and a pool that is gone meanwhile."""
    for limit in (1, 2, 3):
        pool = ropewalk.Pool(2, kind="process", max_tasks_per_child=limit)
        futures = [pool.submit(tasks.square, n) for n in range(20)]
        if how == "shut down":
            pool.shutdown(wait=False)
        elif how == "dropped":
            del pool
            gc.collect()
        assert [future.result(60) for future in futures] == [n * n for n in range(20)]
        if how == "open":
            pool.shutdown()


def test_a_program_with_such_a_pool_ends(tmp_path: Path) -> None:
    """The same: it also hung at the exit."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import ropewalk\nfrom tests import tasks\n"
        "def make():\n"
        "    pool = ropewalk.Pool(1, kind='process', max_tasks_per_child=1)\n"
        "    return [pool.submit(tasks.square, n) for n in range(4)]\n"
        "print([future.result(30) for future in make()])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[0, 1, 4, 9]"), done.stderr


@pytest.mark.parametrize("end", ["terminate_workers", "kill_workers", "terminate"])
def test_no_replacement_escapes_the_end(make_pool: Callable[..., Any], end: str) -> None:
    """The same: workers that were started while the others were killed lived on."""
    for _ in range(5):
        pool = make_pool(2, kind="process", max_tasks_per_child=1)
        futures = [pool.submit(tasks.square, n) for n in range(50)]
        futures[0].result(60)
        getattr(pool, end)()
        for future in futures:
            until(future.done)
        _await_end(pool)


def _await_end(pool: Any) -> None:
    pids = pool.statistics().worker_pids
    until(lambda: not pool.statistics().worker_pids)
    until(lambda: not any(is_alive(pid) for pid in pids))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_worker_that_is_killed_for_a_task_loses_no_other(
    make_pool: Callable[..., Any], threads: int
) -> None:
    """noxdafox/pebble#153: the worker is done with the cancelled task, and begins the next one as it is killed."""
    pool = make_pool(2, kind="process", threads=threads, retries=100, poison_after=None)
    chance = random.Random(7)
    counts = {"returned": 0, "cancelled": 0}
    futures: list[Any] = []
    for n in range(400):
        futures.append(pool.submit(_briefly, n))
        if n % 4 == 0:
            chance.choice(futures[-8:]).cancel(running=True)
    for n, future in enumerate(futures):
        try:
            assert future.result(60) == n
            counts["returned"] += 1
        except CancelledError:
            counts["cancelled"] += 1
    now = pool.statistics()
    assert (now.submitted, now.completed, now.cancelled) == (400, counts["returned"], counts["cancelled"])
    assert counts["returned"] >= 300
    assert now.failed == 0


def _briefly(n: int) -> int:
    time.sleep(0.0005)
    return n


def test_a_worker_killed_between_two_tasks_loses_neither(make_pool: Callable[..., Any]) -> None:
    """The same, with the kill from outside: what the worker had not begun goes to another one."""
    pool = make_pool(1, kind="process", retries=100, poison_after=None)
    futures = [pool.submit(_briefly, n) for n in range(40)]
    while not futures[-1].done():
        for pid in pool.statistics().worker_pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        _await_progress(pool, futures[-1])
    assert [future.result(60) for future in futures] == list(range(40))


def _await_progress(pool: Any, last: Any) -> None:
    before = pool.statistics().completed
    # A worker starts slowly where other suites run beside this one.
    until(lambda: last.done() or pool.statistics().completed > before, 60)
