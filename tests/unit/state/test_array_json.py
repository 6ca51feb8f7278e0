"""JSON of arrays: what is written is read as the field of a state has it."""
# The dimensions of arrays are no names of types.

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from ropewalk._errors import BadJson, NotJson  # noqa: E402
from ropewalk.state import Shm, Store, dumps, loads  # noqa: E402
from ropewalk.state._arrays import sealed_memory  # noqa: E402


def record(dtype: str, dims: str) -> Any:
    return make_dataclass("Record", [("w", Shm[np.dtype(dtype), dims])], frozen=True, slots=True)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint64", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,), (2, 1, 2)])
def test_arrays_are_read_as_they_were_written(dtype: str, shape: tuple[int, ...]) -> None:
    Record = record(dtype, " ".join("_" for _ in shape))
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    with Store(Record(array)) as store:
        found = loads(dumps(store.snapshot()), Record).w
        assert type(found) is np.ndarray
        assert (found.dtype, found.shape, found.tolist()) == (array.dtype, shape, array.tolist())
        assert not found.flags.writeable
        # A state takes it as it is.
        assert sealed_memory(found) is not None
        store.run(lambda root: setattr(root, "w", found))
        assert store.snapshot().w is found


@pytest.mark.parametrize(
    ("dims", "shape", "read"),
    [
        ("_ 3", (0, 3), (0, 3)),
        ("n m", (0, 3), (0, 0)),
        ("_ _ 4", (2, 0, 4), (2, 0, 4)),
        ("_ _ _", (2, 0, 3), (2, 0, 0)),
        ("0 n", (0, 2), (0, 0)),
        ("3 0", (3, 0), (3, 0)),
    ],
)
def test_arrays_without_items(dims: str, shape: tuple[int, ...], read: tuple[int, ...]) -> None:
    Record = record("float32", dims)
    found = loads(dumps(Record(np.zeros(shape, np.float32))), Record).w
    assert (found.shape, found.dtype) == (read, np.float32)


def test_numbers_that_json_has_not() -> None:
    Record = record("float64", "_")
    text = dumps(Record(np.array([np.nan, np.inf, -np.inf, 1e308, -0.0])))
    assert text == b'{"w":[null,null,null,1e+308,-0.0]}'
    found = loads(text, Record).w
    assert np.isnan(found[:3]).all()
    assert found[3:].tolist() == [1e308, -0.0]
    big = np.array([2**64 - 1, 1], np.uint64)
    assert loads(dumps(Record(big)), record("uint64", "_")).w.tolist() == big.tolist()


def test_complex_arrays_have_no_form() -> None:
    for value in (np.ones(2, np.complex64), np.ones((), np.complex128)):
        with pytest.raises(NotJson, match="complex"):
            dumps({"w": value})
    text = dumps({"w": np.array([1 + 2j])}, default=lambda one: [one.real, one.imag])
    assert text == b'{"w":[[1.0,2.0]]}'
    with pytest.raises(NotJson, match="complex numbers have no form"):
        loads(b'{"w":[1]}', record("complex64", "_"))


@pytest.mark.parametrize(
    ("dtype", "dims", "text"),
    [
        ("int64", "_", "[1.5]"),
        ("int64", "_", "[true]"),
        ("int64", "_", "[null]"),
        ("int8", "_", "[300]"),
        ("uint8", "_", "[-1]"),
        ("float64", "_", '["1"]'),
        ("float64", "_", "[{}]"),
        ("bool", "_", "[1]"),
        ("float64", "_", "1"),
        ("float64", "", "[1]"),
        ("float64", "", '"1"'),
        ("float64", "_ _", "[[1],[1,2]]"),
        ("float64", "_ _", "[1]"),
        ("float64", "_ 2", "[[1]]"),
        ("float64", "_", "[[]]"),
        ("float64", "3 _", "[]"),
    ],
)
def test_what_does_not_fit_is_refused(dtype: str, dims: str, text: str) -> None:
    with pytest.raises(BadJson, match=r"\$\.w: expected"):
        loads(f'{{"w":{text}}}', record(dtype, dims))
