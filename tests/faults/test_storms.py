"""Workers that die one after the other: poison, limits, delays."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import until

import ropewalk


def _settled(pool: Any, total: int) -> Any:
    now = until(lambda: (s := pool.statistics()).completed + s.failed + s.cancelled == total and s)
    assert now.submitted == total
    return now


def _count_and_die(folder: str, number: int) -> None:
    (Path(folder) / f"run{os.getpid()}").touch()
    tasks.killed_by(number)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_poison_task_is_given_up(make_pool: Callable[..., Any], tmp_path: Path, number: int) -> None:
    pool = make_pool(2, kind="process")
    poison = pool.options(retries=100).submit(_count_and_die, str(tmp_path), int(number))
    others = [pool.options(retries=100).submit(tasks.square, n) for n in range(200)]
    with pytest.raises(ropewalk.PoisonTask) as caught:
        poison.result(60)
    error = caught.value
    assert isinstance(error, ropewalk.WorkerCrashed)
    assert (error.code, error.attempt, error.task) == ("RW-POISON-TASK", 3, poison.task.id)
    assert error.function == "tests.faults.test_storms._count_and_die"
    assert error.call is not None
    assert f"_count_and_die('{tmp_path}'" in error.call
    assert [(death.signal, death.exit_code, death.hung) for death in error.crashes] == [
        (number, None, False)
    ] * 3
    assert len({death.pid for death in error.crashes}) == 3
    assert all(str(death.pid) in str(error) for death in error.crashes)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.crashes, copy.function, str(copy)) == (error.crashes, error.function, str(error))
    assert [future.result(60) for future in others] == [n * n for n in range(200)]
    assert len(list(tmp_path.glob("run*"))) == 3
    now = _settled(pool, 201)
    assert (now.failed, now.poisoned, now.crashed) == (1, 1, 3)
    (quarantined,) = pool.quarantine()
    assert (quarantined.task, quarantined.function) == (error.task, error.function)
    assert (quarantined.crashes, quarantined.call) == (error.crashes, error.call)
    assert pool.options(priority=1).quarantine() == pool.quarantine()


@pytest.mark.parametrize(("limit", "runs", "kind"), [(1, 1, "PoisonTask"), (None, 5, "WorkerCrashed")])
def test_the_number_that_makes_poison_is_the_programs(
    make_pool: Callable[..., Any], tmp_path: Path, limit: int | None, runs: int, kind: str
) -> None:
    pool = make_pool(1, kind="process", retries=4, poison_after=limit)
    error = pool.submit(_count_and_die, str(tmp_path), signal.SIGKILL).exception(60)
    assert type(error).__name__ == kind
    assert len(list(tmp_path.glob("run*"))) == runs


def test_tasks_that_did_not_do_it_are_no_poison(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", threads=2, retries=9, poison_after=1, grace=0)
    for _ in range(3):
        # It ends with the worker that is ended for the other one.
        cancelled = pool.submit(tasks.spin)
        until(cancelled.running)
        beside = pool.submit(_pid_after, 0.05)
        until(beside.running)
        assert cancelled.cancel(running=True)
        assert beside.result(60)
    assert pool.quarantine() == ()


def _pid_after(seconds: float) -> int:
    import time

    time.sleep(seconds)
    return os.getpid()


def test_more_deaths_than_allowed_break_the_pool(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", max_restarts=(2, 60))
    deaths = [pool.submit(tasks.killed_by, signal.SIGKILL) for _ in range(3)]
    behind = [pool.submit(tasks.square, n) for n in range(20)]
    for death in deaths:
        assert type(death.exception(60)) is ropewalk.WorkerCrashed
    for future in behind:
        error = future.exception(60)
        assert isinstance(error, ropewalk.PoolUnhealthy)
        assert isinstance(error, ropewalk.PoolBroken)
        assert (error.code, error.limit, error.seconds) == ("RW-POOL-UNHEALTHY", 2, 60.0)
        assert isinstance(error.__cause__, ropewalk.WorkerCrashed)
        assert error.__cause__.signal == signal.SIGKILL
        assert "more than 2 of its workers died within 60 s" in str(error)
        assert str(error.__cause__.pid) in str(error)
    with pytest.raises(ropewalk.PoolUnhealthy):
        pool.submit(tasks.square, 1)
    now = _settled(pool, 23)
    assert (now.failed, now.crashed, now.completed) == (23, 3, 0)


def test_what_the_pool_ends_itself_is_no_death(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", max_restarts=(0, 60), task_timeout=0.05)
    for _ in range(3):
        assert isinstance(pool.submit(tasks.spin).exception(60), ropewalk.TaskTimeout)
    hung = pool.options(task_timeout=None, hang_timeout=0.05).submit(tasks.spin)
    assert isinstance(hung.exception(60), ropewalk.TaskHung)
    cancelled = pool.options(task_timeout=None).submit(tasks.spin)
    until(cancelled.running)
    assert cancelled.cancel(running=True)
    assert pool.submit(tasks.square, 2).result(60) == 4
    assert pool.statistics().crashed == 0


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (5, TypeError),
        ((1,), TypeError),
        ("ab", TypeError),
        ((-1, 3), ValueError),
        ((1, 0), ValueError),
        ((1, -1), ValueError),
        ((1, None), ValueError),
        ((1.5, 3), TypeError),
    ],
    ids=str,
)
def test_limits_of_restarts_that_make_no_sense(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_restarts must be"):
        ropewalk.Pool(1, max_restarts=value)


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-1, ValueError), ("3", TypeError)], ids=str)
def test_limits_of_poison_that_make_no_sense(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="poison_after must be"):
        ropewalk.Pool(1, poison_after=value)


def test_a_crash_storm_is_slowed_down_and_ends(make_pool: Callable[..., Any]) -> None:
    with ropewalk.events.subscribe("pool.restarts.delayed") as subscription:
        pool = make_pool(2, kind="process", name="storm")
        deaths = [pool.submit(tasks.killed_by, signal.SIGKILL) for _ in range(14)]
        behind = [pool.submit(tasks.square, n) for n in range(20)]
        delayed = subscription.recv(timeout=30)
        assert delayed.pool == "storm"
        assert "workers died in a row" in delayed.reason
        until(lambda: "Short of workers" in pool.explain() or deaths[-1].done())
    for death in deaths:
        assert type(death.exception(60)) is ropewalk.WorkerCrashed
    assert [future.result(60) for future in behind] == [n * n for n in range(20)]
    now = _settled(pool, 34)
    assert (now.failed, now.crashed, now.completed) == (14, 14, 20)
    until(lambda: len(pool.statistics().worker_pids) == 2)
    assert "Short of workers" not in pool.explain()


def test_the_events_of_poison_and_of_the_end(make_pool: Callable[..., Any]) -> None:
    with ropewalk.events.subscribe("pool.**") as subscription:
        pool = make_pool(1, kind="process", name="ill", retries=9, poison_after=2, max_restarts=(2, 60))
        poison = pool.submit(tasks.killed_by, signal.SIGKILL)
        poison.exception(60)
        pool.submit(tasks.killed_by, signal.SIGKILL).exception(60)
        heard: dict[str, Any] = {}
        while "pool.broken" not in heard:
            event = subscription.recv(timeout=30)
            heard.setdefault(event.topic, event)
    assert (heard["pool.task.poisoned"].task, heard["pool.task.poisoned"].reason) == (
        poison.task.id,
        "tests.tasks.killed_by",
    )
    assert heard["pool.task.failed"].reason == "poisoned"
    assert "more than 2 workers died within 60 s" in heard["pool.unhealthy"].reason


def _take_all_memory(limit: int) -> int:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    taken = []
    while True:
        taken.append(bytearray(1 << 20))


def test_a_task_that_takes_all_the_memory_of_its_limit_fails_alone(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process", max_tasks=None)
    greedy = pool.submit(_take_all_memory, 1 << 30)
    others = [pool.options(retries=9).submit(tasks.square, n) for n in range(100)]
    # Python may say so itself, or not get that far.
    assert isinstance(greedy.exception(60), (MemoryError, ropewalk.WorkerCrashed))
    assert [future.result(60) for future in others] == [n * n for n in range(100)]
    now = _settled(pool, 101)
    assert (now.completed, now.failed) == (100, 1)
