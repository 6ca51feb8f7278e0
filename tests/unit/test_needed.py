"""The modules that a call needs, as a pool of interpreters reads them from functions and arguments."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from functools import partial, wraps
from types import ModuleType
from typing import Any

import pytest

from ropewalk.pool.parent._needed import imported_by, named_by

# None of these modules exists: only code is read.
MODULE = """
from functools import wraps

def plain(n):
    return n

def inside():
    import far.away as away
    from beside import one, two
    import json, os.path

def nested():
    return [(lambda: __import__("not seen"), (lambda: (yield from inner()))) for _ in range(3)]

def inner():
    def innermost():
        import deep
    return innermost

def through():
    return helper(1)

def helper(n):
    import helped
    return through() if n else None

def relative():
    from . import sibling
    from ..other import thing

class Model:
    def __init__(self):
        self.load()
    def load(self):
        import weights
    @staticmethod
    def fixed():
        import fixed_one
    @property
    def size(self):
        import sizes
    def __call__(self):
        import called

def decorate(function):
    @wraps(function)
    def wrapped(*args):
        return function(*args)
    return wrapped

@decorate
def decorated():
    import behind
"""


@pytest.fixture(scope="module")
def code() -> Any:
    module = ModuleType("package.inner.module")
    module.__package__ = "package.inner"
    exec(MODULE, vars(module))
    return module


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("plain", []),
        ("inside", ["far.away", "beside", "beside.one", "beside.two"]),
        ("nested", ["deep"]),
        ("through", ["helped"]),
        ("relative", ["package.inner", "package.inner.sibling", "package.other", "package.other.thing"]),
        ("Model", ["weights", "fixed_one", "sizes", "called"]),
        ("decorated", ["behind"]),
    ],
)
def test_imports_of_code(code: Any, name: str, modules: list[str]) -> None:
    assert sorted(imported_by(getattr(code, name))) == sorted(modules)


def test_imports_behind_callables(code: Any) -> None:
    assert imported_by(partial(code.plain, code.helper)) == ["helped"]
    assert imported_by(code.Model.load) == ["weights"]
    made = object.__new__(code.Model)
    assert imported_by(made.load) == ["weights"]
    assert imported_by(made) == ["called"]
    assert imported_by(len) == imported_by(3) == []


def test_a_function_that_names_itself_is_read_once() -> None:
    def again(n: int) -> Any:
        return again(n - 1) if n else wraps

    assert imported_by(again) == []


@dataclass
class Holder:
    """A value with a dictionary."""

    value: Any


class Slots:
    """A value with slots, of which one is empty."""

    __slots__ = ("empty", "value")

    def __init__(self, value: Any) -> None:
        self.value = value


class Trap:
    """Whose attributes must not be asked for."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)


Foreign = type("Foreign", (), {"__module__": "foreign.part"})


@pytest.mark.parametrize(
    "value",
    [
        Foreign(),
        Foreign,
        [1, [2, (Foreign(),)]],
        {"a": {"b": [Foreign()]}},
        {Foreign(): 1},
        frozenset({Foreign()}),
        deque([Foreign()]),
        partial(len, Foreign()),
        partial(Foreign),
        Holder(Foreign()),
        Holder([Slots({"deep": Foreign()})]),
        Slots(Foreign()),
        [0] * 15 + [Foreign()],
    ],
    ids=lambda value: type(value).__name__,
)
def test_modules_of_values(value: Any) -> None:
    assert "foreign.part" in named_by([value])


def test_values_that_need_no_module() -> None:
    assert named_by([1, "a", None, 2.5, b"", [], {}, {1: [(2,)]}, range(3), sys, len]) == []
    assert named_by([Trap()]) == [__name__]


def test_the_look_is_bounded() -> None:
    ring: list[Any] = []
    ring.append(ring)
    assert named_by([ring]) == []
    assert named_by([[0] * 10_000 + [Foreign()]]) == []
    deep: Any = Foreign()
    for _ in range(50):
        deep = [deep]
    assert named_by([deep]) == []
