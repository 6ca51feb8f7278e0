"""Deep merges: what `Transaction.merge` does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, cast

from ropewalk._errors import NoSuchPath
from ropewalk._load import state as _native
from ropewalk.state._paths import EACH, Key, Path, steps_in, steps_of


class _Mark(Enum):
    DELETE = "DELETE"

    def __repr__(self) -> str:
        return "DELETE"


#: In a merge, the value of a key that is to be deleted.
DELETE: Final = _Mark.DELETE


def merge_into(draft: Any, path: Path[Any] | str | None, values: Any, kind: Any) -> None:
    """Merges values into the place at a path below a draft of the whole state.

    A mapping is merged key by key into a map or a record; everything else is assigned. `None` is a value.

    Raises:
        NoSuchPath: the path leads nowhere, or a record has no such field.
        TypeError: the values are no mapping where the path is that of the whole state, or `DELETE` is in a list or
            another value that is not merged.
    """
    steps: list[Any] = []
    if path is not None:
        given = steps_in(path) if isinstance(path, str) else steps_of(path)
        if EACH in given:
            raise ValueError(f"a merge is at one place, and {path} stands for many")
        steps = [step.value if isinstance(step, Key) else step for step in given]
    at = draft
    for done, step in enumerate(steps):
        if done == len(steps) - 1:
            _put(at, step, values)
            return
        at = _below(at, step, path)
    if not _is_mapping(values):
        raise TypeError(f"the whole state is merged with a mapping, not with {type(values).__name__}")
    for name, value in values.items():
        _put(at, name, value)


def _is_record(at: Any) -> bool:
    return type(at) is _native.RecordDraft


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _below(at: Any, step: Any, path: object) -> Any:
    try:
        return getattr(at, step) if _is_record(at) else at[step]
    except (LookupError, AttributeError, TypeError) as error:
        raise NoSuchPath(f"there is nothing at {step!r} on the way to {path}") from error


def _put(at: Any, name: Any, value: Any) -> None:
    """Merges a value into the place `name` of a draft."""
    if value is DELETE:
        if _is_record(at):
            raise TypeError(
                f"the field {name!r} of a record cannot be deleted; merge None if its type allows that"
            )
        if isinstance(at, _native.MapDraft):
            if name in at:
                del at[name]
        else:
            del at[name]
        return
    if _is_mapping(value):
        there = _there(at, name)
        if type(there) in (_native.RecordDraft, _native.MapDraft):
            for inner, part in value.items():
                _put(there, inner, part)
            return
        value = _without_deletes(value)
    _refuse_deletes(value)
    if _is_record(at):
        setattr(at, name, value)
    else:
        at[name] = value


def _there(at: Any, name: Any) -> Any:
    if _is_record(at):
        return getattr(at, name)
    try:
        return at[name]
    except LookupError:
        return None


def _without_deletes(values: Mapping[Any, Any]) -> dict[Any, Any]:
    return {
        key: _without_deletes(value) if _is_mapping(value) else value
        for key, value in values.items()
        if value is not DELETE
    }


def _refuse_deletes(value: Any) -> None:
    """Raises for a `DELETE` in what is stored as it is."""
    if value is DELETE:
        raise TypeError(
            "DELETE deletes a key of a mapping, and stands in no list, tuple or set: merge the whole list"
        )
    if _is_mapping(value):
        value = value.values()
    elif not isinstance(value, (list, tuple, set, frozenset, _native.PVector)):
        return
    for part in cast("Iterable[Any]", value):
        _refuse_deletes(part)
