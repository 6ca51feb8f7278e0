"""`map(..., results=True)`: one bad input ends no map."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests import tasks

import ropewalk
from ropewalk import Err, Ok, result


def reciprocal(number: int) -> float:
    return 1 / number


def die_at(number: int, at: int) -> int:
    if number == at:
        tasks.killed_by(9)
    return number


def unpicklable_at(number: int) -> Any:
    return tasks.Unpicklable() if number == 3 else number


class Homebound:
    """Can be pickled, and not be unpickled in another process."""

    def __reduce__(self) -> Any:
        return _homebound, (os.getpid(),)


def _homebound(pid: int) -> Homebound:
    if os.getpid() != pid:
        raise ValueError("not here")
    return Homebound()


class Interrupting:
    """The user's Ctrl-C comes while it is pickled, or unpickled."""

    def __init__(self, when: str) -> None:
        self.when = when

    def __reduce__(self) -> Any:
        if self.when == "pickled":
            raise KeyboardInterrupt
        return _interrupting, (os.getpid(), self.when)


def _interrupting(pid: int, when: str) -> Interrupting:
    if os.getpid() != pid:
        raise KeyboardInterrupt
    return Interrupting(when)


def interrupting_at(number: int) -> Any:
    return Interrupting("unpickled") if number == 3 else number


def leaving_at(number: int) -> int:
    if number == 3:
        raise SystemExit(number)
    return number


@pytest.fixture(params=["process", "thread"])
def pool(request: Any, make_pool: Callable[..., Any]) -> Any:
    return make_pool(2, kind=request.param)


@pytest.mark.parametrize("chunksize", [None, 1, 7])
@pytest.mark.parametrize("way", ["map", "map_unordered"])
def test_an_error_is_its_own_input_s(pool: Any, way: str, chunksize: int | None) -> None:
    numbers = [n % 10 for n in range(1000)]
    came = list(getattr(pool, way)(reciprocal, numbers, chunksize=chunksize, results=True))
    values, errors = result.partition(came)
    assert (len(values), len(errors)) == (900, 100)
    assert all(isinstance(error, ZeroDivisionError) for error in errors)
    if way == "map":
        assert [it.is_err() for it in came] == [n == 0 for n in numbers]
    if pool.kind == "process":
        assert all("in reciprocal" in str(error.__cause__) for error in errors)


def test_several_iterables_and_options(pool: Any) -> None:
    came = list(pool.options(retries=1).map(divmod, [7, 8], [2, 0], results=True))
    assert came[0] == Ok((3, 1))
    assert isinstance(came[1].err(), ZeroDivisionError)


def test_a_time_out_is_its_own_input_s(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process")
    # The budget is for waiting too: the workers are there before it runs, and it is long against all but the spin.
    assert list(pool.map(tasks.spin_if, [False] * 20, chunksize=1)) == [None] * 20
    came = list(pool.options(task_timeout=3).map(tasks.spin_if, [False, True, False], results=True))
    assert [it.is_ok() for it in came] == [True, False, True]
    assert isinstance(came[1].err(), ropewalk.TaskTimeout)


@pytest.mark.parametrize("chunksize", [1, 5])
def test_what_cannot_be_sent_is_its_own_input_s(make_pool: Callable[..., Any], chunksize: int) -> None:
    pool = make_pool(2, kind="process")
    inputs = [1, 2, tasks.Unpicklable(), 4, 5, 6]
    came = list(pool.map(tasks.identity, inputs, chunksize=chunksize, results=True))
    assert [it.is_ok() for it in came] == [True, True, False, True, True, True]
    assert isinstance(came[2].err(), ropewalk.EncodeError)


@pytest.mark.parametrize("chunksize", [1, 5])
def test_what_cannot_be_sent_back_is_its_own_input_s(make_pool: Callable[..., Any], chunksize: int) -> None:
    pool = make_pool(2, kind="process")
    came = list(pool.map(unpicklable_at, range(6), chunksize=chunksize, results=True))
    assert [it.is_ok() for it in came] == [True, True, True, False, True, True]
    assert isinstance(came[3].err(), ropewalk.ResultEncodeError)


def test_a_worker_that_dies_costs_its_chunk(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process")
    alone = list(pool.map(die_at, range(20), [11] * 20, chunksize=1, results=True))
    assert [n for n, it in enumerate(alone) if it.is_err()] == [11]
    assert isinstance(alone[11].err(), ropewalk.WorkerCrashed)
    chunks = list(pool.map(die_at, range(20), [11] * 20, chunksize=5, results=True))
    assert [n for n, it in enumerate(chunks) if it.is_err()] == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("way", ["map", "map_unordered"])
def test_what_does_not_arrive_costs_no_other_of_its_chunk(make_pool: Callable[..., Any], way: str) -> None:
    pool = make_pool(2, kind="process")
    inputs = [Homebound() if number in (3, 11) else number for number in range(15)]
    came = list(getattr(pool, way)(tasks.identity, inputs, chunksize=5, results=True))
    values, errors = result.partition(came)
    assert sorted(values) == [number for number in range(15) if number not in (3, 11)]
    assert [type(error) for error in errors] == [ropewalk.DecodeError] * 2
    if way == "map":
        assert [at for at, it in enumerate(came) if it.is_err()] == [3, 11]


@pytest.mark.parametrize("chunksize", [1, 5])
def test_an_interrupt_is_no_result(make_pool: Callable[..., Any], chunksize: int) -> None:
    pool = make_pool(2, kind="process")
    inputs = [0, 1, 2, Interrupting("pickled"), 4]
    with pytest.raises(KeyboardInterrupt):
        list(pool.map(tasks.identity, inputs, chunksize=chunksize, results=True))
    with pytest.raises(KeyboardInterrupt):
        list(pool.map(interrupting_at, range(5), chunksize=chunksize, results=True))
    assert pool.submit(tasks.square, 2).result(60) == 4


@pytest.mark.parametrize("chunksize", [1, 5])
def test_a_task_that_leaves_fails_alone(pool: Any, chunksize: int) -> None:
    came = list(pool.map(leaving_at, range(6), chunksize=chunksize, results=True))
    assert [at for at, it in enumerate(came) if it.is_err()] == [3]
    assert isinstance(came[3].err(), SystemExit)


def test_it_is_lazy(pool: Any) -> None:
    came = pool.map(reciprocal, itertools.count(), results=True)
    assert next(came).is_err()
    assert next(came) == Ok(1.0)
    came.close()


def test_an_input_that_raises_still_raises(pool: Any) -> None:
    def inputs() -> Iterator[int]:
        yield from [1] * 1000
        raise KeyError("broken")

    came = pool.map(reciprocal, inputs(), results=True)
    assert [next(came) for _ in range(1000)] == [Ok(1.0)] * 1000
    with pytest.raises(KeyError, match="broken"):
        next(came)


def test_results_of_results_are_held_as_they_are(pool: Any) -> None:
    assert list(pool.map(tasks.identity, [Ok(1), Err("no")], results=True)) == [Ok(Ok(1)), Ok(Err("no"))]
