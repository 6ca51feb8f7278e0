"""A task that is run again gets its own arguments, even if their memory was reused meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.tasks import Gate

import ropewalk

np = pytest.importorskip("numpy")
SIZES = [64 << 10, 512 << 10, 3 << 20]
KEPT: list[Any] = []


def _keep_and_raise(gate: Gate, again: Gate, array: Any) -> tuple[int, int, int]:
    if len(gate.marks()) == 0:
        KEPT.append(array)
        gate.hold()
        raise ValueError("once")
    again.mark("again")
    return int(array.min()), int(array.max()), len(array)


def _drop_what_is_kept() -> int:
    count = len(KEPT)
    KEPT.clear()
    return count


@pytest.mark.parametrize("size", SIZES)
def test_a_retry_finds_its_own_arguments(
    make_pool: Callable[..., Any], tmp_path: Any, gate: Gate, size: int
) -> None:
    (tmp_path / "again").mkdir()
    (tmp_path / "held").mkdir()
    again, held = Gate(tmp_path / "again"), Gate(tmp_path / "held")
    again.open()
    pool = make_pool(1, kind="process", preload=["numpy"])
    first = pool.options(retries=1).submit(_keep_and_raise, gate, again, np.full(size, 7, np.uint8))
    until(gate.marks)
    # Both go before the retry: in the first the view dies that the failed attempt has left behind, and during the
    # second the worker's word of that has arrived.
    dropped = pool.options(priority=1).submit(_drop_what_is_kept)
    running = pool.options(priority=1).submit(held.hold)
    gate.open()
    assert dropped.result(60) == 1
    until(held.marks)
    others = [pool.submit(_span, np.full(size, 99, np.uint8)) for _ in range(8)]
    held.open()
    running.result(60)
    assert first.result(60) == (7, 7, size)
    assert [other.result(60) for other in others] == [(99, 99, size)] * 8


def _span(array: Any) -> tuple[int, int, int]:
    return int(array.min()), int(array.max()), len(array)


def _keep(array: Any) -> int:
    KEPT.append(array)
    return len(KEPT)


def _look_at_kept() -> list[tuple[int, int, int]]:
    return [_span(array) for array in KEPT]


@pytest.mark.parametrize("size", SIZES)
def test_what_a_worker_keeps_stays_what_it_was(make_pool: Callable[..., Any], size: int) -> None:
    pool = make_pool(1, kind="process", threads=2, preload=["numpy"])
    for value in range(1, 6):
        pool.submit(_keep, np.full(size, value, np.uint8)).result(60)
    for _ in range(20):
        assert pool.submit(_span, np.full(size, 99, np.uint8)).result(60) == (99, 99, size)
    kept = sorted(pool.submit(_look_at_kept).result(60))
    assert kept == [(value, value, size) for value in range(1, 6)]


def _raise_with(array: Any) -> None:
    KEPT.append(array)
    raise ValueError(int(array.min()), int(array.max()))


def test_each_of_many_attempts_sees_the_same(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process", threads=2, preload=["numpy"])
    futures = [
        pool.options(retries=4).submit(_raise_with, np.full(300 << 10, n, np.uint8)) for n in range(40)
    ]
    for _ in range(20):
        pool.submit(_drop_what_is_kept)
    for n, future in enumerate(futures):
        error = future.exception(60)
        assert isinstance(error, ValueError)
        assert error.args == (n, n)
    assert pool.statistics().retried == 40 * 4


def test_a_task_that_ran_once_has_one_attempt(make_pool: Callable[..., Any], gate: Gate) -> None:
    # What waits behind the held one is carried to the other worker, and back to the queue by those of higher priority.
    pool = make_pool(2, kind="process")
    pool.submit(tasks.identity, 0).result(60)
    held = pool.submit(gate.hold)
    until(gate.marks)
    waiting = [pool.options(retries=1).submit(tasks.square, n) for n in range(100)]
    ahead = [pool.options(priority=1).submit(tasks.square, n) for n in range(100)]
    assert [future.result(60) for future in waiting + ahead] == [n * n for n in range(100)] * 2
    victims = [pool.options(retries=0).submit(tasks.leave, 3) for _ in range(10)]
    for victim in victims:
        error = victim.exception(60)
        assert isinstance(error, ropewalk.WorkerCrashed)
        assert error.attempt == 1
    gate.open()
    held.exception(60)
