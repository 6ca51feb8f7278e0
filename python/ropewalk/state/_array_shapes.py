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


class _Unfit(Exception):
    """An array is not as its place declares it; `where` has the names, keys and indices behind the place above."""

    def __init__(self, where: str, text: str) -> None:
        super().__init__(text)
        self.where = where
        self.text = text

    def at(self, above: str) -> StateError:
        """Returns the error for the program."""
        where = above + self.where if above else self.where.removeprefix(".")
        return StateError(f"{where}: {self.text}")


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
        return _admitted(place, value, "")
    except _Unfit as error:
        path = (*_native.path_of(draft), ... if step is None else step)
        raise error.at(text_in(_native.transaction_of(draft).base, path)) from None


def entered(shape: Shape, state: Any) -> Any:
    """Returns a whole state as a store keeps it: frozen, with its arrays in shared memory.

    Raises:
        NotFrozen: a part of it may change in place.
        OutOfMemory: the machine has no room for an array.
        StateError: an array is not as it is declared, or equal names of lengths stand for other lengths.
    """
    if not has_arrays(shape):
        return _native.freeze(state)
    try:
        state = _native.freeze(_admitted(shape, state, ""))
    except _Unfit as error:
        raise error.at("") from None
    check_lengths(shape, None, state)
    return state


def _below(shape: Shape, step: Any) -> Shape | None:
    if isinstance(step, str) and step in shape.names:
        return shape.fields[shape.names.index(step)]
    return shape.items


def _admitted(shape: Shape, value: Any, where: str) -> Any:
    if shape.array is not None:
        return _array(shape, shape.array, value, where)
    if not has_arrays(shape):
        return value
    if shape.kind is Kind.RECORD and is_record(type(value)):
        changes: dict[str, Any] = {}
        for name, field in zip(shape.names, shape.fields, strict=True):
            old = getattr(value, name, None)
            new = _admitted(field, old, _named(shape, name, where)) if has_arrays(field) else old
            if new is not old:
                changes[name] = new
        return replaced(value, changes) if changes else value
    if shape.kind is Kind.MAP and is_map(value):
        for key, old in list(value.items()):
            new = _item(shape, key, old, where)
            if new is not old:
                value = value.set(key, new)
        return value
    plain: Any = value
    if shape.kind is Kind.MAP and type(value) is dict:
        return {key: _item(shape, key, item, where) for key, item in plain.items()}
    if shape.kind is Kind.VECTOR and is_vector(value):
        for index, old in enumerate(value):
            new = _item(shape, index, old, where)
            if new is not old:
                value = value.set(index, new)
        return value
    if shape.kind is Kind.VECTOR and type(value) is list:
        return [_item(shape, index, item, where) for index, item in enumerate(plain)]
    return value


def _named(shape: Shape, name: str, where: str) -> str:
    return f"{where}.{name}" if shape.kind is Kind.RECORD else f"{where}[{name!r}]"


def _item(shape: Shape, key: Any, value: Any, where: str) -> Any:
    place = _below(shape, key)
    return value if place is None else _admitted(place, value, f"{where}[{key!r}]")


def _array(shape: Shape, declared: ArrayShape, value: Any, where: str) -> Any:
    if value is None and types.NoneType in get_args(shape.annotation):
        return None
    if type(value) is _native.ArrayDraft:
        value = _native.transaction_of(value).value(value)
    if not _is_like_array(value):
        raise _Unfit(where, f"{declared} is wanted, and not an object of class {type(value).__qualname__}")
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):
        raise _Unfit(where, "a masked array would lose its mask; store its data and its mask")
    array: Any = value if type(value) is np.ndarray else np.asarray(value)
    if array.dtype.name not in SIZES:
        raise _Unfit(
            where, f"a state has no arrays of {array.dtype}; the types of items are {', '.join(SIZES)}"
        )
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        declared.check(array)
    except StateError as error:
        raise _Unfit(where, str(error)) from None
    return array if sealed_memory(array) is not None else committed(array)


def _is_like_array(value: Any) -> bool:
    """Whether a value has items of one type of its own; a list has not."""
    kind = cast("Any", type(value))
    if any(hasattr(kind, name) for name in ("__array__", "__array_interface__", "__array_struct__")):
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
        _check_scope(shape, old, new, "")
    except _Unfit as error:
        raise error.at("") from None


def _check_scope(shape: Shape, old: Any, new: Any, above: str) -> None:
    """Checks a record, or a map of a policy, and the records below."""
    if old is new:
        return
    if type(old) is not type(new):
        old = None
    lengths: dict[str, int] = {}
    is_reshaped = old is None
    parts: list[tuple[Shape, Any, Any, str]] = []
    for place, before, after, where in _parts(shape, old, new, above):
        if place.array is None:
            parts.append((place, before, after, where))
            continue
        is_reshaped |= getattr(before, "shape", None) != getattr(after, "shape", None)
        _bind(place.array, after, lengths, where)
    for place, before, after, where in parts:
        if before is not after or is_reshaped:
            _check_part(place, None if is_reshaped else before, before, after, lengths, where)


def _parts(shape: Shape, old: Any, new: Any, where: str) -> Iterator[tuple[Shape, Any, Any, str]]:
    """Yields what has arrays in a record; a policy's maps within each other count as one."""
    for name, field in zip(shape.names, shape.fields, strict=True):
        if not has_arrays(field):
            continue
        before, after = _at(old, name), _at(new, name)
        if field.of_policy:
            yield from _parts(field, before, after, _named(shape, name, where))
        else:
            yield field, before, after, _named(shape, name, where)
    if shape.of_policy and shape.items is not None and has_arrays(shape.items):
        yield shape, old, new, where


def _at(state: Any, name: str) -> Any:
    if is_map(state):
        return state.get(name)
    return getattr(state, name, None)


def _check_part(shape: Shape, old: Any, checked: Any, new: Any, lengths: dict[str, int], where: str) -> None:
    """Checks what is below a field. Of a collection, `old` has items that need no look again."""
    if shape.kind is Kind.RECORD:
        _check_scope(shape, checked, new, where)
        return
    items = shape.items
    if items is None or not (is_map(new) or is_vector(new)):
        return
    if items.kind is Kind.RECORD:
        for key, before, after in _changed(checked, new):
            _check_scope(items, before, after, f"{where}[{key!r}]")
        return
    if items.array is None:
        for key, _, after in _changed(None, new):
            _check_part(items, None, None, after, lengths, f"{where}[{key!r}]")
        return
    own = dict(lengths)
    if old is not None:
        kept = _unchanged(old, new)
        if kept is not None:
            _bind(items.array, kept, own, where)
    for key, _, after in _changed(old, new):
        if key not in shape.names:
            _bind(items.array, after, own, f"{where}[{key!r}]")


def _changed(old: Any, new: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yields the key, the old item and the new one, for items that have changed; the old one may be `None`."""
    is_same_kind = old is not None and type(old) is type(new)
    empty: Any = cast("Any", _native.PMap if is_map(new) else _native.PVector)()
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


def _bind(declared: ArrayShape, array: Any, lengths: dict[str, int], where: str) -> None:
    if array is None:
        return
    try:
        declared.check(array, lengths)
    except StateError as error:
        raise _Unfit(where, str(error)) from None
