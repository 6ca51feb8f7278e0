"""Every exception of the package can be pickled and copied with all that it holds, and so can classes made of it."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import ropewalk
import ropewalk.zmq.error  # Its classes count too.
from ropewalk._errors import RemoteTraceback, RopewalkError, TaskTimeout

WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {version}": lambda error, version=version: pickle.loads(pickle.dumps(error, version))
        for version in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


def _classes() -> list[type[Exception]]:
    found: list[type[Exception]] = [RopewalkError]
    for kind in found:
        found += [below for below in kind.__subclasses__() if below.__module__.startswith("ropewalk.")]
    return [*dict.fromkeys(found), RemoteTraceback]


CLASSES = _classes()


def _with_parameters_of_its_own(kind: type[RopewalkError]) -> type[RopewalkError]:
    def __init__(self: Any, *, first: int, second: int) -> None:
        kind.__init__(self, first)
        self.second = second

    name = f"Own{kind.__name__}"
    made = type(name, (kind,), {"__init__": __init__, "__module__": __name__, "__qualname__": name})
    globals()[name] = made
    return made


OWN = [_with_parameters_of_its_own(kind) for kind in CLASSES if issubclass(kind, RopewalkError)]


class Slotted(ropewalk.PoolError):
    __slots__ = ("code", "unset")
    code: Any  # type: ignore[assignment]

    def __init__(self, *, number: int) -> None:
        super().__init__("slotted")
        self.number = number


@dataclasses.dataclass(frozen=True, eq=False)
class Frozen(TaskTimeout):
    number: int


class Failed(ropewalk.SystemCallFailed):
    def __init__(self, name: str, number: int) -> None:
        super().__init__(f"{name} failed", number)
        self.name = name


def _all_of(error: BaseException) -> dict[str, Any]:
    names = ("args", "errno", "strerror", "filename", "filename2", "msg", "name", "path")
    return {
        "type": type(error),
        "text": str(error),
        "repr": repr(error),
        "dict": vars(error),
        **{name: getattr(error, name, None) for name in names},
    }


def _same(error: Any, way: str) -> Any:
    error.add_note("a note")
    made = WAYS[way](error)
    assert made is not error
    assert made.__notes__ == ["a note"]
    assert _all_of(made) == _all_of(error)
    return made


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", CLASSES)
def test_an_exception_keeps_all_that_it_holds(kind: type[Any], way: str) -> None:
    error = kind(3 if kind is ropewalk.Lagged else "a text")
    error.extra = [1, 2]
    assert _same(error, way).extra == [1, 2]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", OWN)
def test_a_class_may_have_parameters_of_its_own(kind: type[Any], way: str) -> None:
    assert _same(kind(first=3, second=4), way).second == 4


@pytest.mark.parametrize("way", WAYS)
def test_what_a_class_keeps_elsewhere(way: str) -> None:
    assert _same(ropewalk.OutOfMemory("text", 28), way).errno == 28
    assert _same(ropewalk.SharedMemoryError(2, "no file", "a/name"), way).filename == "a/name"
    assert _same(Failed("call", 5), way).errno == 5
    assert WAYS[way](Frozen(7)).number == 7
    slotted = Slotted(number=5)
    made = _same(slotted, way)
    assert made.number == 5
    assert not hasattr(made, "unset")


def test_a_task_raises_them(processes: Any) -> None:
    own: list[type[Any]] = [*OWN]
    made: list[Any] = [kind(first=3, second=4) for kind in own]
    for error in (Failed("call", 5), ropewalk.OutOfMemory("text", 28), *made):
        error.add_note("a note")
        error.extra = 5
        raised = processes.submit(_throw, error).exception(60)
        assert _all_of(raised) == _all_of(error)


def _throw(error: BaseException) -> None:
    raise error


def test_a_text_of_a_socket_error_may_be_any_object() -> None:
    kind: Any = ropewalk.zmq.error.ZMQError
    assert str(kind(msg=5)) == "5"
    assert repr(kind(11, OSError("text"))) == "ZMQError('text')"
