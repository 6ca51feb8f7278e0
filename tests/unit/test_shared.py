"""Shared arrays and buffers: the same memory in a pool's processes, plain data everywhere else."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests import tasks

import ropewalk
from ropewalk import shared

np: Any = pytest.importorskip("numpy")


def _fill(array: Any, value: float) -> None:
    array[...] = value


def _fill_buffer(buffer: Any, value: int) -> int:
    memory = memoryview(buffer)
    memory[:] = bytes([value]) * len(memory)
    return len(memory)


def _make_array(length: int) -> Any:
    made = shared.array(length)
    made[:] = np.arange(length)
    return made


def _make_many(count: int) -> list[Any]:
    # Too large to lie beside each other.
    return [shared.array((1 << 20) + 1, "u1") for _ in range(count)]


def _describe(array: Any) -> tuple[str, bool, tuple[int, ...], tuple[int, ...]]:
    return type(array).__name__, array.flags.writeable, array.shape, array.strides


KEPT: list[Any] = []


def _keep(value: Any) -> None:
    KEPT[:] = [value]


def _read_kept() -> Any:
    return np.array(KEPT[0])


# --- in one process -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), 0, 5, (3, 4), (0, 3), [2, 2], np.int64(7)])
@pytest.mark.parametrize("dtype", [float, "u1", "complex64", [("x", "f8"), ("n", "i2")]])
def test_an_array_starts_with_zeros(shape: Any, dtype: Any) -> None:
    made = shared.array(shape, dtype)
    plain = np.zeros(shape, dtype)
    assert made.shape == plain.shape
    assert made.dtype == plain.dtype
    assert made.flags.writeable
    assert made.flags.c_contiguous
    assert made.tobytes() == plain.tobytes()
    assert isinstance(made, shared.SharedArray)


def test_an_array_is_aligned() -> None:
    assert shared.array(100).__array_interface__["data"][0] % 64 == 0


def test_what_cannot_be_shared() -> None:
    with pytest.raises(TypeError, match="objects"):
        shared.array(3, object)
    with pytest.raises(TypeError, match="objects"):
        ropewalk.share(np.array([{}]))
    with pytest.raises(TypeError):
        ropewalk.share(3)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="negative"):
        shared.array((2, -1))
    with pytest.raises(ValueError, match="negative"):
        shared.buffer(-1)


def test_more_than_the_machine_has() -> None:
    with pytest.raises(ropewalk.OutOfMemory) as caught:
        shared.array(1 << 50, "u1")
    assert isinstance(caught.value, MemoryError)
    assert caught.value.code == "RW-NOMEM"


def test_a_copy_is_shared_and_what_is_shared_is_not_copied() -> None:
    plain = np.arange(12.0).reshape(3, 4)
    copy = ropewalk.share(plain)
    assert np.array_equal(copy, plain)
    plain[:] = 0
    assert copy[2, 3] == 11
    assert ropewalk.share(copy) is copy
    assert np.shares_memory(ropewalk.share(copy[1:]), copy)
    fortran = ropewalk.share(np.asfortranarray(np.arange(6).reshape(2, 3)))
    assert fortran.tolist() == [[0, 1, 2], [3, 4, 5]]
    # A copy of a shared array is private, and can be shared anew.
    private = copy.copy()
    assert not np.shares_memory(ropewalk.share(private), private)


def test_results_are_plain_arrays() -> None:
    a = ropewalk.share(np.arange(6.0).reshape(2, 3))
    for made in (a + 1, -a, a @ a.T, np.sqrt(a), a.sum(axis=0), a > 2):
        assert type(made) is np.ndarray
    assert isinstance(a.sum(), np.floating)
    assert type(a[0]) is shared.SharedArray
    assert type(a.T) is shared.SharedArray
    same = a
    same += 1
    assert same is a
    assert np.add(a, 1, out=a) is a


def test_a_buffer_is_a_buffer() -> None:
    made = shared.buffer(10)
    assert len(made) == 10
    memory = memoryview(made)
    assert not memory.readonly
    memory[3] = 7
    assert bytes(made) == b"\0\0\0\7" + bytes(6)
    assert bytes(ropewalk.share(b"abc")) == b"abc"
    assert len(shared.buffer(0)) == 0
    assert "10 bytes" in repr(made)
    with pytest.raises(TypeError):
        shared.SharedBuffer()


def test_memory_lives_as_long_as_a_view_of_it() -> None:
    memory = memoryview(ropewalk.share(b"still here"))
    row = shared.array((3, 3))[1]
    gc.collect()
    assert bytes(memory) == b"still here"
    row[:] = 1
    assert row.sum() == 3


def test_memory_is_given_back() -> None:
    def mapped() -> int:
        with open("/proc/self/maps") as maps:
            return sum("ropewalk" in line for line in maps)

    before = mapped()
    some = [shared.array(1 << 22) for _ in range(20)]
    assert mapped() > before
    descriptors = len(os.listdir("/proc/self/fd"))
    del some
    assert len(os.listdir("/proc/self/fd")) <= descriptors


# --- pickled by somebody else -------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_outside_of_a_pool_they_are_pickled_by_value(protocol: int) -> None:
    array = ropewalk.share(np.arange(5))
    back = pickle.loads(pickle.dumps(array, protocol))
    assert type(back) is np.ndarray
    assert np.array_equal(back, array)
    assert not np.shares_memory(back, array)
    buffer = pickle.loads(pickle.dumps(ropewalk.share(b"abc"), protocol))
    assert bytes(buffer) == b"abc"


def test_a_pickle_is_read_by_a_fresh_process() -> None:
    stream = pickle.dumps(ropewalk.share(b"abc"))
    code = "import pickle, sys; print(bytes(pickle.load(sys.stdin.buffer)))"
    run = subprocess.run(
        [sys.executable, "-c", code], input=stream, capture_output=True, check=True, timeout=60
    )
    assert run.stdout.strip() == b"b'abc'"


def test_a_handle_of_memory_that_is_gone() -> None:
    from ropewalk._load import worker

    with pytest.raises(ropewalk.StaleHandle):
        worker.shared_attach(12345, 1, 0, 1)


# --- in tasks -----------------------------------------------------------------------------------------------------


def test_tasks_write_in_place(processes: Any) -> None:
    array = shared.array((4, 5))
    list(processes.map(_fill, [array[n] for n in range(4)], range(4)))
    assert array.tolist() == [[float(n)] * 5 for n in range(4)]
    buffer = shared.buffer(6)
    assert processes.submit(_fill_buffer, buffer, 9).result(60) == 6
    assert bytes(buffer) == bytes([9] * 6)


def test_a_view_arrives_as_it_was(processes: Any) -> None:
    array = shared.array((4, 6))
    part = array[::-2, 1:3]
    assert processes.submit(_describe, part).result(60) == ("SharedArray", True, part.shape, part.strides)
    part.flags.writeable = False
    assert processes.submit(_describe, part).result(60) == ("SharedArray", False, part.shape, part.strides)


def test_a_task_can_make_one(processes: Any) -> None:
    made = processes.submit(_make_array, 1000).result(60)
    assert type(made) is shared.SharedArray
    assert made.tolist() == list(range(1000))
    processes.submit(_fill, made, 5).result(60)
    assert (made == 5).all()


def test_one_that_is_sent_twice_is_sent_once(processes: Any) -> None:
    array = shared.array(10)
    first, second, row = processes.submit(tasks.identity, [array, array, array[2:4]]).result(60)
    first[3] = 8
    assert second[3] == row[1] == array[3] == 8


def test_a_worker_may_keep_one(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    array = ropewalk.share(np.arange(3.0))
    pool.submit(_keep, array).result(60)
    array[0] = 5
    assert pool.submit(_read_kept).result(60).tolist() == [5, 1, 2]
    del array
    gc.collect()
    assert pool.submit(_read_kept).result(60).tolist() == [5, 1, 2]


def test_more_than_one_record_can_name(processes: Any) -> None:
    with pytest.raises(ropewalk.ResultEncodeError, match="128 pieces"):
        processes.submit(_make_many, 129).result(60)
    assert len(processes.submit(_make_many, 128).result(60)) == 128
    with pytest.raises(ropewalk.EncodeError, match="128 pieces"):
        processes.submit(tasks.identity, _make_many(129)).result(60)
    several = [_make_many(20) for _ in range(20)]
    for future in [processes.submit(len, some) for some in several]:
        assert future.result(60) == 20
    assert processes.statistics().crashed == 0


def test_slices_of_one_are_one(processes: Any) -> None:
    array = shared.array((1000, 2))
    back = processes.submit(tasks.identity, list(array)).result(60)
    assert len(back) == 1000
    assert all(np.shares_memory(row, array) for row in back)


def test_threads_share_anything(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="thread")
    array = shared.array(4)
    pool.submit(_fill, array, 2).result(60)
    assert array.sum() == 8
    assert pool.submit(tasks.identity, array).result(60) is array


def test_numpy_is_imported_for_arrays_only() -> None:
    code = (
        "import sys, ropewalk.shared\n"
        "ropewalk.shared.buffer(3); ropewalk.share(b'x')\n"
        "assert 'numpy' not in sys.modules\n"
        "ropewalk.shared.SharedArray\n"
        "assert 'numpy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
