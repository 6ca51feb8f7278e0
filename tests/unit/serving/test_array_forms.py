"""What a worker reads and writes for arrays, with both libraries that check the other arguments."""
# ruff: noqa: F722, F821, UP037  # Dimensions are texts within annotations.

from __future__ import annotations

import array
import json
import pickle
import tracemalloc
from collections.abc import Callable
from typing import Any, Optional

import pytest

from ropewalk.serving import ServingError, _arrays
from ropewalk.serving._checker import ARRAY, ARRAYS, JSON, MSGPACK, Violations
from ropewalk.serving._signature import Signature
from ropewalk.state import Shm, complex64, float32, int8

from .test_signatures import library  # noqa: F401  # A fixture.

np = pytest.importorskip("numpy")
npt = pytest.importorskip("numpy.typing")
pytestmark = pytest.mark.usefixtures("library")


def scale(
    points: Shm[float32, "n 3"], other: npt.NDArray[np.int8] | None = None, by: float = 2.0
) -> None: ...


def one(array: np.ndarray) -> np.ndarray: ...


def phases(array: Shm[complex64, "n"]) -> Any: ...


def anything(array: np.ndarray) -> Any: ...


def older(array: Optional[np.ndarray] = None, small: Optional[Shm[int8, "2"]] = None) -> None: ...  # noqa: UP045


def plain(numbers: list[float], count: int) -> None: ...


def of(function: Callable[..., Any]) -> Signature:
    return Signature(function, streams=False)


def given(text: str, **arrays: Any) -> tuple[bytes, ...]:
    """Arguments as the gateway sends them; `_` is the one array."""
    header = [
        [None if name == "_" else name, str(one.dtype), list(one.shape)] for name, one in arrays.items()
    ]
    return text.encode(), json.dumps(header).encode(), *(one.tobytes() for one in arrays.values())


def violations(signature: Signature, form: int, data: Any) -> list[tuple[str, str]]:
    with pytest.raises(Violations) as caught:
        signature.decode(form, data)
    return list(caught.value.found)


def test_arrays_are_views_of_what_came() -> None:
    array = np.arange(6, dtype="float32").reshape(2, 3)
    sent = given('{"by":3}', points=array)
    read = of(scale).decode(ARRAYS, sent)
    assert read["by"] == 3
    assert (read["points"] == array).all()
    assert not read["points"].flags.writeable
    assert np.shares_memory(read["points"], np.frombuffer(sent[2], "float32"))


def test_one_array_needs_no_name() -> None:
    assert of(one).decode(ARRAYS, given("{}", _=np.ones(3)))["array"].tolist() == [1, 1, 1]
    assert of(one).decode(ARRAYS, given("{}", _=np.ones((0, 3))))["array"].shape == (0, 3)
    for signature in (of(scale), of(plain)):
        assert "no single array" in violations(signature, ARRAYS, given("{}", _=np.ones(3)))[0][1]


@pytest.mark.parametrize("form", [JSON, MSGPACK])
def test_lists_become_arrays_of_the_type(form: int) -> None:
    if form == MSGPACK:
        msgspec = pytest.importorskip("msgspec")
    value = {"points": [[1, 2, 3]], "other": [1, 2]}
    text = msgspec.msgpack.encode(value) if form == MSGPACK else json.dumps(value).encode()
    read = of(scale).decode(form, text)
    assert (str(read["points"].dtype), str(read["other"].dtype)) == ("float32", "int8")
    assert set(read) == {"points", "other"}
    # What is long comes as a view.
    assert of(scale).decode(form, memoryview(text))["points"].shape == (1, 3)


#: NumPy's array of these has 160 MB.
WIDE = [["x" * 20_000], *([["a"]] * 2_000)]


@pytest.mark.parametrize("function", [one, older, phases, scale], ids=lambda one: one.__name__)
@pytest.mark.parametrize("last", [[], [[1]]], ids=str)
def test_texts_of_an_array_take_no_more_memory_than_a_multiple_of_theirs(
    function: Callable[..., Any], last: list[Any]
) -> None:
    name = "points" if function is scale else "array"
    data = json.dumps({name: WIDE + last}).encode()
    signature = of(function)
    tracemalloc.start()
    try:
        [(field, text)] = violations(signature, JSON, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (field, text.partition(":")[0]) == (name, "Input should be an array")
    assert peak < 16 << 20


def test_texts_are_an_array_of_any_type() -> None:
    for value in (["a", "bcd"], [["x" * 300], ["a"]], ["a", 1, 2.5], ["x" * 40] * 10_000 + ["y" * 100]):
        read = of(one).decode(JSON, json.dumps({"array": value}).encode())["array"]
        assert read.tolist() == np.asarray(value).tolist()
    # A number that is longer than any other of a machine.
    wide = json.dumps({"array": [10**4000, *["a"] * 2_000]}).encode()
    tracemalloc.start()
    try:
        violations(of(one), JSON, wide)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize(
    "wrong", [[1, "1"], [[1, 2], ["3", 4]], [1, None], [1, {"a": 1}], [{}], ["1"], [[], "1"]], ids=str
)
def test_items_of_an_array_of_numbers_are_numbers(wrong: list[Any]) -> None:
    for function, name in ((scale, "points"), (phases, "array")):
        [(field, text)] = violations(of(function), JSON, json.dumps({name: wrong}).encode())
        assert field == name
        assert text.startswith("Input should be an array: ")


def test_arguments_that_need_too_much_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(_arrays.Array, "of_lists", full)
    assert violations(of(one), JSON, b'{"array": [1]}') == [
        ("", "the arguments need more memory than the worker can have")
    ]


def test_none_is_none_where_it_may_be() -> None:
    assert of(older).decode(JSON, b'{"array": null}') == {"array": None}
    assert of(older).decode(JSON, b"{}") == {}
    assert of(older).decode(JSON, b'{"small": [1, -2]}')["small"].tolist() == [1, -2]
    assert violations(of(one), JSON, b'{"array": null}')[0][0] == "array"


def test_what_does_not_fit_names_its_argument() -> None:
    for data, fields in [
        (given('{"by":"x"}', points=np.ones((1, 3), "float32")), ["by"]),
        (given('{"more":1}', points=np.ones((1, 3), "float32")), ["more"]),
        (given("{}", points=np.ones((1, 3))), ["points"]),
        (given("{}", points=np.ones(3, "float32"), other=np.ones(1)), ["points", "other"]),
        (given("{}", other=np.ones(1, "int8")), ["points"]),
        (given("{}", points=np.ones((1, 3), "float32"), more=np.ones(1)), ["more"]),
    ]:
        assert [field for field, _ in violations(of(scale), ARRAYS, data)] == fields


def test_other_parameters_take_an_arrays_items() -> None:
    sent = given("{}", numbers=np.array([1.5, 2.0]), count=np.array([3]))
    assert of(plain).decode(ARRAYS, sent) == {"numbers": [1.5, 2.0], "count": 3}
    wrong = given("{}", numbers=np.array([1j]), count=np.array([3]))
    assert violations(of(plain), ARRAYS, wrong)[0][0] == "numbers"


def test_complex_numbers_are_pairs() -> None:
    read = of(phases).decode(JSON, b'{"array": [[1, 2], [0, -1.5]]}')["array"]
    assert (str(read.dtype), read.tolist()) == ("complex64", [1 + 2j, -1.5j])
    assert json.loads(of(phases).encode(JSON, read)[1:]) == [[1, 2], [0, -1.5]]
    assert json.loads(of(phases).encode(JSON, {"a": read[::-1], "b": read[0]})[1:]) == {
        "a": [[0, -1.5], [1, 2]],
        "b": [1, 2],
    }
    # Other libraries' arrays have lists, too.
    assert json.loads(of(phases).encode(JSON, array.array("d", [1, 2]))[1:]) == [1, 2]


def sent(answer: Any) -> tuple[Any, list[bytes]]:
    """A header, and the buffers, as pickle sends them."""
    first, *buffers = answer
    assert first[0] == ARRAYS
    taken: list[pickle.PickleBuffer] = []
    pickle.dumps(answer, 5, buffer_callback=taken.append)
    assert len(taken) == len(buffers)
    return json.loads(first[1:]), [one.raw().tobytes() for one in taken]


def test_results_are_a_header_and_buffers() -> None:
    signature = of(anything)
    array = np.arange(3, dtype="int16")
    assert sent(signature.encode(ARRAYS, array)) == (["array", [[None, "int16", [3]]]], [array.tobytes()])
    header, buffers = sent(signature.encode(ARRAYS, (array[::2], "x", {"k": [1]})))
    assert header == ["list", [[None, "int16", [2]], [None, "x"], [None, {"k": [1]}]]]
    assert buffers == [array[::2].tobytes()]
    header, _ = sent(signature.encode(ARRAYS, {"a": np.array(1.5), "b": None}))
    assert header == ["values", [["a", "float64", []], ["b", None]]]
    assert sent(signature.encode(ARRAYS, np.array([1, 2], ">i4")))[1] == [b"\1\0\0\0\2\0\0\0"]
    # A caller that asks for one array alone is answered with JSON where there are others.
    assert signature.encode(ARRAY << 4 | JSON, [array]) == b"\x01[[0,1,2]]"
    assert sent(signature.encode(ARRAY << 4 | JSON, array))[0][0] == "array"
    assert signature.encode(JSON << 4 | ARRAYS, array) == b"\x01[0,1,2]"
    assert signature.encode(ARRAYS, np.array(["a"])) == b'\x01["a"]'
    assert signature.encode(ARRAYS, [1, 2]) == b"\x01[1,2]"


def test_annotations_that_callers_cannot_fulfil_are_refused() -> None:
    def bad(array: npt.NDArray[np.datetime64]) -> None: ...

    with pytest.raises(ServingError, match="cannot send arrays of datetime64"):
        of(bad)
