"""Undo and redo: which older state the next version has."""

from __future__ import annotations

from typing import Any

from ropewalk._errors import HistoryGone
from ropewalk._load import state as _native
from ropewalk.state._kinds import replaced
from ropewalk.state._records import is_record
from ropewalk.state._replay import is_map
from ropewalk.state._shape import Kind, Shape
from ropewalk.state._zones import Zone

PMap = _native.PMap

#: No version, in what the compiled half lists.
_NONE = 2**64 - 1


def step_from(
    kept: list[tuple[int, Any, Any, float, int, int]], shape: Shape, *, back: bool
) -> tuple[int, Any, tuple[int, int]]:
    """Returns the newest version, the state that follows it, and of which version that state is, with the one before.

    `kept` has the versions: the number, the state, its meta, the time, the version whose state it is, and the one
    before that. They are two numbers because an undo makes a new version with an old state.

    Raises:
        HistoryGone: there is no such state.
    """
    number, state, _, _, same, before = kept[-1]
    if back:
        # A version that is no longer kept may have a later one with the same state.
        found = [one for one in kept if one[4] == before]
        if not found:
            gone = "there is nothing to undo" if before == _NONE else f"version {before} is kept no longer"
            raise HistoryGone(f"{gone}: the store keeps versions {kept[0][0]} to {number}")
    else:
        found = [one for one in kept if one[5] == same]
        if not found:
            raise HistoryGone("there is nothing to redo: no undo came last")
    target = found[-1]
    return number, with_transients(shape, state, target[1]), (target[4], target[5])


def _with_transients_of_items(shape: Shape, source: PMap[Any, Any], target: PMap[Any, Any]) -> Any:
    if shape.items is None or not _has_transients(shape.items, set()):
        return target
    for key, there, value in _native.diff_maps(source, target):
        if there is not _native.MISSING and value is not _native.MISSING:
            target = target.set(key, with_transients(shape.items, there, value))
    return target


def _has_transients(shape: Shape, seen: set[int]) -> bool:
    if shape.zone is Zone.TRANSIENT:
        return True
    if id(shape) in seen:
        return False
    seen.add(id(shape))
    below = [*shape.fields, *([] if shape.items is None else [shape.items])]
    return any(_has_transients(one, seen) for one in below)


def with_transients(shape: Shape, source: Any, target: Any) -> Any:
    """Returns a state with the transient fields of another one."""
    if shape.kind is Kind.MAP and is_map(source) and is_map(target):
        return _with_transients_of_items(shape, source, target)
    if shape.kind is not Kind.RECORD or type(source) is not type(target) or not is_record(type(target)):
        return target
    changes: dict[str, Any] = {}
    for name, field in zip(shape.names, shape.fields, strict=True):
        value = getattr(source, name)
        if field.zone is not Zone.TRANSIENT:
            value = with_transients(field, value, getattr(target, name))
        if value is not getattr(target, name):
            changes[name] = value
    return replaced(target, changes) if changes else target
