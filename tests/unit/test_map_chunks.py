"""Chunks that `map` makes itself are invisible: no two inputs and no two results share an object."""

from __future__ import annotations

import itertools
import operator
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import pytest
from tests import tasks

import ropewalk
from ropewalk import Ok

COUNT = 2000


@pytest.fixture(scope="module")
def pool() -> Iterator[Any]:
    with ropewalk.Pool(2, kind="process") as made:
        yield made


# --- inputs ---------------------------------------------------------------------------------------------------------


class Job:
    def __init__(self, box: list[int]) -> None:
        self.box = box


class Slotted:
    __slots__ = ("box",)

    def __init__(self, box: list[int]) -> None:
        self.box = box


class Pair(NamedTuple):
    number: int
    box: list[int]


def box_of(given: Any) -> list[int]:
    """The innermost list."""
    name = type(given).__name__
    if name == "list":
        inner: Any = given[0] if given else None
        return box_of(inner) if type(inner).__name__ == "list" else cast("list[int]", given)
    if name == "set":
        return box_of(next(iter(given)))
    return cast("list[int]", given["a"] if name == "OrderedDict" else given.box)


def append(given: Any) -> int:
    box = box_of(given)
    box.append(1)
    return len(box)


def sum_up(state: dict[str, int], number: int) -> int:
    state["sum"] += number
    return state["sum"]


def named(box: list[int]) -> OrderedDict[str, list[int]]:
    return OrderedDict(a=box)


WAYS: dict[str, Callable[[list[int]], Any]] = {
    "itself": lambda box: box,
    "an attribute": Job,
    "a slot": Slotted,
    "a subclass of tuple": lambda box: Pair(1, box),
    "a subclass of dict": named,
}


@pytest.mark.parametrize("way", WAYS)
def test_inputs_have_nothing_in_common(pool: Any, way: str) -> None:
    box: list[int] = []
    assert set(pool.map(append, [WAYS[way](box) for _ in range(COUNT)])) == {1}


def test_nor_have_sets_and_what_is_deep(pool: Any) -> None:
    job = Job([])
    assert set(pool.map(append, [{job} for _ in range(COUNT)])) == {1}
    box: list[int] = [0]
    assert set(pool.map(append, [[[[[box]]]] for _ in range(COUNT)])) == {2}
    assert set(pool.map(append, itertools.repeat(box, COUNT))) == {2}


def test_nor_have_several_iterables(pool: Any) -> None:
    numbers = range(COUNT)
    assert list(pool.map(sum_up, itertools.repeat({"sum": 0}), numbers)) == list(numbers)


def test_instances_of_the_programs_own_classes(tmp_path: Any) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import ropewalk\n"
        "class Job:\n"
        "    def __init__(self, number, seen): self.number, self.seen = number, seen\n"
        "def run(job):\n"
        "    job.seen.append(job.number)\n"
        "    return len(job.seen), type(job) is Job\n"
        "if __name__ == '__main__':\n"
        "    seen = []\n"
        "    with ropewalk.Pool(2, kind='process') as pool:\n"
        "        print(set(pool.map(run, [Job(n, seen) for n in range(2000)])))\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("{(1, True)}\n", "")


def write_to(array: Any) -> float:
    array[0] += 1
    return float(array[0])


def total(array: Any) -> float:
    return float(array.sum())


@pytest.mark.parametrize("length", [4, 400, 20_000, 200_000])
def test_arrays_come_whole_and_apart(pool: Any, length: int) -> None:
    numpy = pytest.importorskip("numpy")
    count = 600 if length < 20_000 else 40
    arrays = [numpy.full(length, float(n)) for n in range(count)]
    assert list(pool.map(total, arrays)) == [float(n * length) for n in range(count)]
    base = numpy.zeros(length)
    writing = pool.options(writable=True)
    for inputs in ([base] * count, [base[:] for _ in range(count)]):
        assert set(writing.map(write_to, inputs)) == {1.0}
        assert set(writing.map(write_to, inputs, chunksize=8)) == {1.0}


def test_many_small_inputs_go_in_few_tasks(pool: Any) -> None:
    count = 20_000
    for view in (pool, pool.options(priority=1, buffersize=8)):
        before = pool.statistics().submitted
        assert list(view.map(abs, range(-count, 0))) == list(range(count, 0, -1))
        assert pool.statistics().submitted - before < count / 10


def test_a_chunk_that_was_asked_for_is_sent_as_one() -> None:
    with ropewalk.Pool(1, kind="process") as pool:
        inputs: list[list[int]] = [[]] * 4
        assert list(pool.map(append, inputs, chunksize=2)) == [1, 2, 1, 2]


# --- results --------------------------------------------------------------------------------------------------------

BOX = [0]
ERROR = ValueError(0)


def reuse(number: int) -> list[int]:
    BOX[0] = number
    return BOX


def reuse_if_odd(number: int) -> Any:
    return reuse(number) if number % 2 else (number, "even")


def raise_again(number: int) -> Any:
    if number % 50 == 49:
        ERROR.args = (number,)
        raise ERROR
    return reuse_if_odd(number)


ARRAYS: dict[int, Any] = {}


def reuse_array(number: int, length: int) -> Any:
    import numpy

    made: Any = ARRAYS.setdefault(length, numpy.zeros(length))
    made.fill(number)
    return made


@pytest.mark.parametrize("chunksize", [None, 16])
def test_a_result_is_as_it_was_when_its_call_ended(pool: Any, chunksize: int | None) -> None:
    numbers = range(COUNT)
    assert list(pool.map(reuse, numbers, chunksize=chunksize)) == [[n] for n in numbers]
    mixed = [[n] if n % 2 else (n, "even") for n in numbers]
    assert list(pool.map(reuse_if_odd, numbers, chunksize=chunksize)) == mixed
    came = list(pool.map(raise_again, numbers, chunksize=chunksize, results=True))
    for number, one in zip(numbers, came, strict=True):
        if number % 50 == 49:
            error: Any = one.err()
            assert isinstance(error, ValueError)
            assert error.args == (number,)
        else:
            assert one == Ok(mixed[number])


def test_results_have_nothing_in_common(pool: Any) -> None:
    came = list(pool.map(reuse_if_odd, [1] * COUNT))
    came[0].append(1)
    assert came == [[1, 1], *[[1]] * (COUNT - 1)]


@pytest.mark.parametrize("length", [3, 600, 20_000])
def test_an_array_that_is_returned_again_and_again(pool: Any, length: int) -> None:
    pytest.importorskip("numpy")
    count = 1000 if length < 20_000 else 60
    for chunksize in (None, 10):
        came = pool.map(reuse_array, range(count), [length] * count, chunksize=chunksize)
        assert all((array == number).all() for number, array in enumerate(came))


def test_what_cannot_be_pickled_is_one_result_of_many(pool: Any) -> None:
    came = list(pool.map(unpicklable_at, range(COUNT), results=True))
    assert [at for at, one in enumerate(came) if one.is_err()] == [777, 1500]
    assert all(isinstance(came[at].err(), ropewalk.ResultEncodeError) for at in (777, 1500))
    assert came[1].ok() == 1


def unpicklable_at(number: int) -> Any:
    return tasks.Unpicklable() if number in (777, 1500) else number


def test_results_that_refer_to_many_segments(pool: Any) -> None:
    pytest.importorskip("numpy")
    arrays = [ropewalk.shared.array(1 << 20, "u1") for _ in range(40)]
    for number, array in enumerate(arrays):
        array[0] = number
    came = pool.map(operator.itemgetter(0), [(array,) for array in arrays * 5], chunksize=100)
    assert [int(array[0]) for array in came] == [*range(40)] * 5


# --- workers that die -----------------------------------------------------------------------------------------------


def leave_at(number: int, deadly: int) -> int:
    if number and number % deadly == 0:
        os._exit(3)
    return number


@pytest.mark.parametrize("way", ["map", "map_unordered"])
def test_a_worker_that_dies_costs_no_input_that_it_had_not_begun(pool: Any, way: str) -> None:
    count, deadly = 3000, 1000
    came = list(getattr(pool, way)(leave_at, range(count), [deadly] * count, results=True))
    numbers = {one.ok() for one in came if one.is_ok()}
    lost = [number for number in range(count) if number not in numbers]
    assert len(came) == count
    assert [one.is_err() for one in came].count(True) == len(lost)
    assert {1000, 2000} <= set(lost)
    assert not {1001, 1002, 2001, 2002} & set(lost)
    if way == "map":
        assert [at for at, one in enumerate(came) if one.is_err()] == lost
        assert [one.ok() for one in came if one.is_ok()] == sorted(numbers)


def test_several_inputs_of_a_chunk_may_be_deadly(pool: Any) -> None:
    assert list(pool.map(leave_at, [0] * 200, [7] * 200)) == [0] * 200
    came = list(pool.map(leave_at, [0] * 500 + [7] * 5 + [1] * 100, [7] * 605, results=True))
    assert [one.is_err() for one in came[500:505]] == [True] * 5
    assert [one.is_ok() for one in came[505:]] == [True] * 100


def test_threads_get_each_input_s_error_once(pool: Any) -> None:
    count = 2000
    results = pool.map(leave_at, range(count), [500] * count, chunksize=40)
    came: list[object] = []

    def take() -> None:
        while True:
            try:
                came.append(next(results))
            except StopIteration:
                return
            except ropewalk.WorkerCrashed as error:
                came.append(error)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(came) == count
    assert sum(isinstance(one, ropewalk.WorkerCrashed) for one in came) == 120
