"""The memory that functions leave in the parent and in workers when nothing refers to them any more."""

from __future__ import annotations

import functools
import gc
import os
import sysconfig
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import until

import ropewalk
from ropewalk._core import private_bytes

MB = 1 << 20
#: What a test may leave, of the hundreds of megabytes that it sends.
MOST = 48 * MB


#: There the interpreter's allocator keeps what is freed: a process shrinks late or never. What is in use is counted.
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def _worker(pool: ropewalk.Pool) -> int:
    pids = [worker.pid for worker in pool.statistics().workers_detail]
    assert len(pids) == 1
    return pids[0]


def _held(pool: ropewalk.Pool) -> tuple[int, int]:
    """Bytes that the parent and the worker have."""
    gc.collect()
    tasks.trim()
    if FREE_THREADED:
        return tracemalloc.get_traced_memory()[0], _held_by_worker(pool)
    return private_bytes(os.getpid()), _held_by_worker(pool)


def _held_by_worker(pool: ropewalk.Pool) -> int:
    if FREE_THREADED:
        return pool.submit(tracemalloc.get_traced_memory).result(60)[0]
    pool.submit(tasks.trim).result(60)
    return private_bytes(_worker(pool))


@pytest.fixture
def pool(make_pool: Callable[..., Any]) -> Iterator[Any]:
    if FREE_THREADED:
        tracemalloc.start()
    pool = make_pool(1, kind="process", initializer=tracemalloc.start if FREE_THREADED else None)
    assert pool.submit(tasks.square, 2).result(60) == 4
    # Once so much was freed at once, malloc keeps 64 MB unless it is asked, as it would after other tests.
    assert pool.submit(eval, "len(bytes(31 << 20))").result(60) == 31 << 20
    yield pool
    tracemalloc.stop()


def _shrinks(pool: ropewalk.Pool, before: tuple[int, int]) -> None:
    grown = (0, 0)

    def small() -> bool:
        nonlocal grown
        now = _held(pool)
        grown = (now[0] - before[0], now[1] - before[1])
        return max(grown) < MOST

    try:
        until(small, 60)
    except AssertionError:
        pytest.fail(f"the parent has grown by {grown[0]} bytes, the worker by {grown[1]}")


def test_partials_that_carry_data(pool: ropewalk.Pool) -> None:
    before = _held(pool)
    futures = [pool.submit(functools.partial(len, bytes(MB))) for _ in range(300)]
    assert {future.result(60) for future in futures} == {MB}
    # The futures are still here: what they ran is not.
    _shrinks(pool, before)
    assert len(futures) == 300


def test_closures_over_data(pool: ropewalk.Pool) -> None:
    def over(data: bytes) -> Callable[[], int]:
        return lambda: len(data)

    before = _held(pool)
    futures = [pool.submit(over(bytes(MB))) for _ in range(300)]
    assert {future.result(60) for future in futures} == {MB}
    _shrinks(pool, before)
    assert len(futures) == 300


def test_closures_over_data_one_by_one(pool: ropewalk.Pool) -> None:
    def over(data: bytes) -> Callable[[], int]:
        return lambda: len(data)

    before = _held(pool)
    for _ in range(200):
        assert pool.submit(over(bytes(MB))).result(60) == MB
        assert _held_by_worker(pool) - before[1] < MOST
    _shrinks(pool, before)


def test_many_small_functions(pool: ropewalk.Pool) -> None:
    before = _held(pool)
    for start in range(0, 20_000, 1000):
        futures = [pool.submit(lambda n=n: n) for n in range(start, start + 1000)]
        assert sum(future.result(60) for future in futures) == sum(range(start, start + 1000))
    now = _held(pool)
    assert now[0] - before[0] < 16 * MB
    assert now[1] - before[1] < 16 * MB


def test_functions_that_the_program_keeps_are_bounded(pool: ropewalk.Pool) -> None:
    kept = [eval(f"lambda: {n}") for n in range(5000)]
    before = _held(pool)
    for function in kept:
        pool.submit(function).result(60)
    now = _held(pool)
    assert now[0] - before[0] < 16 * MB
    assert now[1] - before[1] < 16 * MB
    assert [pool.submit(function).result(60) for function in kept[-3:]] == [4997, 4998, 4999]


def test_a_kept_function_with_data_goes_with_its_last_reference(pool: ropewalk.Pool) -> None:
    def over(data: bytes) -> Callable[[], int]:
        return lambda: len(data)

    before = _held(pool)
    kept = over(bytes(128 * MB))
    assert pool.submit(kept).result(60) == 128 * MB
    assert _held_by_worker(pool) - before[1] > 100 * MB
    del kept
    # Nothing is submitted any more: the worker is idle, and lets go of it all the same.
    _shrinks(pool, before)


def test_a_redefined_global_replaces_the_old_one(pool: ropewalk.Pool) -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(): return len(data)", space)
    before = _held(pool)
    for size in range(1, 40):
        space["data"] = bytes(8 * MB + size)
        assert pool.submit(space["f"]).result(60) == 8 * MB + size
        assert _held_by_worker(pool) - before[1] < MOST


def test_classes_come_and_go(pool: ropewalk.Pool) -> None:
    before = _held(pool)
    for n in range(300):
        kind = type(f"Made{n}", (), {"data": bytes(MB // 4), "size": lambda self: len(self.data)})
        assert pool.submit(lambda one: one.size(), kind()).result(60) == MB // 4
        del kind
    assert pool.submit(gc.collect).result(60) >= 0
    if FREE_THREADED:
        # Once a program has started a thread, the free-threaded 3.13 frees no class of it.
        until(lambda: _held_by_worker(pool) - before[1] < MOST, 60)
    else:
        _shrinks(pool, before)


class Tombstone:
    """Leaves a file behind in the worker that it was sent to, when it ends there."""

    def __init__(self, path: Path, *, sent: bool = False) -> None:
        self._path = path
        self._sent = sent

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(Tombstone, sent=True), (self._path,)

    def __del__(self) -> None:
        if self._sent:
            self._path.touch()


def _referring_to_itself(data: bytes, stone: Tombstone | None = None) -> Callable[[int], int]:
    def run(times: int) -> int:
        return len(data) if times == 0 or stone is data else run(times - 1)

    return run


def test_functions_that_refer_to_themselves(pool: ropewalk.Pool) -> None:
    before = _held(pool)
    for _ in range(16):
        assert pool.submit(_referring_to_itself(bytes(8 * MB)), 2).result(60) == 8 * MB
        gc.collect()
        # What the worker may have of them before it calls the collector, and one more.
        assert _held_by_worker(pool) - before[1] < 64 * MB


def test_an_idle_worker_lets_go_of_a_function_that_refers_to_itself(
    pool: ropewalk.Pool, tmp_path: Path
) -> None:
    stone = tmp_path / "stone"
    function = _referring_to_itself(bytes(2 * MB), Tombstone(stone))
    assert pool.submit(function, 2).result(60) == 2 * MB
    assert not stone.exists()
    del function
    until(lambda: gc.collect() >= 0 and stone.exists(), 60)
