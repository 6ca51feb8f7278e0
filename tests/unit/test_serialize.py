"""Encoding calls and results: which way each object takes, when it is encoded again, and errors."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests import raising, tasks

import ropewalk
from ropewalk.pool.wire import _serialize

LIMIT = 10
TABLE = [1, 2, 3]


def _make(source: str, **names: Any) -> Callable[..., Any]:
    """A function `f` of ``__main__``, as a script or a notebook has them."""
    space: dict[str, Any] = {"__name__": "__main__", **names}
    exec(source, space)
    function: Callable[..., Any] = space["f"]
    return function


# --- objects ------------------------------------------------------------------------------------------------------


def test_an_instance_of_a_class_of_main_carries_its_class() -> None:
    make: Any = _make("class C:\n    def __init__(self): self.x = 4\ndef f(): return C()")
    stream = _serialize.encode_object(make(), None)
    assert pickle.loads(stream).x == 4


def test_what_cannot_be_pickled_is_named() -> None:
    call = ((1, [2]), {"key": tasks.Unpicklable()})
    with pytest.raises(ropewalk.EncodeError, match="argument key"):
        _serialize.encode_object(call, [])
    with pytest.raises(ropewalk.EncodeError, match="argument 2"):
        _serialize.encode_object(((1, sys._getframe()), {}), [])


def test_a_message_does_not_write_out_a_long_value() -> None:
    with pytest.raises(ropewalk.ResultEncodeError) as caught:
        _serialize.encode_result([tasks.Unpicklable()] + ["x" * 1000] * 1000, [])
    assert len(str(caught.value)) < 1000


def test_large_buffers_leave_the_stream() -> None:
    buffers: list[pickle.PickleBuffer] = []
    data = bytearray(b"x" * 100_000)
    stream = _serialize.encode_object(pickle.PickleBuffer(data), buffers)
    assert len(buffers) == 1
    assert len(stream) < 100


@pytest.mark.parametrize(("size", "most"), [(8, 64), (8192, 1024)])
def test_no_more_than_a_record_can_name_leave_it(size: int, most: int) -> None:
    buffers: list[pickle.PickleBuffer] = []
    whole = [pickle.PickleBuffer(bytes([n % 256]) * size) for n in range(1500)]
    stream = _serialize.encode_object(whole, buffers)
    assert len(buffers) == most
    back = pickle.loads(stream, buffers=buffers)
    assert [bytes(item) for item in back] == [bytes([n % 256]) * size for n in range(1500)]


@pytest.mark.parametrize("size", [1, 1000])
def test_thousands_of_arrays_go_and_come(processes: Any, size: int) -> None:
    np = pytest.importorskip("numpy")
    arrays = [np.full(size, n) for n in range(3000)]
    back = processes.submit(tasks.identity, arrays).result(60)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, back, strict=True))
    assert processes.statistics().crashed == 0


# --- exceptions ---------------------------------------------------------------------------------------------------


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Leaves(Exception):
    def __reduce__(self) -> Any:
        return sys.exit, (3,)


def _raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def _round_trip(error: BaseException) -> BaseException:
    return _serialize.decode_error(_serialize.encode_error(_raised(error)), False)


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("k"), OSError(2, "gone"), SystemExit(4)])
def test_exceptions_come_back_as_themselves(error: BaseException) -> None:
    back = _round_trip(error)
    assert type(back) is type(error)
    assert back.args == error.args
    assert isinstance(back.__cause__, ropewalk.RemoteTraceback)
    assert "in _raised" in str(back.__cause__)


def test_notes_come_along() -> None:
    error = ValueError("no")
    error.add_note("while counting")
    back = _round_trip(error)
    assert back.__notes__ == ["while counting"]
    assert "while counting" in str(back.__cause__)


@pytest.mark.parametrize("error", [raising.Locked(7), Leaves("gone")], ids=lambda e: type(e).__name__)
def test_an_exception_that_does_not_survive_is_stood_in_for(error: Exception) -> None:
    back = _round_trip(error)
    assert isinstance(back, ropewalk.RemoteError)
    assert type(error).__name__ in str(back)
    assert str(error) in str(back)
    assert type(error).__name__ in str(back.__cause__)


def test_an_exception_without_words() -> None:
    back = _round_trip(Speechless())
    assert isinstance(back, Speechless)
    assert "Speechless" in str(back.__cause__)


def test_an_error_can_be_shortened() -> None:
    stream = _serialize.encode_error(_raised(ValueError("x" * 100_000)), most=32 * 1024)
    assert len(stream) < 32 * 1024
    back = _serialize.decode_error(stream, False)
    assert isinstance(back, ropewalk.RemoteError)
    assert "ValueError: xxx" in str(back)


def test_an_error_that_is_not_there() -> None:
    assert isinstance(_serialize.decode_error(b"", False), ropewalk.RemoteError)
    assert isinstance(_serialize.decode_error(b"nonsense", False), ropewalk.DecodeError)


def test_an_initializer_that_says_too_much(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", initializer=tasks.fail, initargs=("x" * 200_000,))
    with pytest.raises(ropewalk.InitializerFailed) as caught:
        pool.submit(tasks.square, 2).result(60)
    assert "ValueError" in f"{caught.value} {caught.value.__cause__!r}"
