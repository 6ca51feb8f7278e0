"""Shared memory is sent by handle, wherever it occurs, and only shared memory is."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable
from typing import Any

import pytest
from tests import tasks

import ropewalk
from ropewalk import shared
from ropewalk._load import worker

np: Any = pytest.importorskip("numpy")


def _fill(array: Any, value: float) -> None:
    array[...] = value


def _fill_each(arrays: list[Any]) -> None:
    for at, array in enumerate(arrays):
        array[...] = at


def _fail_with(array: Any) -> None:
    array[...] = 4
    raise ValueError(array)


def _start(array: Any, buffer: Any) -> None:
    array[...] = 7
    memoryview(buffer)[0] = 9


KEPT: list[Any] = []


def _keep(value: Any) -> None:
    KEPT.append(value)


def _kept(at: int) -> Any:
    return np.array(KEPT[at])


class _Pair:
    def __init__(self, left: Any, right: Any) -> None:
        self.left = left
        self.right = right


# --- where it may stand -------------------------------------------------------------------------------------------


def test_in_the_arguments_of_an_initializer(make_pool: Callable[..., Any]) -> None:
    array, buffer = shared.array(4), shared.buffer(2)
    pool = make_pool(2, kind="process", initializer=_start, initargs=(array, buffer))
    pool.submit(tasks.identity, 0).result(60)
    assert array.tolist() == [7] * 4
    assert bytes(buffer) == b"\x09\0"
    # The pool keeps it for the workers that are yet to come.
    del array
    gc.collect()
    others = [shared.array(4) for _ in range(100)]
    with pytest.raises(ropewalk.WorkerCrashed):
        pool.submit(tasks.killed_by, 9).result(60)
    pool.submit(tasks.identity, 0).result(60)
    assert all(not other.any() for other in others)


def test_in_a_partial_and_in_a_closure(processes: Any) -> None:
    array = shared.array(4)
    processes.submit(functools.partial(_fill, array, 3)).result(60)
    assert array.tolist() == [3] * 4
    other = shared.array((2, 3))
    part = other[:, 1]

    def enclosed(value: float) -> None:
        part[...] = value

    processes.submit(enclosed, 5).result(60)
    assert other.tolist() == [[0, 5, 0], [0, 5, 0]]


def test_a_function_keeps_what_it_refers_to(processes: Any) -> None:
    array = shared.array(4)
    read = functools.partial(np.array, array)
    array[...] = 6
    assert processes.submit(read).result(60).tolist() == [6] * 4
    del array
    gc.collect()
    shared.array(4)[...] = 1
    assert processes.submit(read).result(60).tolist() == [6] * 4


def test_in_joblibs_calls() -> None:
    joblib = pytest.importorskip("joblib")
    pytest.importorskip("ropewalk.adapters.joblib")
    array = shared.array(3)
    with joblib.parallel_config(backend="ropewalk", n_jobs=2):
        joblib.Parallel()(joblib.delayed(_fill)(array[n : n + 1], n + 1) for n in range(3))
    assert array.tolist() == [1, 2, 3]


def test_in_an_exception(processes: Any) -> None:
    array = shared.array(2)
    with pytest.raises(ValueError, match=r"4\.") as caught:
        processes.submit(_fail_with, array).result(60)
    caught.value.args[0][0] = 5
    assert array.tolist() == [5, 4]


def test_a_plain_view_of_it(processes: Any) -> None:
    array = shared.array(6)
    processes.submit(_fill, np.asarray(array)[2:4], 3).result(60)
    assert array.tolist() == [0, 0, 3, 3, 0, 0]
    rows = [np.asarray(array)[n % 6 : n % 6 + 1] for n in range(600)]
    processes.submit(_fill_each, rows[:300]).result(60)
    assert array.tolist() == [294, 295, 296, 297, 298, 299]
    with pytest.raises(ropewalk.EncodeError, match="512 plain arrays"):
        processes.submit(len, rows).result(60)


def test_a_plain_view_comes_back_as_one(processes: Any) -> None:
    array = shared.array(6)
    back = processes.submit(tasks.identity, np.asarray(array)[1:]).result(60)
    assert np.shares_memory(back, array)
    back[:] = 2
    assert array.tolist() == [0, 2, 2, 2, 2, 2]


# --- many of them -------------------------------------------------------------------------------------------------


def test_thousands_in_one_call(processes: Any) -> None:
    before = len(os.listdir("/proc/self/fd"))
    arrays = [shared.array(2) for _ in range(3000)]
    assert len(os.listdir("/proc/self/fd")) <= before + 8
    processes.submit(_fill_each, arrays).result(60)
    assert all(array.tolist() == [at, at] for at, array in enumerate(arrays))


def test_what_a_worker_keeps_is_not_used_again(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    for at in range(20):
        array = shared.array(3)
        array[...] = at
        pool.submit(_keep, array).result(60)
        del array
        # One that nobody keeps may be used again, and holds zeros then.
        passing = shared.array(3)
        assert not passing.any()
        pool.submit(_fill, passing, 99).result(60)
        del passing
    assert [pool.submit(_kept, at).result(60).tolist() for at in range(20)] == [[at] * 3 for at in range(20)]


def test_what_comes_back_is_not_used_again(processes: Any) -> None:
    array = shared.array(3)
    array[...] = 5
    future = processes.submit(tasks.identity, array)
    while not future.done():
        future.exception(60)
    del array
    gc.collect()
    others = [shared.array(3) for _ in range(100)]
    for other in others:
        other[...] = 1
    assert future.result(60).tolist() == [5, 5, 5]


# --- what is called shared ----------------------------------------------------------------------------------------


def _shared_and_not(array: Any) -> tuple[list[Any], list[Any]]:
    views = [
        array[0],
        array[1:],
        array[..., None],
        array.T,
        array.real,
        array.ravel(),
        array.reshape(4, 3),
        array.astype(float, copy=False),
        array.diagonal(),
        array.view("i8"),
        np.broadcast_to(array, (2, 3, 4), subok=True),
    ]
    copies = [
        array.copy(),
        array[array > 3],
        array[[0, 1]],
        array[array > 100],
        array.astype(int),
        array.ravel("F"),
        array.flatten(),
        array.imag,
        array.flat[1:3],
        array.repeat(2),
        array.take([1]),
        array.cumsum(),
        array.argsort(),
        array.dot(array.T),
        array.__copy__(),
        array.__deepcopy__({}),
        np.copy(array),
        np.empty_like(array),
        np.zeros_like(array),
        np.sort(array, axis=0),
        np.take(array, [1]),
        np.concatenate([array, array]),
        np.dot(array, array.T),
        np.unique(array),
        np.where(array > 3, array, 0),
        *np.split(array.copy(), 3),
        *np.nonzero(array),
    ]
    return views, copies


def test_only_what_lies_in_shared_memory_is_called_shared() -> None:
    array = ropewalk.share(np.arange(12.0).reshape(3, 4))
    views, copies = _shared_and_not(array)
    for at, view in enumerate(views):
        assert type(view) is shared.SharedArray, at
        assert np.shares_memory(view, array), at
    for at, copy in enumerate(copies):
        assert type(copy) is np.ndarray, at
        assert not np.shares_memory(copy, array), at
    assert array.copy().flags.owndata


@pytest.mark.parametrize("name", sorted(set(dir(np.ndarray)) - {"dump", "tofile", "setfield", "resize"}))
def test_no_method_calls_a_copy_shared(name: str) -> None:
    array = ropewalk.share(np.arange(6.0).reshape(2, 3))
    value = getattr(array, name)
    calls: list[Callable[[], Any]] = [lambda: value]
    if callable(value) and not name.startswith("__"):
        calls = [lambda: value(), lambda: value(1), lambda: value([1]), lambda: value(2.0, 3.0)]
    for call in calls:
        try:
            made = call()
        except Exception:
            continue
        if type(made) is shared.SharedArray:
            assert np.shares_memory(made, array)


def test_parts_of_complex_numbers_are_written_in_place() -> None:
    array = ropewalk.share(np.arange(3) + 1j)
    array.imag[0] = 5
    assert array[0] == 5j
    array.imag = 2
    assert array.tolist() == [2j, 1 + 2j, 2 + 2j]
    array.flat = 1
    assert array.sum() == 3


@pytest.mark.parametrize(
    "plain",
    [
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
        np.arange(10)[::-2],
        np.arange(10, dtype=">i4"),
        np.array(["2020-01-01", "NaT"], dtype="M8[D]"),
        np.array(7.5),
        np.zeros((3, 0)),
        np.array([(1, 2.0)], dtype=[("n", "i2"), ("x", "f8")]),
        np.array(["a", "bcd"]),
        np.zeros(3, dtype="V0"),
        np.zeros(3, dtype=[("x", "S0"), ("y", "f8")])["x"],
        np.zeros((2, 2), dtype=[]),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_any_array_keeps_its_layout_and_its_type(plain: Any, processes: Any) -> None:
    copy = ropewalk.share(plain)
    assert type(copy) is shared.SharedArray
    assert (copy.dtype, copy.shape) == (plain.dtype, plain.shape)
    assert copy.strides == plain.copy(order="K").strides or not plain.nbytes
    assert copy.tobytes() == plain.tobytes()
    for back in (
        processes.submit(tasks.identity, copy).result(60),
        processes.submit(tasks.identity, plain).result(60),
    ):
        assert (back.dtype, back.shape) == (plain.dtype, plain.shape)
        assert back.tobytes() == plain.tobytes()


def test_elements_without_bytes() -> None:
    for kind in ("S", "U", "V", "S0", "V0", []):
        made = shared.array(3, kind)
        plain = np.zeros(3, kind)
        assert (made.dtype, made.shape, made.tolist()) == (plain.dtype, plain.shape, plain.tolist())


@pytest.mark.parametrize(
    ("special", "cure"),
    [
        (np.ma.masked_array([1, 2], [0, 1]), "getmaskarray"),
        (np.array([[1, 2]]).view(np.matrix), "numpy.asarray"),
        (np.rec.array([(1, 2.0)], dtype=[("n", "i2"), ("x", "f8")]), "numpy.asarray"),
    ],
)
def test_arrays_that_are_more_than_their_elements(special: Any, cure: str) -> None:
    with pytest.raises(TypeError, match=cure):
        ropewalk.share(special)


# --- objects ------------------------------------------------------------------------------------------------------


def test_an_object_whose_parts_pickle_out_of_band(processes: Any) -> None:
    pair = ropewalk.share(_Pair(np.arange(5.0), {"text": "x", "more": [np.ones((2, 3), order="F")]}))
    assert pair.right["text"] == "x"
    more = pair.right["more"][0]
    assert more.flags.f_contiguous
    processes.submit(_fill, pair.left, 8).result(60)
    assert pair.left.tolist() == [8] * 5
    back = processes.submit(tasks.identity, {"left": pair.left, "more": more}).result(60)
    assert np.shares_memory(back["left"], pair.left)
    assert np.shares_memory(back["more"], more)


def test_an_object_without_parts() -> None:
    for value in (3, "text", {"a": [1]}, np.random):
        with pytest.raises(TypeError, match="share"):
            ropewalk.share(value)


def test_a_data_frame(processes: Any) -> None:
    pandas = pytest.importorskip("pandas")
    frame = ropewalk.share(pandas.DataFrame({"a": np.arange(1000.0), "b": np.arange(1000)}))
    back = processes.submit(tasks.identity, frame).result(60)
    assert np.shares_memory(back["a"].to_numpy(), frame["a"].to_numpy())
    assert back.equals(frame)


# --- giving it up -------------------------------------------------------------------------------------------------


def test_a_buffer_is_released_early() -> None:
    memory = shared.buffer(8 << 20)
    address = np.frombuffer(memory, dtype=np.uint8).__array_interface__["data"][0]
    assert worker.is_shared(address, 8 << 20)
    view = memoryview(memory)
    array = np.frombuffer(memory, dtype=np.uint8)
    for user in (view, array):
        with pytest.raises(BufferError, match="views"):
            memory.release()
        assert not user[0]
        if user is view:
            view.release()
    del array, user
    memory.release()
    memory.release()
    assert not worker.is_shared(address, 1)
    for use in (len, memoryview, bytes, lambda each: each.readonly, lambda each: each.__enter__()):
        with pytest.raises(ValueError, match="released"):
            use(memory)
    assert "released" in repr(memory)


def test_a_buffer_is_a_context_manager(processes: Any) -> None:
    with shared.buffer(4) as memory:
        processes.submit(_fill, np.frombuffer(memory, np.uint8), 3).result(60)
        assert bytes(memory) == b"\3\3\3\3"
    with pytest.raises(ValueError, match="released"):
        len(memory)
    future = processes.submit(len, memory)
    with pytest.raises(ropewalk.EncodeError, match="released"):
        future.result(60)


def test_an_array_keeps_its_memory_from_being_released() -> None:
    array = shared.array(4)
    with pytest.raises(BufferError):
        array.base.base.obj.release()
    array[:] = 1
    assert array.sum() == 4


# --- what a worker keeps ------------------------------------------------------------------------------------------


def _descriptors(*_: Any) -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_worker_lets_go_of_what_it_does_not_use(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    start = pool.submit(_descriptors).result(60)
    first = shared.array(1 << 18)
    pool.submit(_keep, first).result(60)
    arrays = [shared.array(1 << 18) for _ in range(200)]
    seen = [pool.submit(_descriptors, array).result(60) for array in arrays]
    assert max(seen) <= start + 80
    # What it has let go of comes again, and what it holds itself stays.
    for at, array in enumerate([first, *arrays]):
        pool.submit(_fill, array, at).result(60)
        assert array[-1] == at
    first[0] = 9
    assert pool.submit(_kept, -1).result(60)[0] == 9


def test_many_at_once_are_all_there(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", threads=2)
    arrays = [shared.array(1 << 18) for _ in range(100)]
    groups = [arrays[at : at + 40] for at in range(0, 100, 20)] * 4
    for future in [pool.submit(_fill_each, group) for group in groups]:
        future.result(60)
    assert arrays[-1][0] in (19, 39)
    assert pool.statistics().crashed == 0
