"""Values in a store's journal: pickles, in which records stand with the names of their fields.

So a class may get a field with a default, or lose one, and old records still load. A journal is unpickled only if no
other user can write it; `Journal` checks that.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import sys
from collections.abc import Callable, Iterable
from typing import Any, cast

from ropewalk._errors import OutOfMemory, StateError
from ropewalk._load import state as _native
from ropewalk.state._arrays import is_array_class, reduced
from ropewalk.state._kinds import beside, has_beside, kind_of, names_of
from ropewalk.state._models import made_of_fields, raw
from ropewalk.state._moved import note_lost, renamed, unpickled
from ropewalk.state._records import is_dataclass, is_model, is_record

PROTOCOL = 5


class _Reducers(dict[type, Callable[[Any], Any]]):
    """How pickle takes objects apart, by class: records by their names, all others as they say."""

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        found = _reducer_of(kind)
        if found is not None:
            self[kind] = found
            return found
        if not is_record(kind):
            raise KeyError(kind)
        names = names_of(kind)

        def reduce(record: Any) -> Any:
            return restore, (kind, names, tuple(getattr(record, name) for name in names))

        def reduce_model(record: Any) -> Any:
            values = tuple(getattr(record, name) for name in names)
            beside = (
                record.__pydantic_extra__,
                record.__pydantic_private__,
                tuple(sorted(record.model_fields_set)),
            )
            return restore_model, (kind, names, values, *beside)

        def reduce_whole(record: Any) -> Any:
            others = beside(record)
            return (restore_whole, (*reduce(record)[1], others)) if others else reduce(record)

        if is_model(kind):
            self[kind] = reduce_model
        else:
            self[kind] = reduce_whole if has_beside(kind) else reduce
        return self[kind]

    def get(self, kind: type, default: Any = None) -> Any:
        try:
            return self[kind]
        except KeyError:
            return default


def _reducer_of(kind: type) -> Callable[[Any], Any] | None:
    if kind is _native.PMap:
        return _reduce_map
    if kind is _native.PVector:
        return _reduce_vector
    return _reduce_array if is_array_class(kind) else None


def _reduce_array(array: Any) -> Any:
    return reduced(array, PROTOCOL)


#: Shorter collections are written item by item.
_FEW = 16


def _reduce_map(value: Any) -> Any:
    packed = None if len(value) < _FEW else _packed(list(value.values()))
    return value.__reduce__() if packed is None else (restore_map, (list(value), *packed))


def _reduce_vector(value: Any) -> Any:
    packed = None if len(value) < _FEW else _packed(list(value))
    return value.__reduce__() if packed is None else (restore_vector, packed)


def _packed(values: list[Any]) -> tuple[type, tuple[str, ...], int, list[Any]] | None:
    """Returns records of one class as lists of fields, which takes a tenth of the time that one by one takes."""
    found = _native.columns(values)
    # What is told apart by its identity must stay one object, also if it is at two places.
    if found is None or cast("Any", found[0]).__eq__ is object.__eq__:
        return None
    kind, columns = found
    return kind, names_of(kind), len(values), [_packed(column) or column for column in columns]


def _is_packed(column: object) -> bool:
    return type(column) is tuple


def _unpacked(kind: Any, names: tuple[str, ...], count: int, columns: list[Any]) -> list[Any]:
    lists: list[list[Any]] = [_unpacked(*one) if _is_packed(one) else one for one in columns]
    if _is_plain(kind, names) and not has_beside(kind):
        return _native.rows(kind, lists, count)
    rows = zip(*lists, strict=True) if lists else ((),) * count
    return [restore(kind, names, row) for row in rows]


def restore_map(
    keys: list[Any], kind: Any, names: tuple[str, ...], count: int, columns: list[Any]
) -> _native.PMap[Any, Any]:
    """Makes a map of its keys and the fields of its values."""
    return _native.PMap(zip(keys, _unpacked(kind, names, count, columns), strict=True))


def restore_vector(kind: Any, names: tuple[str, ...], count: int, columns: list[Any]) -> _native.PVector[Any]:
    """Makes a vector of the fields of its items."""
    return _native.PVector(_unpacked(kind, names, count, columns))


#: Smaller arrays than this, in bytes, are pickled for other processes, too.
_SMALL = 16 << 10
#: So many arrays are lent with one value at most; a task can refer to no more than 128 pieces of shared memory.
_MOST = 40


def dumps(value: object, lent: list[Any] | None = None) -> bytes:
    """Returns a value as bytes.

    Where a list is given, it gets the memory of large arrays, which `loads` needs beside the bytes.

    Raises:
        StateError: a part of it cannot be pickled.
    """
    buffer = io.BytesIO()

    def lend(part: pickle.PickleBuffer) -> bool:
        """Keeps the memory of an array of a state; others stay in the bytes."""
        with memoryview(part) as view:
            memory: Any = view.obj
            if (
                lent is None
                or len(lent) >= _MOST
                or view.nbytes < _SMALL
                or not getattr(memory, "_sealed", False)
            ):
                return True
        lent.append(memory)
        return False

    pickler = pickle.Pickler(buffer, PROTOCOL, buffer_callback=None if lent is None else lend)
    # A new table each time, so that no class is kept alive by what was written of it.
    pickler.dispatch_table = cast("Any", _Reducers())
    try:
        pickler.dump(value)
    except Exception as error:
        raise StateError(
            f"a value cannot be written to the store's journal: {type(error).__name__}: {error}. Values of a store "
            f"with a journal must be picklable"
        ) from error
    return buffer.getvalue()


def loads(data: Any, lent: Iterable[Any] = ()) -> Any:
    """Returns the value that `dumps` has written, with the memory that it has lent.

    Raises:
        StateError: a class that it needs is gone, or has other fields.
    """
    try:
        return unpickled(data, lent)
    except (StateError, OutOfMemory):
        raise
    except Exception as error:
        raise StateError(
            f"a record of the store's journal cannot be read: {type(error).__name__}: {error}. The classes of the "
            f"state must have the names under which they were written"
        ) from error


#: Where a dataclass that `object.__new__` makes keeps the names of its fields, once one of its objects was read.
_PLAIN = "__ropewalk_plain__"


def restore(kind: Any, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """Makes a record of the fields that were written; fields that are new get their defaults."""
    if not _is_plain(kind, names):
        current = names_of(kind)
        if current != names:
            fields = _fields(kind, names, values)
            names, values = current, tuple(fields[name] for name in current)
        if not _is_plain(kind, current):
            return made_of_fields(kind, dict(zip(names, values, strict=True)))
    made: Any = object.__new__(kind)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(made, name, value)
    return made


def _is_plain(kind: Any, names: tuple[str, ...]) -> bool:
    """Whether it is a class of dataclasses that `object.__new__` makes, with these fields."""
    # Its own: a base class may have fewer fields.
    if kind.__dict__.get(_PLAIN) == names:
        return True
    if (
        names_of(kind) != names
        or kind_of(kind) is None
        or not is_dataclass(kind)
        or kind.__new__ is not object.__new__
    ):
        return False
    type.__setattr__(kind, _PLAIN, names)
    return True


def restore_whole(kind: Any, names: tuple[str, ...], values: tuple[Any, ...], others: dict[str, Any]) -> Any:
    """Makes a record of its fields, with attributes that a `__post_init__` has set and that are no fields."""
    made = restore(kind, names, values)
    if has_beside(kind):
        current = names_of(kind)
        for name, value in others.items():
            if name not in current:
                object.__setattr__(made, name, value)
    return made


def restore_model(
    kind: Any,
    names: tuple[str, ...],
    values: tuple[Any, ...],
    extra: dict[str, Any] | None,
    private: dict[str, Any] | None,
    given: tuple[str, ...],
) -> Any:
    """Makes a pydantic model of what was written of it. Nothing is validated: that was done before the commit."""
    if not is_model(kind):
        return restore(kind, names, values)
    fields = _fields(kind, names, values)
    if kind.__private_attributes__:
        private = {**_new_attributes(kind, private or {}), **(private or {})}
    given_now = {name for name in given if name in fields or name in (extra or {})}
    return raw(kind, fields, extra, private, given_now)


def _new_attributes(kind: Any, private: dict[str, Any]) -> dict[str, Any]:
    """Returns the defaults of private attributes that a model class has got since."""
    pydantic: Any = sys.modules["pydantic_core"]
    found = {
        name: one.get_default() for name, one in kind.__private_attributes__.items() if name not in private
    }
    return {name: value for name, value in found.items() if value is not pydantic.PydanticUndefined}


def _fields(kind: Any, names: tuple[str, ...], values: tuple[Any, ...]) -> dict[str, Any]:
    """Returns the fields that a class has now, of those that were written."""
    fields = dict(zip(names, values, strict=True))
    current = names_of(kind)
    if current == names:
        return fields
    for old, name in renamed(kind).items():
        if old in fields and name not in fields:
            fields[name] = fields.pop(old)
    for name in fields.keys() - set(current):
        note_lost(kind, name)
    return {name: fields[name] if name in fields else _default(kind, name) for name in current}


def _default(kind: Any, name: str) -> Any:
    if is_dataclass(kind):
        for field in dataclasses.fields(kind):
            if field.name == name and field.default is not dataclasses.MISSING:
                return field.default
            if field.name == name and field.default_factory is not dataclasses.MISSING:
                return field.default_factory()
    elif hasattr(kind, "_field_defaults") and name in kind._field_defaults:
        return kind._field_defaults[name]
    elif hasattr(kind, "model_fields") and not kind.model_fields[name].is_required():
        return kind.model_fields[name].get_default(call_default_factory=True)
    elif hasattr(kind, "__struct_defaults__"):
        msgspec: Any = sys.modules["msgspec"]
        for field in msgspec.structs.fields(kind):
            if field.name == name and not field.required:
                return field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    raise StateError(
        f"an object of class {kind.__qualname__} in the journal was written when the class had no field {name}, and "
        f"the field has no default now. Give {kind.__qualname__}.{name} a default. To take it away later, open the "
        f"store with it first and call compact(), which writes the whole state anew"
    )
