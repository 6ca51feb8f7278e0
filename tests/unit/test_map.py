"""`map` is lazy, ordered and bounded; `map_unordered` is lazy and bounded."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.tasks import Gate

import ropewalk


class Counted:
    """Inputs without end, which tell how many were taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.taken += 1
        return self.taken - 1


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100, 3000])
@pytest.mark.parametrize("chunksize", [None, 1, 3, 5000])
def test_results_are_in_order(pool: Any, count: int, chunksize: int | None) -> None:
    expected = [n * n for n in range(count)]
    assert list(pool.map(tasks.square, range(count), chunksize=chunksize)) == expected
    assert list(pool.map(tasks.square, iter(range(count)), chunksize=chunksize)) == expected
    assert sorted(pool.map_unordered(tasks.square, range(count), chunksize=chunksize)) == expected


def test_slow_first_inputs_stay_first(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(2, kind=kind)
    results = pool.map(_first_holds, [gate] * 20, range(20), chunksize=1)
    until(gate.marks)
    gate.open()
    assert list(results) == list(range(20))


def test_unordered_results_pass_a_slow_one(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(2, kind=kind)
    results = pool.map_unordered(_first_holds, [gate] * 20, range(20), chunksize=1)
    early = {next(results) for _ in range(15)}
    assert 0 not in early
    gate.open()
    assert early | set(results) == set(range(20))


def _first_holds(gate: Gate, number: int) -> int:
    if number == 0:
        gate.hold()
    return number


def test_several_iterables(pool: Any) -> None:
    assert list(pool.map(pow, [2, 3, 4], [5, 2, 1, 9])) == [32, 9, 4]
    assert list(pool.map(tasks.capture, "ab", [1, 2], chunksize=2)) == [(("a", 1), {}), (("b", 2), {})]
    assert list(pool.map(tasks.capture, [(1, 2)])) == [(((1, 2),), {})], "a tuple is one argument"
    assert list(pool.map(tasks.square, [])) == []
    assert list(pool.map(tasks.square)) == []


@pytest.mark.parametrize("method", ["map", "map_unordered"])
@pytest.mark.parametrize("chunksize", [None, 10])
def test_inputs_without_end(pool: Any, method: str, chunksize: int | None) -> None:
    inputs = Counted()
    results = getattr(pool, method)(tasks.square, inputs, chunksize=chunksize)
    some = list(itertools.islice(results, 5000))
    assert len(set(some)) == 5000
    if method == "map":
        assert some == [n * n for n in range(5000)]
    # Far ahead of the results is never where the inputs are; a learned chunk may be a few thousand.
    assert inputs.taken < 500_000


def test_nothing_is_taken_ahead_of_a_stuck_pool(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(2, kind=kind)
    inputs = Counted()
    results = pool.map(lambda n: gate.hold("task", n + 1), inputs, chunksize=1)
    until(lambda: len(gate.marks()) == 2)
    bound = inputs.taken
    assert bound < 200
    gate.open()
    assert list(itertools.islice(results, 50)) == list(range(1, 51))
    assert inputs.taken <= bound + 50 + 1


def test_a_bounded_buffer(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(2, kind=kind)
    inputs = Counted()
    results = pool.map(tasks.square, inputs, buffersize=3)
    assert inputs.taken == 3
    assert next(results) == 0
    assert inputs.taken <= 5
    for size in (1, 2, 10):
        assert list(pool.map(tasks.square, range(10), buffersize=size)) == [n * n for n in range(10)]
    for wrong, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), ("x", TypeError)):
        with pytest.raises(error):
            pool.map(tasks.square, [1], buffersize=wrong)


def test_an_input_that_fails_fails_alone(pool: Any) -> None:
    for chunksize in (None, 1, 4):
        results = pool.map(_inverse, [1, 2, 0, 4, 0], chunksize=chunksize)
        assert next(results) == 1
        assert next(results) == 0.5
        with pytest.raises(ZeroDivisionError) as caught:
            next(results)
        assert "_inverse" in str(caught.value.__cause__) or pool.kind == "thread"
        assert next(results) == 0.25
        with pytest.raises(ZeroDivisionError):
            next(results)
        for _ in range(3):
            with pytest.raises(StopIteration):
                next(results)


def _inverse(number: int) -> float:
    return 1 / number


def test_an_input_iterator_that_raises(pool: Any) -> None:
    def inputs() -> Iterator[int]:
        yield from range(40)
        raise KeyError("no more")

    seen = []
    with pytest.raises(KeyError, match="no more"):  # noqa: PT012
        for value in pool.map(tasks.square, inputs(), chunksize=7):
            seen.append(value)  # noqa: PERF402
    assert seen == [n * n for n in range(len(seen))]


def test_results_that_raise_stop_iteration(pool: Any) -> None:
    future = pool.submit(next, iter(()))
    assert isinstance(future.exception(60), StopIteration)


def test_a_timeout(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    # The time to start a worker is not part of it: on a busy machine that takes longer than a task.
    pool.submit(abs, 0).result(60)
    results = pool.map(_first_holds, [gate] * 3, [1, 0, 2], timeout=2, chunksize=1)
    assert next(results) == 1
    with pytest.raises(TimeoutError):
        next(results)
    gate.open()


def test_closing_cancels_what_waits(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    held = pool.submit(gate.hold)
    until(gate.marks)
    with contextlib.closing(pool.map(gate.mark, ["late"] * 5, chunksize=1)) as results:
        assert results is not None
    gate.open()
    held.result(60)
    assert pool.submit(tasks.square, 2).result(60) == 4
    assert gate.marks("late") == []
    assert list(results) == []


def test_dropping_an_iterator_that_was_used_cancels_what_waits(
    make_pool: Callable[..., Any], gate: Gate, kind: str
) -> None:
    pool = make_pool(1, kind=kind)
    results = pool.map(_mark_or_hold, [gate] * 10, range(10), chunksize=1)
    assert next(results) == 0
    until(lambda: gate.marks("held"))
    del results
    gate.open()
    assert pool.submit(tasks.square, 2).result(60) == 4
    assert len(gate.marks("held")) <= 2


def _mark_or_hold(gate: Gate, number: int) -> int:
    if number:
        gate.hold("held")
    return number


def test_an_iterator_that_nobody_looks_at_is_run(
    make_pool: Callable[..., Any], gate: Gate, kind: str
) -> None:
    pool = make_pool(2, kind=kind)
    pool.map(gate.mark, [f"n{n}" for n in range(100)])
    pool.shutdown()
    assert all(gate.marks(f"n{n}") for n in range(100))


def test_inputs_of_known_length_are_run_though_the_pool_shuts_down(
    make_pool: Callable[..., Any], kind: str
) -> None:
    pool = make_pool(2, kind=kind)
    results = pool.map(tasks.square, range(500), chunksize=1)
    assert next(results) == 0
    pool.shutdown(wait=False)
    assert list(results) == [n * n for n in range(1, 500)]


def test_many_maps_at_once(pool: Any) -> None:
    maps = [pool.map(tasks.square, range(start, start + 100)) for start in range(0, 1000, 100)]
    assert [n for results in itertools.zip_longest(*maps) for n in results] == [
        (start + n) ** 2 for n in range(100) for start in range(0, 1000, 100)
    ]


def test_one_map_shared_by_threads(pool: Any) -> None:
    results = pool.map_unordered(tasks.square, range(2000), chunksize=7)
    seen: list[int] = []
    lock = threading.Lock()

    def consume() -> None:
        while True:
            with lock:
                try:
                    seen.append(next(results))
                except StopIteration:
                    return

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(seen) == [n * n for n in range(2000)]


def test_a_map_in_a_full_pool(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(1, kind=kind, capacity=2)
    assert list(pool.map(tasks.square, range(200), chunksize=1)) == [n * n for n in range(200)]


def test_a_chunk_is_one_call_to_a_worker_and_the_size_is_learned(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process")
    assert len(list(pool.map(tasks.square, range(1000), chunksize=100))) == 1000
    assert pool.statistics().submitted == 10
    assert sum(pool.map(tasks.identity, itertools.repeat(1, 20_000))) == 20_000
    assert pool.statistics().submitted < 2000, "tiny inputs are sent many at a time"


def test_slow_inputs_are_not_piled_up_in_one_worker(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process")
    results = pool.map(gate.hold, [f"n{n}" for n in range(2)])
    until(lambda: gate.marks("n0") and gate.marks("n1"))
    gate.open()
    assert len(set(results)) == 2


def test_map_of_a_function_that_cannot_be_sent(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    lock = threading.Lock()
    with pytest.raises(ropewalk.EncodeError):
        list(pool.map(lambda n: lock, [1]))


# --- threads that share a map, and its end from elsewhere ---


def test_a_shutdown_while_another_thread_waits_in_next(
    make_pool: Callable[..., Any], gate: Gate, kind: str
) -> None:
    pool = make_pool(1, kind=kind)
    results = pool.map(_hold_first, [gate, *range(1, 200)])
    got: list[Any] = []
    taker = threading.Thread(target=lambda: got.extend(results), daemon=True)
    taker.start()
    until(gate.marks)
    pool.shutdown(wait=False)
    gate.open()
    taker.join(60)
    # All inputs were submitted before the pool closed.
    assert got == [0, *range(1, 200)]


def _hold_first(value: Any) -> Any:
    if isinstance(value, Gate):
        value.hold()
        return 0
    return value


def test_threads_share_a_map(pool: Any) -> None:
    results = pool.map(tasks.square, range(2000))
    got: list[list[int]] = [[] for _ in range(4)]
    threads = [threading.Thread(target=lambda part=part: part.extend(results), daemon=True) for part in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(number for part in got for number in part) == [n * n for n in range(2000)]
    assert all(part == sorted(part) for part in got)


def test_a_close_while_another_thread_waits(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    results = pool.map(_hold_first, [gate, *range(1, 200)])
    ends: list[str] = []

    def take() -> None:
        try:
            ends.append("more" if list(results) else "nothing")
        except CancelledError:
            ends.append("cancelled")

    taker = threading.Thread(target=take, daemon=True)
    taker.start()
    until(gate.marks)
    results.close()
    gate.open()
    taker.join(60)
    assert len(ends) == 1
    assert list(results) == []


def test_inputs_that_iterate_their_own_map(pool: Any) -> None:
    box: list[Any] = []

    def inputs() -> Iterator[int]:
        yield from range(100)
        yield next(box[0])

    box.append(pool.map(tasks.square, inputs()))
    got: list[int] = []
    with pytest.raises(ValueError, match="by this very thread"):
        got.extend(box[0])
    assert got == [n * n for n in range(100)]


def test_a_map_stays_within_the_queue(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(2, kind=kind, capacity=1, overflow="error")
    assert list(pool.map(tasks.square, range(300))) == [n * n for n in range(300)]
    assert sorted(pool.map_unordered(tasks.square, range(300), chunksize=3)) == [n * n for n in range(300)]
    assert pool.submit(tasks.square, 3).result(60) == 9


def test_a_map_submits_the_rest_as_there_is_room(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(2, kind=kind, capacity=1, overflow="error")
    results = pool.map(tasks.square, range(300))
    pool.shutdown()
    assert list(results) == [n * n for n in range(300)]


def test_a_queue_that_others_fill_refuses_a_map(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="thread", capacity=1, overflow="error")
    pool.submit(gate.hold)
    until(gate.marks)
    waiting = pool.submit(tasks.square, 4)
    with pytest.raises(ropewalk.QueueFull):
        pool.map(tasks.square, range(10))
    gate.open()
    assert waiting.result(60) == 16
    assert list(pool.map(tasks.square, range(10))) == [n * n for n in range(10)]


@pytest.mark.parametrize("chunksize", [1, 7])
def test_inputs_that_raise_come_after_the_results_before_them(pool: Any, chunksize: int) -> None:
    def inputs() -> Iterator[int]:
        yield from range(10)
        raise LookupError("no more")

    results = pool.map(tasks.square, inputs(), chunksize=chunksize)
    got: list[int] = []
    with pytest.raises(LookupError, match="no more"):
        got.extend(results)
    assert got == [n * n for n in range(10)]
    assert list(results) == []


def test_inputs_that_raise_at_once_do_so_in_the_call(pool: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        pool.map(tasks.square, (1 // n for n in range(3)))


def _fail_or_hold(value: Any) -> Any:
    if value is None:
        # Longer than a batch goes on after a failure.
        time.sleep(0.03)
        raise ValueError("the first")
    return value.hold(value="held") if isinstance(value, Gate) else value


def test_a_failure_is_told_before_the_rest_of_its_batch(processes: Any, gate: Gate) -> None:
    results = processes.map(_fail_or_hold, [1, None, gate, 4], chunksize=4)
    assert next(results) == 1
    with pytest.raises(ValueError, match="the first"):
        next(results)
    gate.open()
    assert list(results) == ["held", 4]
    assert len(gate.marks()) == 1


def test_failures_of_slow_batches_cost_no_input(processes: Any) -> None:
    from ropewalk import Err

    for inputs in ([None] * 5, [1, None, 2, None, None, 3]):
        got = list(processes.map(_fail_or_hold, inputs, chunksize=4, results=True))
        assert [isinstance(one, Err) for one in got] == [value is None for value in inputs]
