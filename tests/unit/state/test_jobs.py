"""What a job of `run_all` may be, and what is said of what is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from tests.unit.state._bank import Bank, bank, count, transfer

import ropewalk
from ropewalk._errors import StateError, StoreClosed
from ropewalk.state import Store, paths, task


@dataclass(frozen=True, slots=True)
class Other:
    hits: int = 0


@task(writes=[paths(Other).hits], label="foreign")
def foreign(s: Any) -> None:
    s.hits += 1


@pytest.fixture(params=[None, "thread", "process"])
def store(request: pytest.FixtureRequest) -> Any:
    if request.param is None:
        with Store(bank()) as store:
            yield store
        return
    with ropewalk.Pool(2, kind=request.param) as pool, Store(bank(), pool=pool) as store:
        yield store


def test_a_partial_gives_arguments_by_name_and_keeps_the_contract(store: Store[Bank]) -> None:
    move = partial(transfer, source="a0", target="a1")
    more = partial(move, amount=5)
    results: list[Any] = store.run_all([more, partial(count, number=3)])
    assert results[1] == 4
    assert store.snapshot().accounts["a1"].balance == 105
    # Jobs of one task run in their order, partial or not.
    counted = store.run_all([(partial(count), 1), partial(count, number=10), (count, 100), more])
    assert counted[:3] == [5, 15, 115]
    assert [version.meta.task for version in store.history(1)].count("count") == 4


def test_a_partial_runs_wherever_its_task_does(store: Store[Bank]) -> None:
    three = partial(count, number=3)
    assert store.run(three) == 3
    assert store.run(three, number=4) == 7
    assert asyncio.run(store.arun(three)) == 10
    if store._pool is not None:
        assert store.submit(three).result(60) == 13
        assert store.submit(partial(three), number=1).result(60) == 14
    assert three.keywords == {"number": 3}
    plain = partial(lambda b, by: b.accounts["a0"].balance + by, by=1)
    assert store.run(plain) == 101
    assert store.run_all([plain]) == [101]
    assert {version.meta.task for version in store.history(1)} == {"count"}


def test_a_partial_with_arguments_by_position_is_refused(store: Store[Bank]) -> None:
    wrong = partial(count, 3)
    runs: list[Callable[[], object]] = [
        lambda: store.run(wrong),  # type: ignore[call-arg]
        lambda: store.run_all([count, wrong]),
    ]
    if store._pool is not None:
        runs.append(lambda: store.submit(wrong).result(60))  # type: ignore[call-arg]
    for run in runs:
        with pytest.raises(TypeError, match=r"by position, and the first of a task is its draft") as caught:
            run()
    assert store.version == 0
    if store._pool is None:
        assert caught.value.__notes__ == [
            "run_all: job 1, of the task count, cannot be run; no job has begun"
        ]


@pytest.mark.parametrize(
    ("jobs", "says"),
    [
        ([count, 3], r"job 1 of run_all is 3\. A job is a task, .* arguments$"),
        ([[count, 3]], r"job 0 of run_all is \[<Task count>, 3\]\. .*Write a tuple"),
        ([()], r"job 0 of run_all is \(\)\. "),
        ([(3, count)], r"job 0 of run_all is \(3, <Task count>\)\. "),
        ((count, 3), r"job 1 of run_all is 3\. .*\[\(task, argument\)\]"),
        ((count, count, None), r"job 2 of run_all is None"),
        (count, r"a list of jobs: write run_all\(\[<Task count>\]\)"),
        (partial(count, number=3), r"a list of jobs: write run_all\(\[functools"),
    ],
)
def test_what_is_no_job_is_named(jobs: Any, says: str) -> None:
    with Store(bank()) as store:
        with pytest.raises(TypeError, match=says):
            store.run_all(jobs)
        assert store.version == 0


def test_a_task_of_another_state_is_named_with_its_job(store: Store[Bank]) -> None:
    with pytest.raises(StateError, match="a contract of Other") as caught:
        store.run_all([(count, 1), foreign])
    assert caught.value.__notes__ == [
        "this is the contract of the task foreign",
        "run_all: job 1, of the task foreign, cannot be run; no job has begun",
    ]
    assert store.version == 0


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_closed_store_with_a_closed_pool_says_that_it_is_closed(kind: Any) -> None:
    with ropewalk.Pool(1, kind=kind) as pool:
        store = Store(bank(), pool=pool)
        store.close()
    with pytest.raises(StoreClosed):
        store.run_all([(count, 1), (transfer, "a0", "a1", 1)])
    with pytest.raises(StoreClosed):
        store.submit(count, 1)
    with pytest.raises(StoreClosed):
        store.run(count, 1)
