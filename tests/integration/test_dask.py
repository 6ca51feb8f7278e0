"""dask with ``scheduler=pool``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from tests import tasks

dask = pytest.importorskip("dask")


def test_delayed(pool: Any) -> None:
    @dask.delayed
    def double(number: int) -> int:
        return 2 * number

    @dask.delayed
    def total(parts: list[int]) -> int:
        return sum(parts)

    parts = [double(n) for n in range(20)]
    assert total(parts).compute(scheduler=pool) == 380
    assert dask.compute(*parts, scheduler=pool) == tuple(2 * n for n in range(20))


def test_it_runs_in_the_pools_workers(processes: Any) -> None:
    pids = set(dask.compute(*(dask.delayed(os.getpid, pure=False)() for _ in range(20)), scheduler=processes))
    assert pids
    assert pids <= set(processes.statistics().worker_pids)


def test_as_a_setting(pool: Any) -> None:
    with dask.config.set(scheduler=pool):
        assert dask.delayed(tasks.square)(7).compute() == 49


def test_an_exception(pool: Any) -> None:
    with pytest.raises(ValueError, match="told"):
        dask.delayed(tasks.fail)("told").compute(scheduler=pool)
    assert pool.submit(tasks.square, 3).result(60) == 9


# Interpreters leave what needs NumPy to processes, and say so.
@pytest.mark.filterwarnings("ignore:numpy:RuntimeWarning")
def test_arrays(pool: Any) -> None:
    pytest.importorskip("numpy")
    da = pytest.importorskip("dask.array")
    array = da.ones((2000, 500), chunks=(500, 500))
    assert float((array + array.T.sum()).sum().compute(scheduler=pool)) == 2000 * 500 * (1 + 2000 * 500)


def test_bags(processes: Any) -> None:
    bag = pytest.importorskip("dask.bag")
    assert (
        bag.from_sequence(range(100), npartitions=5).map(tasks.square).sum().compute(scheduler=processes)
        == 328350
    )


def test_as_the_pool_of_dasks_own_schedulers(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process")
    parts = [dask.delayed(tasks.square)(n) for n in range(6)]
    with dask.config.set(pool=pool, scheduler="processes"):
        assert dask.compute(*parts) == tuple(n * n for n in range(6))
        pids = set(dask.compute(*(dask.delayed(os.getpid, pure=False)() for _ in range(20))))
    assert pids <= set(pool.statistics().worker_pids)
    before = pool.statistics().completed
    assert dask.compute(*parts, pool=pool, scheduler="processes") == tuple(n * n for n in range(6))
    assert pool.statistics().completed > before
    threads = make_pool(2, kind="thread")
    with dask.config.set(pool=threads):
        assert dask.compute(*parts, scheduler="threads") == tuple(n * n for n in range(6))
    assert threads.statistics().completed > 0
