"""Maps over inputs that an earlier run has finished: they are taken many at a time, and behave as if one by one."""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tasks import Noted

import ropewalk
from ropewalk import journal
from ropewalk._keys import key_of_function, parts
from ropewalk._load import journal as compiled

#: Inputs that a map of two threads takes ahead of its results if it has no `buffersize`.
AHEAD = 128 + 4 * 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.wal"


@pytest.fixture
def double(tmp_path: Path) -> Noted:
    return Noted(tmp_path)


@pytest.fixture
def pool(make_pool: Callable[..., Any]) -> Any:
    return make_pool(2, kind="thread")


class Gone:
    """A result that cannot be unpickled while `is_there` is False."""

    is_there = True

    def __reduce__(self) -> Any:
        return _gone, ()


def _gone() -> Gone:
    if not Gone.is_there:
        raise LookupError("gone")
    return Gone()


def _gone_or(number: int) -> Any:
    return Gone() if number % 100 == 50 else number


def _large(number: int) -> bytes:
    return bytes([number]) * 200_000


@pytest.mark.parametrize("count", [1, AHEAD - 1, AHEAD, AHEAD + 1, 1023, 1024, 1025, 3 * AHEAD])
def test_every_count_of_finished_inputs_comes_in_order(
    pool: Any, path: Path, double: Noted, count: int
) -> None:
    for more in (0, 0, 3):
        results = pool.map(double, range(count + more), journal=path)
        assert list(results) == [2 * n for n in range(count + more)]
        assert len(results) == 0
    assert double.calls() == Counter(range(count + 3))


@pytest.mark.parametrize("method", ["map", "map_unordered"])
@pytest.mark.parametrize("buffersize", [None, 1, 2, 7, 5000])
def test_unfinished_inputs_among_finished_ones(
    pool: Any, path: Path, double: Noted, method: str, buffersize: int | None
) -> None:
    count = 4 * AHEAD
    unfinished = {0, 1, 5, count - 1, *(AHEAD * turn + by for turn in (1, 2) for by in (-2, -1, 0, 1))}
    unfinished.update(range(300, 330))
    list(pool.map(double, [n for n in range(count) if n not in unfinished], journal=path))
    for _ in range(2):
        found = list(getattr(pool, method)(double, range(count), journal=path, buffersize=buffersize))
        assert (found if method == "map" else sorted(found)) == [2 * n for n in range(count)]
    assert double.calls() == Counter(range(count))


def test_equal_inputs_are_counted_from_one_batch_to_the_next(pool: Any, path: Path, double: Noted) -> None:
    inputs = [7, 8, *[3] * (2 * AHEAD), 7, 3]
    list(pool.map(double, inputs, journal=path))
    for buffersize in (None, 2, 100):
        again = pool.map(double, [*inputs, *inputs[:2]], journal=path, buffersize=buffersize)
        assert list(again) == [2 * n for n in [*inputs, *inputs[:2]]]
    assert double.calls() == Counter([*inputs, *inputs[:2]])


def test_inputs_in_any_other_order_are_known(pool: Any, path: Path, double: Noted) -> None:
    chance, ordered = random.Random(5), [*range(6000), *range(40)]
    list(pool.map(double, ordered, journal=path))
    shuffled = chance.sample(ordered, len(ordered))
    for inputs in (ordered[::-1], shuffled, ordered[5000:] + ordered[:5000], ordered[::97]):
        assert list(pool.map(double, inputs, journal=path)) == [2 * n for n in inputs]
    assert double.calls() == Counter(ordered)


def test_several_arguments_and_outcomes(pool: Any, path: Path) -> None:
    for _ in range(2):
        assert list(pool.map(pow, range(300), itertools.repeat(2), journal=path)) == [
            n * n for n in range(300)
        ]
        outcomes = list(pool.map(pow, range(300), [2] * 300, journal=path, results=True))
        assert [outcome.unwrap() for outcome in outcomes] == [n * n for n in range(300)]
    # With one iterable a tuple is one argument.
    for _ in range(2):
        assert list(pool.map(sum, [(1, 2), (3, 4)], journal=path)) == [3, 7]


@pytest.mark.parametrize("buffersize", [None, 1, 3, 50])
def test_no_more_inputs_are_taken_than_before(
    pool: Any, path: Path, double: Noted, buffersize: int | None
) -> None:
    list(pool.map(double, range(500), journal=path))
    taken = itertools.count()
    results = pool.map(double, (next(taken) for _ in range(1000)), journal=path, buffersize=buffersize)
    for yielded in range(1, 700):
        assert next(results) == 2 * (yielded - 1)
        ahead = int(repr(taken)[6:-1]) - yielded
        assert 0 <= ahead < (buffersize or AHEAD)
    results.close()
    # What was submitted after the closing is what was taken by then.
    assert max(double.calls()) < 700 + (buffersize or AHEAD)


@pytest.mark.parametrize("method", ["map", "map_unordered"])
def test_an_error_of_the_inputs_comes_behind_finished_ones(
    pool: Any, path: Path, double: Noted, method: str
) -> None:
    def inputs(count: int) -> Iterator[int]:
        yield from range(count)
        raise OSError("gone")

    list(pool.map(double, range(400), journal=path))
    for count in (0, 1, 200, AHEAD):
        results = getattr(pool, method)(double, inputs(count), journal=path)
        assert [next(results) for _ in range(count)] == [2 * n for n in range(count)]
        with pytest.raises(OSError, match="gone"):
            next(results)
        assert list(results) == []


def test_an_interruption_in_the_inputs_loses_no_result(pool: Any, path: Path, double: Noted) -> None:
    class Interrupted(BaseException):
        pass

    class Inputs:
        taken = 0
        is_due = True

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            if self.taken == 200 and self.is_due:
                self.is_due = False
                raise Interrupted
            if self.taken == 400:
                raise StopIteration
            self.taken += 1
            return self.taken - 1

    list(pool.map(double, range(400), journal=path))
    results, found = pool.map(double, Inputs(), journal=path), []
    with pytest.raises(Interrupted):
        found.extend(next(results) for _ in range(400))
    found.extend(results)
    assert found == [2 * n for n in range(400)]


def test_a_map_that_its_inputs_close_ends(pool: Any, path: Path, double: Noted) -> None:
    def inputs() -> Iterator[int]:
        yield from range(AHEAD + 50)
        results.close()
        yield from range(AHEAD + 50, 400)

    list(pool.map(double, range(400), journal=path))
    results = pool.map(double, inputs(), journal=path)
    assert list(results) == [2 * n for n in range(AHEAD)]
    assert double.calls() == Counter(range(400))
    assert list(pool.map(double, [1], journal=path)) == [2]


def test_the_length_is_right_at_every_result(pool: Any, path: Path, double: Noted) -> None:
    lengths = []

    class Inputs(list[int]):
        def __iter__(self) -> Iterator[int]:
            for number in super().__iter__():
                lengths.append(None if results is None else len(results))
                yield number

    results: Any = None
    list(pool.map(double, [n for n in range(500) if n % 90 != 7], journal=path))
    results = pool.map(double, Inputs(range(500)), journal=path)
    for yielded in range(500):
        assert len(results) == 500 - yielded
        next(results)
    # The input that is being taken when a result is asked for counts, and the result that is asked for does too.
    for number, length in enumerate(lengths[AHEAD:]):
        assert length is not None
        assert 500 - number - AHEAD <= length <= 500 - number


def test_an_input_without_a_key_has_its_number(pool: Any, path: Path, double: Noted) -> None:
    list(pool.map(double, range(500), journal=path))
    without = {0, 77, AHEAD, AHEAD + 1, 300, 499}
    loop: list[Any] = []
    loop.append(loop)
    inputs = [loop if n in without else n for n in range(500)]
    for buffersize in (None, 5):
        outcomes = list(pool.map(double, inputs, journal=path, results=True, buffersize=buffersize))
        for number, outcome in enumerate(outcomes):
            if number in without:
                assert f"input {number} of the map has no key" in str(outcome.error)
            else:
                assert outcome.unwrap() == 2 * number


def test_results_that_cannot_be_unpickled_raise_in_their_turn(
    pool: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(pool.map(_gone_or, range(400), journal=path))
    monkeypatch.setattr(Gone, "is_there", False)
    for buffersize in (None, 1, 51):
        results = pool.map(_gone_or, range(400), journal=path, buffersize=buffersize)
        for number in range(400):
            if number % 100 == 50:
                with pytest.raises(LookupError, match="gone") as caught:
                    next(results)
                assert "The journal of the map has this result" in caught.value.__notes__[0]
                assert len(results) == 399 - number
            else:
                assert next(results) == number
        assert list(results) == []


def test_large_results_are_read_a_few_at_a_time(pool: Any, path: Path) -> None:
    for _ in range(2):
        results = pool.map(_large, range(64), journal=path)
        assert [(len(result), result[0]) for result in results] == [(200_000, n) for n in range(64)]


def test_a_result_that_cannot_be_read_any_more_fails_alone(pool: Any, path: Path) -> None:
    list(pool.map(_large, range(8), journal=path))
    results = pool.map(_large, range(8), journal=path, buffersize=1, results=True)
    assert next(results).unwrap() == _large(0)
    offsets = list(itertools.accumulate(len(record.payload) for record in journal.read(path)))
    with open(path, "r+b") as file:
        file.seek(offsets[4])
        file.write(b"damage")
    outcomes = list(results)
    bad = [outcome for outcome in outcomes if outcome.is_err()]
    assert len(outcomes) == 7
    assert len(bad) == 1
    number = 1 + outcomes.index(bad[0])
    assert f"input {number} of the map" in str(bad[0].error)
    assert isinstance(bad[0].error.__cause__, ropewalk.JournalCorrupt)
    assert [o.unwrap() for o in outcomes if o.is_ok()] == [_large(n) for n in range(1, 8) if n != number]


def test_taking_says_why_it_ends(path: Path) -> None:
    log, function, line = compiled.CallLog(str(path)), key_of_function(abs), deque[Any]()
    refusals: list[tuple[int, Exception]] = []
    calls = function, False, parts, lambda number, error: refusals.append((number, error))
    try:
        for number in range(5):
            key, known = log.begin(function, (number,), parts)
            assert known is None
            log.finish(key, b"%d" % number)
    finally:
        log.close()
    log = compiled.CallLog(str(path))
    try:
        inputs = iter([0, 1, 2, 9, 3, [log], 4])
        assert log.take(inputs, 2, line, calls) is None
        assert (list(line), log.taken) == ([b"0", b"1"], 2)
        arguments, key = log.take(inputs, 9, line, calls)  # type: ignore[misc]
        assert (arguments, len(key), list(line), log.taken) == ((9,), 16, [b"0", b"1", b"2"], 4)
        assert log.take(inputs, 9, line, calls) is None
        assert [number for number, _ in refusals] == [5]
        assert (list(line), log.taken) == ([b"0", b"1", b"2", b"3", None], 6)
        assert isinstance(log.take(inputs, 9, line, calls), StopIteration)
        assert (line[-1], log.taken) == (b"4", 7)
        assert log.take(inputs, 0, line, calls) is None
        with pytest.raises(TypeError):
            log.take([1], 1, line, calls)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="slice"):
            log.take(iter([1]), 1, line, (b"short", *calls[1:]))
    finally:
        log.close()
