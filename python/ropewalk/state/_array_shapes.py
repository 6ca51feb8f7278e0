"""Arrays that enter a state: whether they are as their places declare them."""

from __future__ import annotations

import types
from typing import Any, cast, get_args

from ropewalk._errors import WrongType
from ropewalk._load import state as _native
from ropewalk.state._array_lengths import CheckedLengths, Unfit, below
from ropewalk.state._arrays import SIZES, committed, sealed_memory
from ropewalk.state._kinds import replaced, text_in
from ropewalk.state._records import is_record
from ropewalk.state._replay import is_map, is_vector
from ropewalk.state._shape import Kind, Shape, has_arrays
from ropewalk.state._zones import ArrayShape


def admitted(shape: Shape, draft: Any, step: Any, value: Any) -> Any:
    """Returns a value with its arrays in shared memory; it is put at the place `step` below a draft with this shape.

    Raises:
        OutOfMemory: the machine has no room for an array.
        WrongType: an array is not as it is declared.
    """
    place = below(shape, step)
    if place is None or not has_arrays(place):
        return value
    try:
        return _admitted(place, value, "")
    except Unfit as error:
        path = (*_native.path_of(draft), ... if step is None else step)
        raise error.at(text_in(_native.transaction_of(draft).base, path)) from None


def entered(shape: Shape, state: Any) -> Any:
    """Returns a whole state as a store keeps it: frozen, with its arrays in shared memory.

    Raises:
        NotFrozen: a part of it may change in place.
        OutOfMemory: the machine has no room for an array.
        WrongType: an array is not as it is declared, or equal names of lengths stand for other lengths.
    """
    if not has_arrays(shape):
        return _native.freeze(state)
    try:
        state = _native.freeze(_admitted(shape, state, ""))
    except Unfit as error:
        raise error.at("") from None
    CheckedLengths(shape).check(None, state)
    return state


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
    place = below(shape, key)
    return value if place is None else _admitted(place, value, f"{where}[{key!r}]")


def _array(shape: Shape, declared: ArrayShape, value: Any, where: str) -> Any:
    if value is None and types.NoneType in get_args(shape.annotation):
        return None
    if type(value) is _native.ArrayDraft:
        value = _native.transaction_of(value).value(value)
    if not _is_like_array(value):
        raise Unfit(where, f"{declared} is wanted, and not an object of class {type(value).__qualname__}")
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):
        raise Unfit(where, "a masked array would lose its mask; store its data and its mask")
    array: Any = value if type(value) is np.ndarray else np.asarray(value)
    if array.dtype.name not in SIZES:
        raise Unfit(
            where, f"a state has no arrays of {array.dtype}; the types of items are {', '.join(SIZES)}"
        )
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        declared.check(array)
    except WrongType as error:
        raise Unfit(where, str(error)) from None
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
