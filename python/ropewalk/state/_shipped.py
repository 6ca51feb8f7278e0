"""Tasks on their way to the workers of a pool: each as one function that the pool keeps.

A pool pickles a function once, and again only if what the function refers to has changed; arguments it pickles each
time. So a task and the class of the state travel in the closure of a function, which has the task's name in errors.
The closure has nothing that may change unnoticed: a contract stands in it as plain steps, and a task that a worker can
import as its name.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import Any, TypeAlias, cast

from ropewalk.pool.wire._watch import is_importable
from ropewalk.state._contract import Contract
from ropewalk.state._paths import EACH, Key, Path, Step, steps_of
from ropewalk.state._prepared import name_of, named
from ropewalk.state._replica import Done, run_in_worker
from ropewalk.state._task import Task

#: Paths in a closure: a text as it is, of a typed path the steps, in which `...` stands for each item and a tuple for
#: a key.
_Plain: TypeAlias = "tuple[str | tuple[Any, ...], ...]"
#: What a task reads and writes; `None` without a contract that is enforced.
_Access: TypeAlias = "tuple[_Plain, _Plain] | None"

#: A worker keeps so many tasks whose functions it got from the program.
_MOST = 64


class Shipped:
    """The functions by which the tasks of one store are sent."""

    def __init__(self, kind: type) -> None:
        """`kind` is the class of the state."""
        self._kind = kind
        #: The last plain function, which most often is the next one too.
        self._last: tuple[Any, Callable[..., Done]] | None = None

    def of(self, task: Any) -> Callable[..., Done]:
        """Returns the function for a task or a plain function: it takes parts of the state, then the task's arguments.

        A worker that runs it returns what the task did.
        """
        is_named = is_importable(task)
        if isinstance(task, Task):
            # A task that is the value of its name may lose that.
            known = task._shipped.get(self)
            if known is None or known[0] != is_named:
                known = task._shipped[self] = is_named, _made(self._kind, task, is_named)
            return known[1]
        if type(task) is not FunctionType:
            return _Called(self._kind, task)
        last = self._last
        if last is None or last[0] is not task:
            last = self._last = task, _made(self._kind, task, is_named)
        return last[1]


def _made(kind: type, task: Any, is_named: bool) -> Callable[..., Done]:
    if is_named:
        made = _of_name(kind, task.__module__, task.__qualname__)
    elif isinstance(task, Task):
        sent = cast("Task[..., Any]", task)
        made = _of_task(kind, sent.__wrapped__, *_parts_of(sent), sent.label)
    else:
        made = _of_function(kind, task)
    made.__module__ = task.__module__
    made.__name__ = made.__qualname__ = named(task)
    return cast("Callable[..., Done]", made)


def _of_name(kind: type, module: str, name: str) -> Any:
    def run(parts: Any, /, *args: Any, **kwargs: Any) -> Done:
        return run_in_worker(kind, parts, found(module, name), args, kwargs)

    return run


def _of_task(kind: type, function: Any, root: Any, access: _Access, label: str) -> Any:
    def run(parts: Any, /, *args: Any, **kwargs: Any) -> Done:
        return run_in_worker(kind, parts, made_again(function, root, access, label), args, kwargs)

    return run


def _of_function(kind: type, function: Any) -> Any:
    def run(parts: Any, /, *args: Any, **kwargs: Any) -> Done:
        return run_in_worker(kind, parts, function, args, kwargs)

    return run


class _Called:
    """An object that can be called, as a task; its pickle is made each time."""

    def __init__(self, kind: type, task: Any) -> None:
        self._kind = kind
        self._task = task
        # The name in errors.
        self.__module__ = "builtins"
        self.__qualname__ = name_of(task)

    def __call__(self, parts: Any, /, *args: Any, **kwargs: Any) -> Done:
        return run_in_worker(self._kind, parts, self._task, args, kwargs)


# --- contracts --------------------------------------------------------------------------------------------------------


def _parts_of(task: Task[..., Any]) -> tuple[Any, _Access]:
    contract = task.contract
    # What is not enforced is not needed there.
    if contract is None or task.strict is not True:
        return None, None
    # The class by itself: in a tuple a change of it would not be noticed.
    return contract.root, (_plain(contract.reads), _plain(contract.writes))


def _plain(paths: tuple[Path[Any] | str, ...]) -> _Plain:
    return tuple(
        path if isinstance(path, str) else tuple(_plain_step(step) for step in steps_of(path))
        for path in paths
    )


def _plain_step(step: Step) -> Any:
    if step is EACH:
        return ...
    return (step.value,) if isinstance(step, Key) else step


def _step(plain: Any) -> Step:
    if plain is ...:
        return EACH
    return Key(plain[0]) if isinstance(plain, tuple) else plain


# --- in the worker ----------------------------------------------------------------------------------------------------

#: The tasks made of functions, by the identities of these.
_MADE: OrderedDict[int, tuple[Any, Task[..., Any]]] = OrderedDict()


def found(module: str, name: str) -> Any:
    """Returns the task of a module that a worker can import."""
    one: Any = sys.modules.get(module) or import_module(module)
    for part in name.split("."):
        one = getattr(one, part)
    return one


def made_again(function: Any, root: Any, access: _Access, label: str) -> Task[..., Any]:
    """Returns the task of a function that came from the program; a second call for the function makes none anew."""
    known = _MADE.get(id(function))
    if known is None or known[0] is not access:
        contract = None
        if access is not None:
            reads, writes = access
            contract = Contract(_paths(root, reads), _paths(root, writes))
        known = _MADE[id(function)] = access, Task(function, contract, True, label, None)
        while len(_MADE) > _MOST:
            _MADE.popitem(last=False)
    return known[1]


def _paths(root: Any, plain: _Plain) -> list[Path[Any] | str]:
    return [one if isinstance(one, str) else Path(root, tuple(map(_step, one))) for one in plain]
