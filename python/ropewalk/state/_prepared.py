"""Tasks and functions, made ready for the state of a store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ropewalk._load import state as _native
from ropewalk.state._slots import slots as slots_of
from ropewalk.state._task import Task, bound
from ropewalk.state._transaction import Meta

if TYPE_CHECKING:
    from ropewalk.state._store import Store


class Prepared(NamedTuple):
    """A task, ready for the state of a store."""

    function: Callable[..., Any]
    rule: _native.Rule
    meta: Meta
    retries: int


def name_of(function: Any) -> str:
    """Returns the name of a function, or of another object that can be called."""
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else repr(function)


def named(task: Any) -> str:
    """Returns the name that a task has in errors: its label, or the name of a function."""
    if isinstance(task, partial):
        return named(cast("Any", task).func)
    return task.label if isinstance(task, Task) else name_of(task)


def prepared_for(store: Store[Any], task: Any) -> Prepared:
    """Returns a task or a function, ready for a store.

    A `functools.partial` of one that gives arguments by name is that task.

    Raises:
        TypeError: it is neither.
        StateError, ContractViolation: as `Task.rule_for` reports.
    """
    if isinstance(cast("object", task), Task):
        prepared = store._tasks.get(task)
        if prepared is None:
            rule = task.rule_for(store._shape)
            # What is not checked may touch everything.
            if task.contract is not None and task.strict is True:
                reads, writes = slots_of(task.contract, store._shape)
                rule.number(reads | writes, writes)
            retries = store._retries if task.retries is None else task.retries
            function = _watched(store, task) if task.strict == "warn" else task.__wrapped__
            meta = Meta(task.label, task=task.label)
            prepared = store._tasks[task] = Prepared(function, rule, meta, retries)
        return prepared
    if isinstance(task, partial):
        inner, names = bound(cast("Any", task))
        prepared = prepared_for(store, inner)
        return prepared._replace(function=partial(prepared.function, **names))
    if not callable(task):
        raise TypeError(f"a transaction runs a task or a function, and its arguments follow it; not {task!r}")
    name = name_of(task)
    return Prepared(task, store._whole, Meta(name, task=name), store._retries)


def _watched(store: Store[Any], task: Task[..., Any]) -> Callable[..., Any]:
    """The function of a task, which reports at its end what it has touched."""
    function: Callable[..., Any] = task.__wrapped__

    def watched(draft: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(draft, *args, **kwargs)
        finally:
            store._watcher.look(task, store._kind, _native.transaction_of(draft))

    return watched
