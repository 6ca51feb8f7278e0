"""How many workers a pool has: set by the program, or following the load."""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.polling import until

import ropewalk


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_a_pool_of_another_size(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(1, kind=kind)
    for workers in (4, 2, 3, 1):
        pool.resize(workers)
        until(lambda workers=workers: pool.statistics().ready == workers)
        assert pool.statistics().workers == workers
        futures = [pool.submit(pow, 2, number) for number in range(20)]
        assert [future.result(60) for future in futures] == [2**number for number in range(20)]


def test_as_many_threads_run_as_the_pool_is_meant_to_have(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="thread", name="resized")

    def threads() -> int:
        return sum(thread.name.startswith("resized-thread-") for thread in threading.enumerate())

    for workers in (4, 2, 5, 1):
        pool.resize(workers)
        until(lambda workers=workers: threads() == workers)
    together = threading.Barrier(3)
    pool.resize(2)
    pool.resize(3)
    assert [future.result(60) for future in [pool.submit(together.wait, 30) for _ in range(3)]]


def test_what_a_smaller_pool_has_not_started_goes_to_others(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(4, kind="process")
    until(lambda: pool.statistics().ready == 4)
    futures = [pool.submit(time.sleep, 0.01) for _ in range(100)]
    pool.resize(1)
    for future in futures:
        assert future.result(60) is None
    until(lambda: len(pool.statistics().worker_pids) == 1)
    now = pool.statistics()
    assert (now.recycled["shrunk"], now.crashed, now.failed) == (3, 0, 0)


def test_workers_that_were_added_have_last_words(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    pool.resize(5)
    until(lambda: pool.statistics().ready == 5)
    futures = [pool.submit(faulthandler._sigsegv) for _ in range(5)]  # type: ignore[attr-defined]
    for future in futures:
        with pytest.raises(ropewalk.WorkerCrashed) as caught:
            future.result(60)
        assert "Segmentation fault" in caught.value.stack


def test_a_map_uses_a_pool_that_has_grown(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    pool.resize(3)
    assert pool._max_workers == 3
    assert list(pool.map(abs, range(-50, 0))) == list(range(50, 0, -1))


def test_the_number_of_workers_follows_the_load(make_pool: Callable[..., Any]) -> None:
    with ropewalk.events.subscribe("pool.resized") as events:
        pool = make_pool(kind="process", min_workers=1, max_workers=4, idle_timeout=0.2, name="follows")
        assert "1 to 4 worker processes" in pool.explain()
        assert pool.statistics().workers == 1
        futures = [pool.submit(time.sleep, 0.2) for _ in range(12)]
        until(lambda: pool.statistics().ready == 4)
        for future in futures:
            assert future.result(60) is None
        until(lambda: pool.statistics().workers == 1 and len(pool.statistics().worker_pids) == 1)
        assert pool.submit(abs, -1).result(60) == 1
        sizes = [events.recv(timeout=30).workers for _ in range(5)]
    assert sizes == [2, 4, 3, 2, 1]


def test_a_pool_whose_tasks_do_not_wait_does_not_grow(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(kind="process", min_workers=1, max_workers=4)
    for number in range(300):
        assert pool.submit(abs, number).result(60) == number
    assert pool.statistics().workers <= 2  # A machine under load may let one task wait.


@pytest.mark.parametrize(
    ("settings", "error", "told"),
    [
        ({"min_workers": 0}, ValueError, "min_workers must be 1 or more"),
        ({"min_workers": 3, "max_workers": 2}, ValueError, "min_workers must be max_workers or less"),
        ({"min_workers": 1, "workers": 2}, TypeError, "max_workers with min_workers"),
        ({"idle_timeout": 1}, TypeError, "idle_timeout needs min_workers"),
        ({"min_workers": 1, "idle_timeout": -1}, ValueError, "idle_timeout must be 0 or more"),
        ({"min_workers": 1, "kind": "thread"}, ValueError, "min_workers needs worker processes"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(
    settings: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        ropewalk.Pool(**settings)


def test_a_size_that_makes_no_sense_is_refused(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process")
    with pytest.raises(ValueError, match="workers must be 1 or more"):
        pool.resize(0)
    with pytest.raises(TypeError, match="workers must be a whole number"):
        pool.resize("2")
    scaled = make_pool(kind="process", min_workers=1, max_workers=2)
    with pytest.raises(ValueError, match="follows the load"):
        scaled.resize(2)


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_a_closed_pool_has_no_other_size(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(1, kind=kind)
    pool.shutdown()
    before = repr(pool)
    with pytest.raises(ropewalk.PoolClosed):
        pool.resize(5)
    assert repr(pool) == before
