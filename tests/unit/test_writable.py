"""Who may write to arrays: tasks to arguments with `writable=`, the caller always to results."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests import tasks

import ropewalk

np: Any = pytest.importorskip("numpy")

#: In the record, beside others in a slab, and in a segment of its own.
SIZES = [3, 30_000, 1_000_000]


def _add_one(array: Any) -> Any:
    array += 1
    return float(array.sum())


def _write_all(arrays: list[Any]) -> list[bool]:
    for array in arrays:
        array[...] = 1
    return [array.flags.writeable for array in arrays]


def _add_one_and_fail_once(array: Any) -> float:
    array += 1
    if ropewalk_attempt():
        raise OSError("once more")
    return float(array.sum())


ATTEMPTS: list[int] = []


def ropewalk_attempt() -> bool:
    ATTEMPTS.append(1)
    return len(ATTEMPTS) == 1


def _first_half(array: Any) -> Any:
    return array[: len(array) // 2]


KEPT: list[Any] = []


def _keep(array: Any) -> None:
    KEPT.append(array)
    array[0] = 5


def _kept() -> Any:
    return [float(array[0]) for array in KEPT]


def _fill_bytes(data: Any) -> int:
    memoryview(data)[0] = 1
    return memoryview(data)[0]


@pytest.mark.parametrize("size", SIZES)
def test_arguments_are_read_only_and_the_error_names_the_cure(processes: Any, size: int) -> None:
    with pytest.raises(ValueError, match="read-only") as caught:
        processes.submit(_add_one, np.zeros(size)).result(60)
    assert any("writable=True" in note for note in caught.value.__notes__)
    results = list(processes.map(_add_one, [np.zeros(size)] * 2, results=True))
    for result in results:
        assert any("writable=True" in note for note in result.unwrap_err().__notes__)


def test_other_errors_have_no_such_note(processes: Any) -> None:
    with pytest.raises(ValueError, match="plain") as caught:
        processes.submit(tasks.fail, "plain").result(60)
    assert not getattr(caught.value, "__notes__", [])


@pytest.mark.parametrize("size", SIZES)
def test_a_task_may_write_to_copies_of_its_own(make_pool: Callable[..., Any], size: int) -> None:
    pool = make_pool(2, kind="process", writable=True)
    array = np.zeros(size)
    futures = [pool.submit(_add_one, array) for _ in range(6)]
    assert [future.result(60) for future in futures] == [size] * 6
    assert list(pool.map(_add_one, [array] * 4)) == [size] * 4
    assert not array.any()
    with pytest.raises(ValueError, match="read-only"):
        pool.options(writable=False).submit(_add_one, array).result(60)


def test_the_same_array_twice_and_many_small_ones(processes: Any) -> None:
    writing = processes.options(writable=True)
    assert all(writing.submit(_write_all, [np.zeros(5) for _ in range(300)]).result(60))
    assert all(writing.submit(_write_all, [np.zeros((9, 9))[:, 1], np.zeros(99_999)]).result(60))
    assert writing.submit(_fill_bytes, bytearray(50_000)).result(60) == 1


def test_a_retry_finds_what_was_given(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", writable=True, retries=1)
    assert pool.submit(_add_one_and_fail_once, np.zeros(1_000_000)).result(60) == 1_000_000


def test_what_a_worker_keeps_stays_its_own(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", writable=True)
    for value in range(10):
        pool.submit(_keep, np.full(300_000, value)).result(60)
    assert pool.submit(_kept).result(60) == [5.0] * 10


@pytest.mark.parametrize("size", SIZES)
def test_a_slice_of_an_argument_is_the_callers_to_write(processes: Any, size: int) -> None:
    array = np.arange(float(size))
    shared = ropewalk.share(array)
    half = processes.submit(_first_half, array).result(60)
    half[...] = -1
    again = processes.submit(_first_half, array).result(60)
    assert again.flags.writeable
    assert again[-1] == size // 2 - 1
    assert array[0] == shared[0] == 0


def test_a_shared_array_stays_shared(processes: Any) -> None:
    array = ropewalk.share(np.zeros(4))
    processes.options(writable=True).submit(_add_one, array).result(60)
    assert array.tolist() == [1] * 4


def test_it_is_a_switch() -> None:
    with pytest.raises(TypeError, match="writable"):
        ropewalk.Pool(1, writable=1)  # type: ignore[arg-type]
    with ropewalk.Pool(1, kind="thread") as pool, pytest.raises(TypeError, match="writable"):
        pool.options(writable="yes")  # type: ignore[arg-type]


# --- the same array for several tasks -----------------------------------------------------------------------------


def _sum_when_open(gate: Any, array: Any) -> tuple[float, float]:
    gate.hold()
    return float(array.sum()), float(array[-1])


def _segments() -> int:
    with open("/proc/self/maps") as maps, suppress(FileNotFoundError):
        mapped = {line.split()[4] for line in maps if "ropewalk-segment" in line}
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    held = set()
    for link in links:
        with suppress(FileNotFoundError):
            if "ropewalk-segment" in os.readlink(link):
                held.add(str(os.stat(link).st_ino))
    return len(mapped | held)


def test_the_same_array_given_to_tasks_at_once_is_put_once(make_pool: Callable[..., Any], gate: Any) -> None:
    pool = make_pool(2, kind="process")
    array = np.ones(1_000_003)
    futures = [pool.submit(_sum_when_open, gate, array)]
    before = _segments()
    futures += [pool.submit(_sum_when_open, gate, array) for _ in range(4)]
    assert _segments() == before
    # Written to in between, in one place: it is another array.
    array[700_001] = 5
    futures.append(pool.submit(_sum_when_open, gate, array))
    array[-1] = 7
    futures.append(pool.submit(_sum_when_open, gate, array))
    gate.open()
    sums = [future.result(60) for future in futures]
    assert sums == [(1_000_003, 1)] * 5 + [(1_000_007, 1), (1_000_013, 7)]


def test_one_tasks_copy_is_not_anothers(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process", writable=True)
    array = np.zeros(1_000_003)
    assert [future.result(60) for future in [pool.submit(_add_one, array) for _ in range(8)]] == [
        1_000_003
    ] * 8


def test_many_large_arrays_in_one_call(processes: Any) -> None:
    arrays = [np.full(200_000, at) for at in range(40)]
    before = _segments()
    future = processes.submit(tasks.identity, arrays)
    assert _segments() <= before + 2
    assert [float(array[0]) for array in future.result(60)] == list(range(40))
