"""How functions are sent to workers: by name or by value, when they are sent again, and what they refer to."""

from __future__ import annotations

import functools
import gc
import math
import pickle
import sys
import sysconfig
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests import tasks

import ropewalk
from ropewalk import _core
from ropewalk.pool.wire import _functions

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
    stream, buffers, key, watched = _functions.encode(function)
    assert pickle.loads(stream) is function
    assert len(stream) < 100
    assert not buffers
    assert watched == ()
    assert key == stream or len(stream) > 64


@pytest.mark.parametrize(
    "function",
    [lambda x: x + 1, _make("def f(x):\n    return x + 1"), functools.partial(tasks.add, 1), (1).__add__],
    ids=["lambda", "main", "partial", "bound"],
)
def test_anything_else_goes_by_value(function: Callable[..., Any]) -> None:
    assert pickle.loads(_functions.encode_whole(function))(2) == 3


@pytest.fixture
def homeless() -> Iterator[types.ModuleType]:
    """A module that is loaded here and that no worker could import."""
    module = types.ModuleType("a_homeless_module")
    exec("def helper(x):\n    return x * 2\ndef f(x):\n    return helper(x) + 1", module.__dict__)
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def test_a_module_that_is_only_here_goes_along(homeless: types.ModuleType) -> None:
    stream, _, _, watched = _functions.encode(homeless.f)
    assert watched
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
        stream = _functions.encode_whole(module.f)
    finally:
        del sys.modules[spec.name]
    assert pickle.loads(stream)() == "found"


def test_a_name_that_means_another_function_is_not_used() -> None:
    wrapped = functools.wraps(tasks.square)(lambda number: number + 1)
    stream = _functions.encode_whole(wrapped)
    assert pickle.loads(stream)(2) == 3


def test_a_function_that_cannot_be_sent() -> None:
    frame = sys._getframe()
    with pytest.raises(ropewalk.EncodeError, match="Define it at the top of a module"):
        _functions.encode(functools.partial(tasks.add, frame))


# --- when the pickle of a function is still good ------------------------------------------------------------------


def _checks(function: Any) -> _core.Checks | None:
    watched = _functions.encode(function)[3]
    return _core.Checks(*watched) if watched else None


def _stays_valid(function: Any) -> bool:
    checks = _checks(function)
    return checks is not None and checks.hold()


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
    seen = bytearray()
    inside = ([seen],)
    assert _checks(lambda x: seen.append(x)) is None
    assert _checks(lambda: inside) is None
    assert _checks(lambda x=seen: x) is None
    assert _checks(_make("def g(): return data\ndef f(): return g()", data={"a": object()})) is None
    assert _checks(functools.partial(tasks.add, 1)) is None


@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="without a global lock no container is looked into",
)
def test_functions_of_containers_are_pickled_when_these_have_changed() -> None:
    data: dict[str, Any] = {"a": [1]}
    functions: list[Any] = [
        lambda: data,
        lambda x=data: x,
        _make("def g(): return data\ndef f(): return g()", data=data),
        lambda: TABLE,
    ]
    checks = [_checks(function) for function in functions]
    assert all(one is not None and one.hold() for one in checks)
    data["a"].append(2)
    assert [one is not None and one.hold() for one in checks] == [False, False, False, True]
    assert all(_stays_valid(function) for function in functions)


def test_containers_of_classes_are_pickled_each_time() -> None:
    class Table:
        rows: ClassVar[list[int]] = [1]

    assert _checks(lambda: Table) is None


def test_a_changed_global_is_seen() -> None:
    function: Any = _make("def f(): return rate", rate=1)
    checks = _checks(function)
    assert checks is not None
    function.__globals__["rate"] = 2
    assert not checks.hold()
    function.__globals__["rate"] = 1
    assert checks.hold()
    function.__globals__["rate"] = True  # Equal, and yet another.
    assert not checks.hold()
    del function.__globals__["rate"]
    assert not checks.hold()


def test_a_global_of_an_inner_function_is_seen() -> None:
    function: Any = _make("def f(): return (lambda: [rate for _ in 'ab'])()", rate=1)
    checks = _checks(function)
    assert checks is not None
    function.__globals__["rate"] = 2
    assert not checks.hold()


def test_a_name_that_is_defined_later_is_seen() -> None:
    function: Any = _make("def f(x): return g(x)")
    checks = _checks(function)
    assert checks is not None
    function.__globals__["g"] = tasks.square
    assert not checks.hold()


def test_a_redefined_helper_is_seen() -> None:
    function: Any = _make("def g(): return 1\ndef f(): return g()")
    checks = _checks(function)
    assert checks is not None
    exec("def g(): return 2", function.__globals__)
    assert not checks.hold()


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
        checks = _checks(function)
        assert checks is not None
        if step == 0:
            change(2)
        elif step == 1:
            function.__defaults__ = (6,)
        else:
            function.__code__ = (lambda x: x).__code__ if False else outer()[0].__code__.replace(co_name="g")
        assert not checks.hold()


def test_a_pool_notices_a_changed_global(processes: Any) -> None:
    function: Any = _make("def f(): return rate", rate=1)
    assert processes.submit(function).result(60) == 1
    function.__globals__["rate"] = 2
    assert processes.submit(function).result(60) == 2


def test_what_was_sent_goes_with_its_last_reference() -> None:
    class Data:
        """Something that can be referred to weakly."""

    def over(data: Data) -> Callable[[], Data]:
        return lambda: data

    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        data = Data()
        seen = weakref.ref(data)
        function = over(data)
        _functions.encode(function)
        _functions.encode_whole(function)
        del data, function
        assert seen() is None, "it waits for the collector"
    finally:
        if collects:
            gc.enable()
