"""Deep merges: what `Transaction.merge` does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, cast, get_args

from ropewalk._errors import NoSuchPath, WrongType
from ropewalk._load import state as _native
from ropewalk.state._models import made_of_fields
from ropewalk.state._paths import EACH, Key, Path, steps_in, steps_of
from ropewalk.state._records import is_record
from ropewalk.state._shape import Kind, Shape, no_such_field, shape_of


class _Mark(Enum):
    DELETE = "DELETE"

    def __repr__(self) -> str:
        return "DELETE"


#: In a merge, the value of a key that is to be deleted.
DELETE: Final = _Mark.DELETE


def merge_into(draft: Any, path: Path[Any] | str | None, values: Any, kind: Any) -> None:
    """Merges values into the place at a path below a draft of the whole state.

    A mapping is merged key by key into a map or a record; everything else is assigned. `None` is a value. Where
    there is nothing yet and the annotations want a record, the mapping is its fields.

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
    shape = shape_of(kind) if is_record(kind) else None
    for done, step in enumerate(steps):
        if done == len(steps) - 1:
            _put(at, step, values, shape)
            return
        at = _below(at, step, path)
        shape = _shape_at(shape, step)
    if not _is_mapping(values):
        raise TypeError(f"the whole state is merged with a mapping, not with {type(values).__name__}")
    for name, value in values.items():
        _put(at, name, value, shape)


def _is_record(at: Any) -> bool:
    return type(at) is _native.RecordDraft


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _below(at: Any, step: Any, path: object) -> Any:
    try:
        return getattr(at, step) if _is_record(at) else at[step]
    except (LookupError, AttributeError, TypeError) as error:
        raise NoSuchPath(f"there is nothing at {step!r} on the way to {path}") from error


def _put(at: Any, name: Any, value: Any, shape: Shape | None) -> None:
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
                _put(there, inner, part, _shape_at(shape, name))
            return
        value = _made(value, _shape_at(shape, name), name)
    else:
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


def _shape_at(shape: Shape | None, step: Any) -> Shape | None:
    """Returns the shape one step below, as far as annotations tell."""
    if shape is None:
        return None
    if isinstance(step, str) and step in shape.names:
        return shape.field(step)
    return shape.items if shape.kind in (Kind.MAP, Kind.VECTOR) else None


def _made(values: Any, shape: Shape | None, name: Any) -> Any:
    """Returns what a mapping stands for where there is nothing: a record of its fields, or a map of its items."""
    if not _is_mapping(values):
        _refuse_deletes(values)
        return values
    if shape is not None and shape.kind is Kind.ANY:
        arms = [arm for arm in get_args(shape.annotation) if isinstance(arm, type) and is_record(arm)]
        shape = shape_of(arms[0]) if len(arms) == 1 else None
    kept = {key: value for key, value in values.items() if value is not DELETE}
    if shape is None or shape.record is None:
        return {key: _made(value, _shape_at(shape, key), key) for key, value in kept.items()}
    for field in kept:
        if field not in shape.names:
            raise no_such_field(shape, str(field))
    fields = {field: _made(value, shape.field(field), field) for field, value in kept.items()}
    try:
        return made_of_fields(shape.record, fields)
    except TypeError as error:
        raise WrongType(
            f"{name!r} is new, and {shape.record.__qualname__} cannot be made of what was merged: {error}"
        ) from error


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
