"""What pools tell of their lives."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests import tasks
from tests.polling import until

import ropewalk


@pytest.fixture
def heard() -> Iterator[Callable[[str, str], ropewalk.PoolEvent]]:
    """The next event of a pool on a topic; others are passed over."""
    with ropewalk.events.subscribe("pool.**") as subscription:

        def next_of(pool: str, topic: str) -> ropewalk.PoolEvent:
            while True:
                event: ropewalk.PoolEvent = subscription.recv(timeout=30)
                if (event.pool, event.topic) == (pool, topic):
                    return event

        yield next_of


def test_a_worker_s_life(make_pool: Callable[..., Any], heard: Any) -> None:
    pool = make_pool(1, kind="process", name="lives")
    started = heard("lives", "pool.worker.started")
    assert started.pid == until(lambda: pool.statistics().worker_pids)[0]
    future = pool.submit(tasks.killed_by, signal.SIGKILL)
    with pytest.raises(ropewalk.WorkerCrashed):
        future.result(60)
    failed = heard("lives", "pool.task.failed")
    assert (failed.task, failed.reason, failed.pid) == (future.task.id, "crashed", started.pid)
    crashed = heard("lives", "pool.worker.crashed")
    assert (crashed.pid, crashed.signal, crashed.exit_code) == (started.pid, signal.SIGKILL, None)
    again = heard("lives", "pool.worker.started")
    assert again.pid != started.pid
    with pytest.raises(ropewalk.TaskTimeout):
        pool.options(task_timeout=0.05).submit(tasks.spin).result(60)
    assert heard("lives", "pool.task.failed").reason == "timed out"
    assert heard("lives", "pool.worker.recycled").pid == again.pid
    pool.shutdown()
    assert heard("lives", "pool.ended").reason is None


def test_a_worker_that_leaves(make_pool: Callable[..., Any], heard: Any) -> None:
    pool = make_pool(1, kind="process", name="leaves")
    with pytest.raises(ropewalk.WorkerCrashed):
        pool.submit(tasks.leave, 7).result(60)
    assert heard("leaves", "pool.worker.crashed").exit_code == 7


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_failed_tasks(make_pool: Callable[..., Any], heard: Any, kind: str) -> None:
    name = f"fails-{kind}"
    pool = make_pool(1, kind=kind, name=name)
    future = pool.submit(tasks.fail, "no")
    with pytest.raises(ValueError, match="no"):
        future.result(60)
    event = heard(name, "pool.task.failed")
    assert (event.task, event.reason) == (future.task.id, "raised")
    assert (event.pid == os.getpid()) == (kind == "thread")


def test_a_full_queue(make_pool: Callable[..., Any], heard: Any, gate: tasks.Gate) -> None:
    pool = make_pool(1, kind="process", name="full", capacity=1, overflow="error")
    taken = 0
    with pytest.raises(ropewalk.QueueFull):  # noqa: PT012 -- how many it takes is its own affair
        while taken < 1000:
            pool.submit(gate.hold)
            taken += 1
    assert heard("full", "pool.saturated").queued == 1


def test_a_broken_pool(make_pool: Callable[..., Any], heard: Any) -> None:
    pool = make_pool(1, kind="process", name="breaks", initializer=tasks.fail, initargs=("no",))
    with pytest.raises(ropewalk.InitializerFailed):
        pool.submit(tasks.square, 2).result(60)
    assert heard("breaks", "pool.broken").reason == "an initializer failed"
