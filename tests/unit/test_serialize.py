"""What goes to a worker and back as bytes: by which way, when it has to be made anew, and how failures read."""

from __future__ import annotations

import functools
import math
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import tasks

import windlass
from windlass import _serialize

LIMIT = 10
TABLE = [1, 2, 3]


def _make(source: str, **names: Any) -> Callable[..., Any]:
    """A function `f` of ``__main__``, as a script or a notebook has them."""
    space: dict[str, Any] = {"__name__": "__main__", **names}
    exec(source, space)
    function: Callable[..., Any] = space["f"]
    return function


# --- functions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [tasks.square, math.sqrt, len, tasks.Gate, functools.reduce])
def test_what_can_be_imported_goes_by_name(function: Callable[..., Any]) -> None:
    stream, reusable, print_ = _serialize.encode_function(function)
    assert pickle.loads(stream) is function
    assert len(stream) < 100
    assert reusable
    assert print_ is None


@pytest.mark.parametrize(
    "function",
    [lambda x: x + 1, _make("def f(x):\n    return x + 1"), functools.partial(tasks.add, 1), (1).__add__],
    ids=["lambda", "main", "partial", "bound"],
)
def test_anything_else_goes_by_value(function: Callable[..., Any]) -> None:
    stream, _, print_ = _serialize.encode_function(function)
    assert pickle.loads(stream)(2) == 3
    assert print_ is None or isinstance(print_, tuple)


@pytest.fixture
def homeless() -> Iterator[types.ModuleType]:
    """A module that is loaded here and that no worker could import."""
    module = types.ModuleType("a_homeless_module")
    exec("def helper(x):\n    return x * 2\ndef f(x):\n    return helper(x) + 1", module.__dict__)
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def test_a_module_that_is_only_here_goes_along(homeless: types.ModuleType) -> None:
    stream, reusable, _ = _serialize.encode_function(homeless.f)
    assert reusable
    del sys.modules[homeless.__name__]
    try:
        assert pickle.loads(stream)(3) == 7
    finally:
        sys.modules[homeless.__name__] = homeless


def test_a_file_that_is_not_on_the_path_goes_along(tmp_path: Path) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    file = tmp_path / "aside_of_the_path.py"
    file.write_text("def f():\n    return 'found'\n")
    spec = spec_from_file_location("aside_of_the_path", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        stream, _, _ = _serialize.encode_function(module.f)
    finally:
        del sys.modules[spec.name]
    assert pickle.loads(stream)() == "found"


def test_a_name_that_means_another_function_is_not_used() -> None:
    wrapped = functools.wraps(tasks.square)(lambda number: number + 1)
    stream, _, _ = _serialize.encode_function(wrapped)
    assert pickle.loads(stream)(2) == 3


def test_a_function_that_cannot_be_sent() -> None:
    frame = sys._getframe()
    with pytest.raises(windlass.EncodeError, match="Define it at the top of a module"):
        _serialize.encode_function(functools.partial(tasks.add, frame))


# --- when the pickle of a function is still good ------------------------------------------------------------------


def _stays_valid(function: Any) -> bool:
    print_ = _serialize.fingerprint(function)
    return print_ is not None and _serialize.still_valid(function, print_)


def test_functions_of_constants_are_pickled_once() -> None:
    rate = 3
    names = ("a", ("b", 1.5, None))
    assert _stays_valid(lambda x: x * rate)
    assert _stays_valid(lambda x, y=2: (x, y, names))
    assert _stays_valid(lambda x: math.sqrt(x) + LIMIT)
    assert _stays_valid(lambda x: tasks.square(x))
    assert _stays_valid(_make("def g(x): return x\ndef f(x): return g(x)"))
    assert _stays_valid(_make("def f(n): return n and f(n - 1)"))


def test_functions_of_mutable_things_are_pickled_each_time() -> None:
    seen: list[int] = []
    inside = ([],)
    assert _serialize.fingerprint(lambda x: seen.append(x)) is None
    assert _serialize.fingerprint(lambda: inside) is None
    assert _serialize.fingerprint(lambda: TABLE) is None
    assert _serialize.fingerprint(lambda x=seen: x) is None
    assert _serialize.fingerprint(_make("def g(): return data\ndef f(): return g()", data={})) is None
    assert _serialize.fingerprint(functools.partial(tasks.add, 1)) is None


def test_a_changed_global_is_seen() -> None:
    function: Any = _make("def f(): return rate", rate=1)
    print_ = _serialize.fingerprint(function)
    assert print_ is not None
    function.__globals__["rate"] = 2
    assert not _serialize.still_valid(function, print_)
    function.__globals__["rate"] = 1
    assert _serialize.still_valid(function, print_)
    function.__globals__["rate"] = True  # Equal, and yet another.
    assert not _serialize.still_valid(function, print_)
    del function.__globals__["rate"]
    assert not _serialize.still_valid(function, print_)


def test_a_global_of_an_inner_function_is_seen() -> None:
    function: Any = _make("def f(): return (lambda: [rate for _ in 'ab'])()", rate=1)
    print_ = _serialize.fingerprint(function)
    assert print_ is not None
    function.__globals__["rate"] = 2
    assert not _serialize.still_valid(function, print_)


def test_a_name_that_is_defined_later_is_seen() -> None:
    function: Any = _make("def f(x): return g(x)")
    print_ = _serialize.fingerprint(function)
    assert print_ is not None
    function.__globals__["g"] = tasks.square
    assert not _serialize.still_valid(function, print_)


def test_a_redefined_helper_is_seen() -> None:
    function: Any = _make("def g(): return 1\ndef f(): return g()")
    print_ = _serialize.fingerprint(function)
    assert print_ is not None
    exec("def g(): return 2", function.__globals__)
    assert not _serialize.still_valid(function, print_)


def test_a_changed_closure_default_or_code_is_seen() -> None:
    def outer() -> tuple[Any, Callable[[int], None]]:
        rate = 1

        def f(x: int = 5) -> int:
            return rate * x

        def change(value: int) -> None:
            nonlocal rate
            rate = value

        return f, change

    for step in range(3):
        function, change = outer()
        print_ = _serialize.fingerprint(function)
        assert print_ is not None
        if step == 0:
            change(2)
        elif step == 1:
            function.__defaults__ = (6,)
        else:
            function.__code__ = (lambda x: x).__code__ if False else outer()[0].__code__.replace(co_name="g")
        assert not _serialize.still_valid(function, print_)


def test_a_pool_notices_a_changed_global(processes: Any) -> None:
    function: Any = _make("def f(): return rate", rate=1)
    assert processes.submit(function).result(60) == 1
    function.__globals__["rate"] = 2
    assert processes.submit(function).result(60) == 2


# --- objects ------------------------------------------------------------------------------------------------------


def test_an_instance_of_a_class_of_main_carries_its_class() -> None:
    make: Any = _make("class C:\n    def __init__(self): self.x = 4\ndef f(): return C()")
    stream = _serialize.encode_object(make(), None)
    assert pickle.loads(stream).x == 4


def test_what_cannot_be_pickled_is_named() -> None:
    call = ((1, [2]), {"key": tasks.Unpicklable()})
    with pytest.raises(windlass.EncodeError, match="argument key"):
        _serialize.encode_object(call, [])
    with pytest.raises(windlass.EncodeError, match="argument 2"):
        _serialize.encode_object(((1, sys._getframe()), {}), [])


def test_a_message_does_not_write_out_a_long_value() -> None:
    with pytest.raises(windlass.ResultEncodeError) as caught:
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


class NeedsTwo(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


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
    assert isinstance(back.__cause__, windlass.RemoteTraceback)
    assert "in _raised" in str(back.__cause__)


def test_notes_come_along() -> None:
    error = ValueError("no")
    error.add_note("while counting")
    back = _round_trip(error)
    assert back.__notes__ == ["while counting"]
    assert "while counting" in str(back.__cause__)


@pytest.mark.parametrize("error", [NeedsTwo("this", "that"), Leaves("gone")], ids=lambda e: type(e).__name__)
def test_an_exception_that_does_not_survive_is_stood_in_for(error: Exception) -> None:
    back = _round_trip(error)
    assert isinstance(back, windlass.RemoteError)
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
    assert isinstance(back, windlass.RemoteError)
    assert "ValueError: xxx" in str(back)


def test_an_error_that_is_not_there() -> None:
    assert isinstance(_serialize.decode_error(b"", False), windlass.RemoteError)
    assert isinstance(_serialize.decode_error(b"nonsense", False), windlass.DecodeError)


def test_an_initializer_that_says_too_much(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", initializer=tasks.fail, initargs=("x" * 200_000,))
    with pytest.raises(windlass.InitializerFailed) as caught:
        pool.submit(tasks.square, 2).result(60)
    assert "ValueError" in f"{caught.value} {caught.value.__cause__!r}"
