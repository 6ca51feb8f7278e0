"""What a worker process has of a store's state, and the task that it runs on it.

A worker loads this module. The parent publishes a *checkpoint* of each field that a contract declares, and with each
task the changes since. So the first task of a worker unpickles the fields, and a later one what has changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from ropewalk._load import state as _native
from ropewalk.pool.wire._serialize import describe, encode_answer, first_refused, sentence
from ropewalk.result import Err
from ropewalk.state._arrays import Lent, sealed_memory
from ropewalk.state._codec import loads
from ropewalk.state._form import native_rule
from ropewalk.state._kinds import kind_of, plain
from ropewalk.state._prepared import name_of, named
from ropewalk.state._replay import Change, applied
from ropewalk.state._shape import shape_of
from ropewalk.state._task import Task

#: A worker keeps the fields of so many checkpoints.
_MOST = 64


class Part(NamedTuple):
    """A field of the state on its way to a worker; the whole state has the name `None`."""

    name: str | None
    #: Which checkpoint it is: of one store, one field, one version.
    key: tuple[str, str | None, int]
    #: The pickled checkpoint: bytes, or a shared buffer.
    checkpoint: Any
    #: The pickled changes since, and the version that they lead to.
    changes: bytes
    version: int
    #: The memory of the arrays in the checkpoint, and in the changes.
    lent: list[Any]
    lent_since: list[Any]


class Done(NamedTuple):
    """What a task did in a worker."""

    result: Any
    #: What it has read: paths, with the access of each.
    reads: list[tuple[tuple[Any, ...], str]]
    changes: list[tuple[int, tuple[Any, ...], Any]]
    effects: list[tuple[Any, ...]]
    #: The task's name.
    task: str

    def _refused(self, cause: BaseException) -> str:
        """Says which part cannot be pickled; a worker asks when the whole cannot be."""
        parts: dict[str, object] = {f"returned {describe(self.result)}": self.result}
        for _, path, value in self.changes:
            parts[f"put {describe(value)} at {'/'.join(map(str, path))}"] = value
        for function, *args in self.effects:
            parts[f"gave {name_of(function)} to on_commit"] = function
            parts |= {f"gave {describe(one)} to the effect {name_of(function)}": one for one in args}
        found = first_refused(parts, lambda part: encode_answer(part, None))
        what = f"did {describe(parts)}" if found is None else found[0]
        return (
            f"the task {self.task} {what}, which cannot be pickled: {sentence(cause)} A task that runs in a worker "
            f"process can only return and store what pickle can take apart."
        )


class _Kept(NamedTuple):
    version: int
    value: Any


_CHECKPOINTS: OrderedDict[tuple[str, str | None, int], tuple[Any, _Kept]] = OrderedDict()


def _value(part: Part) -> Any:
    """The value of a field at the version of the part."""
    known = _CHECKPOINTS.get(part.key)
    if known is None:
        first = loads(bytes(memoryview(part.checkpoint)), part.lent)
        known = first, _Kept(part.key[2], first)
    checkpoint, newest = known
    if newest.version != part.version:
        newest = _Kept(part.version, applied(checkpoint, loads(part.changes, part.lent_since)))
    _CHECKPOINTS[part.key] = checkpoint, newest
    _CHECKPOINTS.move_to_end(part.key)
    while len(_CHECKPOINTS) > _MOST:
        _CHECKPOINTS.popitem(last=False)
    return newest.value


def run_in_worker(
    kind: type, parts: list[Part], task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Done:
    """Runs a task on what the worker has of the state; the parent commits what it did."""
    if parts and parts[0].name is None:
        state = _value(parts[0])
    else:
        state = _partial(kind, {part.name or "": _value(part) for part in parts})
    shape = shape_of(kind)
    function: Callable[..., Any] = task
    rule = native_rule(shape, None)
    meta: Any = None
    name = named(task)
    if isinstance(task, Task):
        function, rule = task.__wrapped__, task.rule_for(shape)
        meta = _Label(name)
    store = _native.StoreBase(state, 0, 1, None, None, None)
    transaction = store._begin(rule, meta)
    try:
        result = plain(function(transaction.root, *args, **kwargs))
        if type(result) is Err:
            return Done(result, [], [], [], name)
        reads = [
            (path, access) for path, access in transaction.footprint() if access in ("read", "seen", "whole")
        ]
        changes = [_sent(*change) for change in transaction.changes()]
        return Done(result, reads, changes, list(transaction.effects or ()), name)
    finally:
        transaction.abort()


def _sent(number: int, path: tuple[Any, ...], value: Any) -> tuple[int, tuple[Any, ...], Any]:
    """Returns a change on its way to the parent: an array is sent in place."""
    if number == Change.PATCH:
        number, value = int(Change.SET), value[1]
    return number, path, value if sealed_memory(value) is None else Lent(value)


class _Label(NamedTuple):
    task: str


class _Absent:
    """Stands for a field that the contract does not declare, and the parent has not sent."""

    def __repr__(self) -> str:
        return "<not declared>"


_ABSENT = _Absent()
_native.add_leaf(_Absent)


def _partial(kind: Any, fields: dict[str, Any]) -> Any:
    """A record with some of its fields. Nothing reads the others: the rule of the contract forbids it."""
    kind_of(kind)
    made = object.__new__(kind)
    for name in kind.__dataclass_fields__:
        object.__setattr__(made, name, fields.get(name, _ABSENT))
    return made
