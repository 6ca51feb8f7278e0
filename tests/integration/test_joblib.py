"""joblib with ``backend="ropewalk"``."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests import tasks
from tests.polling import until

import ropewalk

joblib = pytest.importorskip("joblib")
warm_pools = pytest.importorskip("ropewalk.adapters.joblib")


@pytest.fixture(autouse=True)
def _no_warm_pool_is_left() -> Iterator[None]:
    yield
    warm_pools.shutdown()


def _square(number: int) -> int:
    return number * number


@pytest.mark.parametrize("n_jobs", [1, 2, -1])
def test_results_are_in_order(n_jobs: int) -> None:
    with joblib.parallel_config(backend="ropewalk", n_jobs=n_jobs):
        assert joblib.Parallel()(joblib.delayed(_square)(n) for n in range(300)) == [
            n * n for n in range(300)
        ]


def test_it_runs_in_workers() -> None:
    with joblib.parallel_config(backend="ropewalk", n_jobs=2):
        pids = set(joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(20)))
    if ropewalk.Pool(1).kind == "process":
        assert os.getpid() not in pids
    assert 1 <= len(pids) <= 2


def test_by_name_in_parallel_itself() -> None:
    assert joblib.Parallel(n_jobs=2, backend="ropewalk")(
        joblib.delayed(lambda n: n + 1)(n) for n in range(9)
    ) == list(range(1, 10))


def test_what_parallel_itself_is_given(make_pool: Callable[..., Any]) -> None:
    def pids(**settings: Any) -> set[int]:
        parallel = joblib.Parallel(
            n_jobs=2, backend="ropewalk", max_nbytes="1M", prefer="processes", **settings
        )
        return set(parallel(joblib.delayed(os.getpid)() for _ in range(20)))

    assert os.getpid() not in pids(kind="process")
    assert pids(kind="thread", idle_worker_timeout=5) == {os.getpid()}
    pool = make_pool(2, kind="process")
    assert pids(pool=pool) <= set(pool.statistics().worker_pids)
    with pytest.raises(TypeError, match="no_such_setting"):
        pids(no_such_setting=3)


def test_settings_of_a_parallel_outlast_a_failure_and_bind_no_other() -> None:
    with joblib.parallel_config(backend="ropewalk", n_jobs=2, kind="thread"):
        with joblib.Parallel(kind="process") as parallel:
            with pytest.raises(ValueError, match="told"):
                parallel(joblib.delayed(tasks.fail)("told") for _ in range(5))
            assert os.getpid() not in parallel(joblib.delayed(os.getpid)() for _ in range(5))
        assert set(joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(5))) == {os.getpid()}


def test_a_reused_parallel() -> None:
    with joblib.Parallel(n_jobs=2, backend="ropewalk") as parallel:
        for _ in range(3):
            assert parallel(joblib.delayed(_square)(n) for n in range(20)) == [n * n for n in range(20)]


@pytest.mark.parametrize("kind", ["generator", "generator_unordered"])
def test_generators(kind: str) -> None:
    with joblib.parallel_config(backend="ropewalk", n_jobs=2):
        results = joblib.Parallel(return_as=kind)(joblib.delayed(_square)(n) for n in range(50))
        assert sorted(results) == [n * n for n in range(50)]


def test_an_exception() -> None:
    with joblib.parallel_config(backend="ropewalk", n_jobs=2), pytest.raises(ValueError, match="told"):
        joblib.Parallel()(joblib.delayed(tasks.fail)("told") for _ in range(5))


def test_a_crash() -> None:
    with (
        joblib.parallel_config(backend="ropewalk", n_jobs=2, kind="process"),
        pytest.raises(ropewalk.WorkerCrashed),
    ):
        joblib.Parallel()(joblib.delayed(tasks.leave)(3) for _ in range(3))


def test_a_given_pool_is_left_open(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process")
    for _ in range(2):
        with joblib.parallel_config(backend="ropewalk", pool=pool):
            pids = set(joblib.Parallel(n_jobs=2)(joblib.delayed(os.getpid)() for _ in range(20)))
            assert pids <= set(pool.statistics().worker_pids)
    assert pool.submit(tasks.square, 3).result(60) == 9


def test_nested_calls() -> None:
    with joblib.parallel_config(backend="ropewalk", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(_nested)(n) for n in range(4)) == [n * 3 for n in range(4)]


def _in(backend: str, numbers: int) -> int:
    import ropewalk.adapters.joblib  # noqa: F401  # Where a worker of another backend is to know ours.

    return sum(joblib.Parallel(n_jobs=2, backend=backend)(joblib.delayed(_square)(n) for n in range(numbers)))


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("ropewalk", "ropewalk"),
        ("ropewalk", "loky"),
        ("loky", "ropewalk"),
        ("ropewalk", "threading"),
        ("threading", "ropewalk"),
        ("ropewalk", "sequential"),
    ],
)
def test_backends_within_each_other(outer: str, inner: str) -> None:
    # Below threads, which a free-threaded Python gets, joblib refuses loky: it warns, and runs the calls in sequence.
    settings = {"kind": "process"} if outer == "ropewalk" else {}
    try:
        parallel = joblib.Parallel(n_jobs=2, backend=outer, **settings)
        assert parallel(joblib.delayed(_in)(inner, n) for n in (3, 4)) == [5, 14]
        if outer == "ropewalk":
            # The workers that have other workers end with them.
            warm_pools.shutdown()
    finally:
        if "loky" in (outer, inner):
            joblib.externals.loky.get_reusable_executor().shutdown(wait=True)


def test_a_parallel_inside_a_task_runs_on_threads_and_then_in_sequence() -> None:
    with joblib.parallel_config(backend="ropewalk", n_jobs=2, kind="process"):
        deep = joblib.Parallel()(joblib.delayed(_two_deep)(2) for _ in range(2))
    assert deep == [("ThreadingBackend", "SequentialBackend")] * 2


def _two_deep(levels: int) -> Any:
    name = type(joblib.parallel.get_active_backend()[0]).__name__
    if levels == 1:
        return name
    (inner,) = joblib.Parallel(n_jobs=2)(joblib.delayed(_two_deep)(levels - 1) for _ in range(1))
    return name, inner


def test_the_pool_stays_warm() -> None:
    def pids() -> set[int]:
        return set(joblib.Parallel()(joblib.delayed(_pid)() for _ in range(20)))

    with joblib.parallel_config(backend="ropewalk", n_jobs=2, kind="process"):
        first = pids()
        known = first | pids() | pids()
        assert len(known) <= 2, "three calls, the same two workers"
        warm_pools.shutdown()
        assert not pids() & known
    with joblib.parallel_config(backend="ropewalk", n_jobs=1, kind="process"):
        assert not pids() & known, "other settings, another pool"


def test_a_warm_pool_ends_when_it_has_rested_long_enough() -> None:
    warm_pools.shutdown()
    with joblib.parallel_config(backend="ropewalk", n_jobs=2, kind="process", idle_worker_timeout=0.05):
        pids = set(joblib.Parallel()(joblib.delayed(_pid)() for _ in range(20)))
    until(lambda: not warm_pools._RESTING)
    until(lambda: not any(_is_there(pid) for pid in pids))


def test_threads_do_not_share_a_warm_pool_at_the_same_time() -> None:
    def call() -> list[int]:
        with joblib.parallel_config(backend="ropewalk", n_jobs=2):
            return list(joblib.Parallel()(joblib.delayed(_square)(n) for n in range(50)))

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: call(), range(8)):
            assert found == [n * n for n in range(50)]
    assert len(warm_pools._RESTING) <= warm_pools._MOST_RESTING


def test_a_pool_that_failed_is_not_used_again() -> None:
    with joblib.parallel_config(backend="ropewalk", n_jobs=2, kind="process", on_crash="break"):
        for _ in range(2):
            with pytest.raises(ropewalk.PoolError):
                joblib.Parallel()(joblib.delayed(tasks.leave)(3) for _ in range(3))
        assert joblib.Parallel()(joblib.delayed(_square)(n) for n in range(4)) == [0, 1, 4, 9]


def test_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    from sklearn.datasets import make_classification
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, cross_val_score

    features, classes = make_classification(200, random_state=0)
    model = LogisticRegression()
    expected = cross_val_score(model, features, classes, cv=4)
    search = GridSearchCV(model, {"C": [0.1, 1.0]}, cv=2, n_jobs=2)
    with joblib.parallel_config(backend="ropewalk"):
        assert list(cross_val_score(model, features, classes, cv=4, n_jobs=2)) == list(expected)
        assert search.fit(features, classes).best_params_["C"] in (0.1, 1.0)


def _pid() -> int:
    return os.getpid()


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _nested(number: int) -> int:
    return sum(joblib.Parallel(n_jobs=2)(joblib.delayed(int)(number) for _ in range(3)))


def test_large_arrays() -> None:
    np = pytest.importorskip("numpy")
    array = np.arange(1 << 20)
    with joblib.parallel_config(backend="ropewalk", n_jobs=2):
        sums = joblib.Parallel()(joblib.delayed(np.sum)(array[n:]) for n in range(4))
    assert sums == [int(array[n:].sum()) for n in range(4)]
