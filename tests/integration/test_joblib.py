"""joblib with ``backend="windlass"``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from tests import tasks

import windlass

joblib = pytest.importorskip("joblib")
pytest.importorskip("windlass.joblib")


def _square(number: int) -> int:
    return number * number


@pytest.mark.parametrize("n_jobs", [1, 2, -1])
def test_results_are_in_order(n_jobs: int) -> None:
    with joblib.parallel_config(backend="windlass", n_jobs=n_jobs):
        assert joblib.Parallel()(joblib.delayed(_square)(n) for n in range(300)) == [
            n * n for n in range(300)
        ]


def test_it_runs_in_workers() -> None:
    with joblib.parallel_config(backend="windlass", n_jobs=2):
        pids = set(joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(20)))
    if windlass.Pool(1).kind == "process":
        assert os.getpid() not in pids
    assert 1 <= len(pids) <= 2


def test_by_name_in_parallel_itself() -> None:
    assert joblib.Parallel(n_jobs=2, backend="windlass")(
        joblib.delayed(lambda n: n + 1)(n) for n in range(9)
    ) == list(range(1, 10))


def test_a_reused_parallel() -> None:
    with joblib.Parallel(n_jobs=2, backend="windlass") as parallel:
        for _ in range(3):
            assert parallel(joblib.delayed(_square)(n) for n in range(20)) == [n * n for n in range(20)]


@pytest.mark.parametrize("kind", ["generator", "generator_unordered"])
def test_generators(kind: str) -> None:
    with joblib.parallel_config(backend="windlass", n_jobs=2):
        results = joblib.Parallel(return_as=kind)(joblib.delayed(_square)(n) for n in range(50))
        assert sorted(results) == [n * n for n in range(50)]


def test_an_exception() -> None:
    with joblib.parallel_config(backend="windlass", n_jobs=2), pytest.raises(ValueError, match="told"):
        joblib.Parallel()(joblib.delayed(tasks.fail)("told") for _ in range(5))


def test_a_crash() -> None:
    with (
        joblib.parallel_config(backend="windlass", n_jobs=2, kind="process"),
        pytest.raises(windlass.WorkerCrashed),
    ):
        joblib.Parallel()(joblib.delayed(tasks.leave)(3) for _ in range(3))


def test_a_given_pool_is_left_open(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process")
    for _ in range(2):
        with joblib.parallel_config(backend="windlass", pool=pool):
            pids = set(joblib.Parallel(n_jobs=2)(joblib.delayed(os.getpid)() for _ in range(20)))
            assert pids <= set(pool.statistics().worker_pids)
    assert pool.submit(tasks.square, 3).result(60) == 9


def test_nested_calls() -> None:
    with joblib.parallel_config(backend="windlass", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(_nested)(n) for n in range(4)) == [n * 3 for n in range(4)]


def _nested(number: int) -> int:
    return sum(joblib.Parallel(n_jobs=2)(joblib.delayed(int)(number) for _ in range(3)))


def test_large_arrays() -> None:
    np = pytest.importorskip("numpy")
    array = np.arange(1 << 20)
    with joblib.parallel_config(backend="windlass", n_jobs=2):
        sums = joblib.Parallel()(joblib.delayed(np.sum)(array[n:]) for n in range(4))
    assert sums == [int(array[n:].sum()) for n in range(4)]
