"""Undo and redo: what an older state keeps of the newest one."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ropewalk._errors import HistoryGone, StateError
from ropewalk._load import state as _native
from ropewalk.state._kinds import replaced
from ropewalk.state._records import is_record
from ropewalk.state._replay import is_map
from ropewalk.state._shape import Kind, Shape, name_of
from ropewalk.state._zones import Zone

if TYPE_CHECKING:
    from ropewalk.state._store import Store
    from ropewalk.state._transaction import Meta

PMap = _native.PMap

#: No version, in what the compiled half lists.
_NONE = 2**64 - 1

#: The parts of a shape that have transient places, at them or below; the items of a map have the name `None`.
_known: weakref.WeakKeyDictionary[Shape, dict[str | None, Shape]] = weakref.WeakKeyDictionary()


def gone(kept: list[tuple[int, Any, Any, float, int, int]], *, back: bool) -> HistoryGone:
    """Makes the error of an undo or a redo that has no version to go to; `kept` lists the versions."""
    if not back:
        return HistoryGone("there is nothing to redo: no undo came last")
    before = kept[-1][5]
    if before == _NONE:
        return HistoryGone(
            "there is nothing to undo: no commit since the store was opened has changed the state"
        )
    return HistoryGone(f"version {before} is kept no longer. Keep more versions with Store(history=...)")


def step_from(store: Store[Any], back: bool, meta: Meta, claim: int) -> tuple[int, int] | None:
    """Makes a version of an older one that keeps the transient places of the newest, and records it.

    Returns the version and its epoch, or `None` if there is no older one.
    """
    while True:
        past = store._past(back)
        if past is None:
            return None
        base, now, state, stands_for = past
        state = with_transients(store._shape, now, state)
        record = None
        if store._log is not None:
            record = store._log.encode_step(base + 1, now, state, meta)
        done = store._replace(base, now, state, meta, record, stands_for, claim)
        if done is not None:
            return done


def transient_parts(shape: Shape) -> dict[str | None, Shape]:
    """Returns the parts of a shape that are transient, or have such places below."""
    found = _known.get(shape)
    if found is None:
        # Only now: a class within itself would be asked for while it is being looked at.
        found = _known[shape] = {name: part for name, part in _parts(shape) if _has_transients(part, set())}
    return found


def _parts(shape: Shape) -> list[tuple[str | None, Shape]]:
    named: list[tuple[str | None, Shape]] = list(zip(shape.names, shape.fields, strict=True))
    return named if shape.items is None else [*named, (None, shape.items)]


def _has_transients(shape: Shape, seen: set[int]) -> bool:
    if shape.zone is Zone.TRANSIENT:
        return True
    if id(shape) in seen:
        return False
    seen.add(id(shape))
    return any(_has_transients(part, seen) for _, part in _parts(shape))


def check_transients(shape: Shape) -> None:
    """Refuses a state with transient places in the items of a vector.

    An undo and a journal leave transient places as they are. Items of a vector are known by their places alone, which
    change when others come and go, so that there is no saying which item has which.

    Raises:
        StateError: there is such a place.
    """
    for vector, text in _vectors_in(shape, name_of(shape.annotation), set()):
        inner = vector.items
        found = None if inner is None else _transient_in(inner, f"{text}[...]", set())
        if found is not None:
            raise StateError(
                f"{found} is Transient, and a part of an item of a vector: items change their places, and the value "
                f"would end in another one. Put the values into a Transient[PMap[...]] beside the vector, or use a "
                f"PMap instead of the vector"
            )


def _below(shape: Shape, text: str) -> Iterator[tuple[Shape, str]]:
    for name, field in zip(shape.names, shape.fields, strict=True):
        yield field, f"{text}.{name}" if shape.kind is Kind.RECORD else f"{text}[{name!r}]"
    if shape.items is not None:
        yield shape.items, f"{text}[...]"


def _vectors_in(shape: Shape, text: str, seen: set[int]) -> Iterator[tuple[Shape, str]]:
    """Yields the vectors that are not transient as a whole."""
    if id(shape) in seen or shape.zone is Zone.TRANSIENT:
        return
    seen.add(id(shape))
    if shape.kind is Kind.VECTOR:
        yield shape, text
    for inner, place in _below(shape, text):
        yield from _vectors_in(inner, place, seen)


def _transient_in(shape: Shape, text: str, seen: set[int]) -> str | None:
    if shape.zone is Zone.TRANSIENT:
        return text
    if id(shape) in seen:
        return None
    seen.add(id(shape))
    found = (_transient_in(inner, place, seen) for inner, place in _below(shape, text))
    return next((one for one in found if one is not None), None)


def with_transients(shape: Shape, source: Any, target: Any) -> Any:
    """Returns a state with the transient fields of another one."""
    parts = transient_parts(shape)
    if not parts or source is target:
        return target
    if shape.kind is Kind.MAP and is_map(source) and is_map(target):
        return _with_transients_of_map(shape, parts, source, target)
    if shape.kind is not Kind.RECORD or type(source) is not type(target) or not is_record(type(target)):
        return target
    changes: dict[str, Any] = {}
    for name, field in parts.items():
        if name is None:
            continue
        value = getattr(source, name)
        if field.zone is not Zone.TRANSIENT:
            value = with_transients(field, value, getattr(target, name))
        if value is not getattr(target, name):
            changes[name] = value
    return replaced(target, changes) if changes else target


def _with_transients_of_map(
    shape: Shape, parts: dict[str | None, Shape], source: PMap[Any, Any], target: PMap[Any, Any]
) -> Any:
    for key, there, value in _native.diff_maps(source, target):
        part = parts.get(key if key in shape.names else None)
        if part is None:
            continue
        if part.zone is Zone.TRANSIENT:
            target = target.delete(key) if there is _native.MISSING else target.set(key, there)
        elif there is not _native.MISSING and value is not _native.MISSING:
            target = target.set(key, with_transients(part, there, value))
    return target
