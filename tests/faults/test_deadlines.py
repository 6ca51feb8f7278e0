"""Budgets and cancellation: an overrun ends the task, and the slot is free again."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest
from tests import tasks
from tests.polling import is_alive, until
from tests.tasks import Gate

import windlass


def test_an_overrun_ends_the_task(processes: Any, gate: Gate) -> None:
    future = processes.options(timeout=0.5).submit(gate.hold)
    with pytest.raises(windlass.TaskTimeout) as caught:
        future.result(60)
    error = caught.value
    assert isinstance(error, TimeoutError)
    assert (error.code, error.phase, error.seconds) == ("WL-TIMEOUT", "running", 0.5)
    (pid,) = gate.marks()
    assert future.task.worker_pid == pid
    until(lambda: not is_alive(pid))
    # The slot is used again, by another process.
    until(lambda: pid not in (pids := processes.statistics().worker_pids) and len(pids) == 2)
    assert [f.result(60) for f in [processes.submit(tasks.square, n) for n in range(20)]][-1] == 361
    now = processes.statistics()
    assert (now.timed_out, now.failed, now.crashed) == (1, 1, 0)


def test_an_overrun_in_a_pool_of_one(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process")
    late = pool.options(timeout=0.5).submit(gate.hold)
    until(gate.marks)
    behind = [pool.submit(tasks.square, n) for n in range(20)]
    assert isinstance(late.exception(60), windlass.TaskTimeout)
    assert [future.result(60) for future in behind] == [n * n for n in range(20)]


def test_a_budget_covers_the_wait(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    held = pool.submit(gate.hold)
    until(gate.marks)
    late = pool.options(timeout=0.2).submit(gate.mark, "late")
    with pytest.raises(windlass.TaskTimeout) as caught:
        late.result(60)
    assert (caught.value.phase, caught.value.seconds) == ("queued", 0.2)
    assert late.task.worker_pid == 0
    gate.open()
    assert held.result(60)
    assert pool.submit(tasks.square, 3).result(60) == 9
    assert gate.marks("late") == []


def test_an_overrun_in_a_thread_is_told_though_it_runs_on(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="thread")
    late = pool.options(timeout=0.3).submit(gate.hold)
    with pytest.raises(windlass.TaskTimeout) as caught:
        late.result(60)
    assert caught.value.phase == "running"
    behind = pool.submit(tasks.square, 3)
    assert not behind.done()
    gate.open()
    assert behind.result(60) == 9


def test_a_budget_that_is_kept_changes_nothing(pool: Any) -> None:
    assert [pool.options(timeout=60).submit(tasks.square, n).result() for n in range(20)] == [
        n * n for n in range(20)
    ]
    assert list(pool.options(timeout=60).map(tasks.square, range(20))) == [n * n for n in range(20)]
    assert pool.statistics().timed_out == 0


def test_a_budget_of_nothing(processes: Any, gate: Gate) -> None:
    future = processes.options(timeout=0).submit(gate.hold)
    assert isinstance(future.exception(60), windlass.TaskTimeout)


def test_a_pools_own_budget_and_one_without(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process", timeout=0.3)
    free = pool.options(timeout=None).submit(gate.hold, "free")
    assert isinstance(pool.submit(gate.hold).exception(60), windlass.TaskTimeout)
    assert not free.done()
    gate.open()
    assert free.result(60)


def test_a_late_task_is_not_tried_again(processes: Any, gate: Gate) -> None:
    future = processes.options(timeout=0.4, retries=5).submit(gate.hold)
    assert isinstance(future.exception(60), windlass.TaskTimeout)
    # One budget for all attempts: it is spent.
    assert len(gate.marks()) == 1


def test_a_late_input_of_map(processes: Any, gate: Gate) -> None:
    assert processes.submit(tasks.square, 2).result(60) == 4
    results = processes.options(timeout=2.0).map(_hold_if, [0, gate, 0])
    assert next(results) == 0
    with pytest.raises(windlass.TaskTimeout):
        next(results)
    assert next(results) == 0


def _hold_if(gate: Any) -> int:
    if gate:
        gate.hold()
    return 0


def test_many_overruns(processes: Any, gate: Gate) -> None:
    futures = [processes.options(timeout=0.3).submit(gate.hold) for _ in range(30)]
    phases = [future.exception(60).phase for future in futures]
    assert set(phases) <= {"queued", "running"}
    assert "running" in phases
    assert processes.submit(tasks.square, 3).result(60) == 9


def test_cancelling_a_running_task(processes: Any, gate: Gate) -> None:
    future = processes.submit(gate.hold)
    (pid,) = until(gate.marks)
    until(future.running)
    assert not future.cancel(), "the standard library's cancel leaves a running task alone"
    assert future.cancel(running=True)
    assert future.cancelled()
    assert future.done()
    with pytest.raises(CancelledError):
        future.result(60)
    until(lambda: not is_alive(pid))
    assert [f.result(60) for f in [processes.submit(tasks.square, n) for n in range(20)]][-1] == 361
    now = processes.statistics()
    assert (now.cancelled, now.failed, now.crashed) == (1, 0, 0)


def test_cancelling_a_running_task_spares_those_behind_it(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process")
    future = pool.submit(gate.hold)
    until(gate.marks)
    behind = [pool.submit(tasks.square, n) for n in range(20)]
    assert future.cancel(running=True)
    assert [f.result(60) for f in behind] == [n * n for n in range(20)]


def test_a_running_thread_cannot_be_cancelled(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="thread")
    future = pool.submit(gate.hold)
    until(gate.marks)
    assert not future.cancel(running=True)
    gate.open()
    assert future.result(60) == os.getpid()


def test_cancelling_what_is_done(processes: Any) -> None:
    future = processes.submit(tasks.square, 3)
    assert future.result(60) == 9
    assert not future.cancel()
    assert not future.cancel(running=True)
    assert future.result() == 9


def test_cancelling_an_await_ends_the_task(processes: Any, gate: Gate) -> None:
    async def main() -> int:
        task = asyncio.create_task(processes.run(gate.hold))
        while not gate.marks():
            await asyncio.sleep(0.002)
        (pid,) = gate.marks()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await processes.run(tasks.square, 4) == 16
        return pid

    pid = asyncio.run(main())
    until(lambda: not is_alive(pid))
    assert processes.statistics().cancelled == 1


def test_an_await_with_a_timeout_of_asyncios(processes: Any, gate: Gate) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await processes.run(gate.hold)

    asyncio.run(main())
    until(lambda: all(not is_alive(pid) for pid in gate.marks()))


def test_waiting_no_longer_leaves_the_task_alone(processes: Any, gate: Gate) -> None:
    future = processes.submit(gate.hold)
    until(gate.marks)
    with pytest.raises(TimeoutError) as caught:
        future.result(timeout=0.05)
    assert not isinstance(caught.value, windlass.WindlassError)
    with pytest.raises(TimeoutError):
        future.exception(timeout=0)
    gate.open()
    assert future.result(60) == gate.marks()[0]


def test_cancelled_tasks_of_every_stage(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process")
    futures = [pool.submit(gate.hold) for _ in range(50)]
    until(lambda: len(gate.marks()) == 2)
    for future in futures:
        assert future.cancel(running=True)
    assert all(future.cancelled() for future in futures)
    assert pool.submit(tasks.square, 3).result(60) == 9
    # Nothing that was cancelled while it waited was run in the meantime.
    until(lambda: pool.statistics().queued == 0)
    assert len(gate.marks()) == 2
    deadline = time.monotonic() + 30
    while len(pool.statistics().worker_pids) < 2:
        assert time.monotonic() < deadline
