"""What pydantic asks of `PMap` and `PVector`: how they are validated, written, and described as JSON schemas."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar, get_args

from ropewalk._load import state as _native

MISSING = _native.MISSING

PMap = _native.PMap
PVector = _native.PVector

T = TypeVar("T")


class _Here(threading.local):
    """The maps and vectors of the model that this thread validates: by the identity of each, the one before it."""

    before: Mapping[int, Any] = MappingProxyType({})


_HERE = _Here()


def validated_again(validate: Callable[[Any], T], value: Any, before: Mapping[int, Any]) -> T:
    """Validates a changed model of a state.

    Of a map or a vector only those items are validated that were not in the one before: to validate all of them would
    cost what the collection has, and not what was changed.
    """
    outer, _HERE.before = _HERE.before, before
    try:
        return validate(value)
    finally:
        _HERE.before = outer


def core_schema_of(source: Any, handler: Any) -> Any:
    """Returns the schema for an annotation such as `PMap[str, Item]`.

    A mapping, or a sequence that is no text, is validated item by item. A `PMap` or `PVector` whose items the
    validation leaves as they are stays the same object.
    """
    core: Any = sys.modules["pydantic_core"].core_schema
    is_map = source is PMap or getattr(source, "__origin__", None) is PMap
    arguments = get_args(source) or ((Any, Any) if is_map else (Any,))
    inner = [handler.generate_schema(one) for one in arguments]
    items = core.dict_schema(*inner) if is_map else core.list_schema(*inner)
    opened: Any = _dict_of if is_map else _list_of
    closed: Any = _map_of if is_map else _vector_of
    written: Any = dict if is_map else list

    kind: Any = PMap if is_map else PVector
    changed: Any = _changed_map if is_map else _changed_vector

    def validated(value: Any, validate: Any) -> Any:
        before = _HERE.before.get(id(value))
        if before is not None:
            return changed(value, before, validate)
        return closed(value, validate(opened(value)))

    def serialized(value: Any, write: Any) -> Any:
        return write(written(value))

    return core.json_or_python_schema(
        json_schema=core.no_info_after_validator_function(kind, items),
        python_schema=core.no_info_wrap_validator_function(validated, items),
        serialization=core.wrap_serializer_function_ser_schema(serialized, schema=items),
    )


def _is_one_of(value: object, *kinds: type) -> bool:
    # To a type checker, a value that is `Any` stays that.
    return isinstance(value, kinds)


def _dict_of(value: Any) -> Any:
    return dict(value) if _is_one_of(value, Mapping) else value


def _list_of(value: Any) -> Any:
    is_items = _is_one_of(value, Sequence, frozenset, set) and not _is_one_of(value, str, bytes, bytearray)
    return list(value) if is_items else value


def _changed_map(value: Any, before: Any, validate: Any) -> Any:
    new = {key: after for key, _, after in _native.diff_maps(before, value) if after is not MISSING}
    if not new:
        return value
    made: dict[Any, Any] = validate(new)
    if made.keys() != new.keys():
        return _map_of(value, validate(dict(value)))
    for key, item in made.items():
        if item is not new[key]:
            value = value.set(key, item)
    return value


def _changed_vector(value: Any, before: Any, validate: Any) -> Any:
    new = [(index, after) for index, _, after in _native.diff_vectors(before, value) if after is not MISSING]
    if not new:
        return value
    made: list[Any] = validate([item for _, item in new])
    for (index, item), other in zip(new, made, strict=True):
        if other is not item:
            value = value.set(index, other)
    return value


def _map_of(value: Any, made: dict[Any, Any]) -> Any:
    if _is_one_of(value, PMap) and len(value) == len(made):
        missing = object()
        if all(value.get(key, missing) is item for key, item in made.items()):
            return value
    return PMap(made)


def _vector_of(value: Any, made: list[Any]) -> Any:
    if _is_one_of(value, PVector) and all(one is other for one, other in zip(value, made, strict=True)):
        return value
    return PVector(made)
