"""Workers that are stopped, and workers that lose their descriptors in the middle of a stream."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.tasks import Gate

import ropewalk


def _closes(count: int) -> Iterator[int]:
    """Yields so many numbers, and closes every descriptor of the worker but the standard ones after the third."""
    for number in range(count):
        if number == 3:
            os.closerange(3, 1 << 16)
        yield number


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def test_a_stopped_worker_holds_up_its_task_alone(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process")
    held = pool.submit(gate.hold)
    (pid,) = until(gate.marks)
    os.kill(pid, signal.SIGSTOP)
    until(lambda: _is_stopped(pid))
    gate.open()
    assert [pool.submit(tasks.square, n).result(60) for n in range(200)] == [n * n for n in range(200)]
    assert not held.done()
    os.kill(pid, signal.SIGCONT)
    assert held.result(60) == pid
    assert pool.statistics().crashed == 0


def test_a_stopped_worker_that_is_killed_costs_its_task_alone(
    make_pool: Callable[..., Any], gate: Gate
) -> None:
    pool = make_pool(2, kind="process", retries=0)
    held = pool.submit(gate.hold)
    (pid,) = until(gate.marks)
    os.kill(pid, signal.SIGSTOP)
    waiting = [pool.submit(tasks.square, n) for n in range(100)]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ropewalk.WorkerCrashed) as caught:
        held.result(60)
    assert (caught.value.pid, caught.value.signal) == (pid, signal.SIGKILL)
    assert [future.result(60) for future in waiting] == [n * n for n in range(100)]
    records = {record.id: record for record in pool.records()}
    assert records[held.task.id].outcome == "crashed"
    assert records[held.task.id].started_at is not None
    assert {records[future.task.id].outcome for future in waiting} == {"returned"}


def test_a_stopped_worker_hangs(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", hang_timeout=0.3, grace=0.1)
    pid = pool.submit(os.getpid).result(60)
    held = pool.submit(time.sleep, 100)
    until(held.running)
    os.kill(pid, signal.SIGSTOP)
    assert isinstance(held.exception(60), (ropewalk.TaskHung, ropewalk.WorkerCrashed))
    assert pool.submit(os.getpid).result(60) != pid


def test_a_worker_that_closes_our_descriptors_during_a_stream(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process")
    stream = pool.stream(_closes, 1000)
    read: list[int] = []
    with suppress(ropewalk.WorkerCrashed):
        read.extend(stream)
        assert len(read) == 1000
    assert read == list(range(len(read))), "what came is in order, and complete up to there"
    assert [pool.submit(tasks.square, n).result(60) for n in range(20)] == [n * n for n in range(20)]
    until(lambda: pool.statistics().ready == 2)
    now = pool.statistics()
    assert (now.queued, now.running) == (0, 0)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"workers": 0}, ("workers", "0")),
        ({"workers": 2**70}, ("workers",)),
        ({"workers": 2, "threads": 0}, ("threads", "0")),
        ({"workers": 2, "threads": 10**6}, ("threads", "1000000")),
        ({"capacity": 0}, ("capacity", "0")),
        ({"records": 10**9}, ("records", "1000000000")),
        ({"max_tasks": 0}, ("max_tasks", "0")),
        ({"max_rss": 0}, ("max_rss", "0")),
        ({"max_age": -1.0}, ("max_age", "-1")),
        ({"min_workers": 0, "max_workers": 2}, ("min_workers", "0")),
        ({"min_workers": 3, "max_workers": 2}, ("min_workers", "3", "2")),
        ({"recycle_jitter": 2.0, "max_tasks": 5}, ("recycle_jitter", "2")),
        ({"max_restarts": (-1, 1.0)}, ("max_restarts", "-1")),
        ({"hang_timeout": 0}, ("hang_timeout", "0")),
        ({"poison_after": 0}, ("poison_after", "0")),
    ],
)
def test_impossible_sizes_are_named(settings: dict[str, Any], named: tuple[str, ...]) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        ropewalk.Pool(kind="process", **settings)
    for part in named:
        assert part in str(caught.value)
