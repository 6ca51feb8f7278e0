"""Arrays that enter a state: whether they are as their places declare them."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any, cast, get_args

from ropewalk._errors import StateError
from ropewalk._load import state as _native
from ropewalk.state._arrays import SIZES, committed, sealed_memory
from ropewalk.state._kinds import replaced, text_in
from ropewalk.state._records import is_record
from ropewalk.state._replay import MISSING, is_map, is_vector
from ropewalk.state._shape import Kind, Shape, has_arrays
from ropewalk.state._zones import ArrayShape

Steps = tuple[Any, ...]


class _Unfit(Exception):
    """An array is not as its place declares it."""

    def __init__(self, steps: Steps, text: str) -> None:
        super().__init__(text)
        self.steps = steps
        self.text = text


# --- what is stored ---------------------------------------------------------------------------------------------------


def admitted(shape: Shape, draft: Any, step: Any, value: Any) -> Any:
    """Returns a value with its arrays in shared memory; it is put at the place `step` below a draft with this shape.

    Raises:
        OutOfMemory: the machine has no room for an array.
        StateError: an array is not as it is declared.
    """
    place = _below(shape, step)
    if place is None or not has_arrays(place):
        return value
    try:
        return _admitted(place, value, ())
    except _Unfit as error:
        path = (*_native.path_of(draft), ... if step is None else step, *error.steps)
        where = text_in(_native.transaction_of(draft).base, path)
        raise StateError(f"{where}: {error.text}") from None


def admitted_state(shape: Shape, state: Any) -> Any:
    """Returns a whole state with its arrays in shared memory.

    Raises:
        OutOfMemory: the machine has no room for an array.
        StateError: an array is not as it is declared, or equal names of lengths stand for other lengths.
    """
    if not has_arrays(shape):
        return state
    try:
        state = _admitted(shape, state, ())
    except _Unfit as error:
        raise StateError(f"{text_in(state, error.steps)}: {error.text}") from None
    check_lengths(shape, None, state)
    return state


def _below(shape: Shape, step: Any) -> Shape | None:
    if isinstance(step, str) and step in shape.names:
        return shape.fields[shape.names.index(step)]
    return shape.items


def _admitted(shape: Shape, value: Any, steps: Steps) -> Any:
    if shape.array is not None:
        return _array(shape, shape.array, value, steps)
    if not has_arrays(shape):
        return value
    if shape.kind is Kind.RECORD and is_record(type(value)):
        changes: dict[str, Any] = {}
        for name, field in zip(shape.names, shape.fields, strict=True):
            old = getattr(value, name, None)
            new = _admitted(field, old, (*steps, name)) if has_arrays(field) else old
            if new is not old:
                changes[name] = new
        return replaced(value, changes) if changes else value
    if shape.kind is Kind.MAP and is_map(value):
        for key, old in list(value.items()):
            new = _item(shape, key, old, steps)
            if new is not old:
                value = value.set(key, new)
        return value
    if shape.kind is Kind.MAP and type(value) is dict:
        return {key: _item(shape, key, item, steps) for key, item in value.items()}
    if shape.kind is Kind.VECTOR and is_vector(value):
        for index, old in enumerate(value):
            new = _item(shape, index, old, steps)
            if new is not old:
                value = value.set(index, new)
        return value
    if shape.kind is Kind.VECTOR and type(value) is list:
        return [_item(shape, index, item, steps) for index, item in enumerate(cast("list[Any]", value))]
    return value


def _item(shape: Shape, key: Any, value: Any, steps: Steps) -> Any:
    place = _below(shape, key)
    return value if place is None else _admitted(place, value, (*steps, key))


def _array(shape: Shape, declared: ArrayShape, value: Any, steps: Steps) -> Any:
    if value is None and types.NoneType in get_args(shape.annotation):
        return None
    if type(value) is _native.ArrayDraft:
        value = _native.transaction_of(value).value(value)
    if not _is_like_array(value):
        raise _Unfit(steps, f"{declared} is wanted, and not an object of class {type(value).__qualname__}")
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):
        raise _Unfit(steps, "a masked array would lose its mask; store its data and its mask")
    array: Any = value if type(value) is np.ndarray else np.asarray(value)
    if array.dtype.name not in SIZES:
        raise _Unfit(steps, f"a state has no arrays of {array.dtype}; the types of items are {', '.join(SIZES)}")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        declared.check(array)
    except StateError as error:
        raise _Unfit(steps, str(error)) from None
    return array if sealed_memory(array) is not None else committed(array)


def _is_like_array(value: Any) -> bool:
    """Whether a value has items of one type of its own; a list has not."""
    if any(hasattr(type(value), name) for name in ("__array__", "__array_interface__", "__array_struct__")):
        return True
    if isinstance(value, (bytes, bytearray)):
        return False
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


# --- lengths ----------------------------------------------------------------------------------------------------------


def with_lengths(shape: Shape, check: Callable[[Any, Any, Any], None] | None) -> Any:
    """Returns what a store calls before each commit: `check`, and that lengths are equal where arrays are declared."""
    if not has_arrays(shape):
        return check

    def both(old: Any, new: Any, transaction: Any) -> None:
        check_lengths(shape, old, new)
        if check is not None:
            check(old, new, transaction)

    return both


def check_lengths(shape: Shape, old: Any, new: Any) -> None:
    """Checks that equal names of lengths stand for equal lengths in each record that has changed.

    The annotations of one record share their names, and so do the rows of one policy; those of another class have
    names of their own. `old` is a state that was checked, or `None`.

    Raises:
        StateError: an array has another length than one beside it.
    """
    try:
        _check_scope(shape, old, new, ())
    except _Unfit as error:
        raise StateError(f"{text_in(new, error.steps)}: {error.text}") from None


def _check_scope(shape: Shape, old: Any, new: Any, steps: Steps) -> None:
    """Checks a record, or a map of a policy, and the records below."""
    if old is new:
        return
    if type(old) is not type(new):
        old = None
    lengths: dict[str, int] = {}
    is_reshaped = old is None
    parts: list[tuple[Shape, Any, Any, Steps]] = []
    for place, before, after, where in _parts(shape, old, new, steps):
        if place.array is None:
            parts.append((place, before, after, where))
            continue
        is_reshaped |= getattr(before, "shape", None) != getattr(after, "shape", None)
        _bind(place.array, after, lengths, where)
    for place, before, after, where in parts:
        if before is not after or is_reshaped:
            _check_part(place, None if is_reshaped else before, before, after, lengths, where)


def _parts(shape: Shape, old: Any, new: Any, steps: Steps) -> Iterator[tuple[Shape, Any, Any, Steps]]:
    """Yields what has arrays in a record; a policy's maps within each other count as one."""
    for name, field in zip(shape.names, shape.fields, strict=True):
        if not has_arrays(field):
            continue
        before, after = _at(old, name), _at(new, name)
        if field.of_policy:
            yield from _parts(field, before, after, (*steps, name))
        else:
            yield field, before, after, (*steps, name)
    if shape.of_policy and shape.items is not None and has_arrays(shape.items):
        yield shape, old, new, steps


def _at(state: Any, name: str) -> Any:
    if is_map(state):
        return state.get(name)
    return getattr(state, name, None)


def _check_part(shape: Shape, old: Any, checked: Any, new: Any, lengths: dict[str, int], steps: Steps) -> None:
    """Checks what is below a field. Of a collection, `old` has items that need no look again."""
    if shape.kind is Kind.RECORD:
        _check_scope(shape, checked, new, steps)
        return
    items = shape.items
    if items is None or not (is_map(new) or is_vector(new)):
        return
    if items.kind is Kind.RECORD:
        for key, before, after in _changed(checked, new):
            _check_scope(items, before, after, (*steps, key))
        return
    if items.array is None:
        for key, _, after in _changed(None, new):
            _check_part(items, None, None, after, lengths, (*steps, key))
        return
    own = dict(lengths)
    if old is not None:
        kept = _unchanged(old, new)
        if kept is not None:
            _bind(items.array, kept, own, steps)
    for key, _, after in _changed(old, new):
        if key not in shape.names:
            _bind(items.array, after, own, (*steps, key))


def _changed(old: Any, new: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yields the key, the old item and the new one, for items that have changed; the old one may be `None`."""
    is_same_kind = old is not None and type(old) is type(new)
    empty: Any = _native.PMap() if is_map(new) else _native.PVector()
    differ = _native.diff_maps if is_map(new) else _native.diff_vectors
    for key, before, after in cast("Any", differ)(old if is_same_kind else empty, new):
        if after is not MISSING:
            yield key, None if before is MISSING else before, after


def _unchanged(old: Any, new: Any) -> Any:
    """Returns an item that a collection had before, if there is one."""
    if type(old) is not type(new):
        return None
    if is_map(new):
        return next((item for key, item in new.items() if old.get(key) is item), None)
    return next((item for before, item in zip(old, new, strict=False) if before is item), None)


def _bind(declared: ArrayShape, array: Any, lengths: dict[str, int], steps: Steps) -> None:
    if array is None:
        return
    try:
        declared.check(array, lengths)
    except StateError as error:
        raise _Unfit(steps, str(error)) from None
