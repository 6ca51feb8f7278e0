"""How the objects of each class are written as JSON, as the compiled encoder asks it: once a class and encoding."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import operator
import pathlib
import sys
import uuid
from typing import Any, NoReturn, TypeAlias

from ropewalk._errors import StateError
from ropewalk._load import state as _native
from ropewalk.state._kinds import kind_of
from ropewalk.state._records import is_record

#: A number that the compiled encoder knows, and what belongs to it.
Plan: TypeAlias = "tuple[int, Any]"

_RECORD, _CHANGING_RECORD = 0, 1
_TEXT = 2
_VALUE, _CHANGING_VALUE = 3, 4
_STR, _INT, _FLOAT = 5, 6, 7
_SET, _CHANGING_SET = 8, 9
_OTHER = 10

_DRAFTS = (
    *(_native.RecordDraft, _native.MapDraft, _native.VectorDraft),
    *(_native.CounterDraft, _native.ArrayDraft),
)


def duration(delta: datetime.timedelta) -> str:
    """Returns a duration as ISO 8601 has it, in seconds: `PT90S`, `-PT0.5S`."""
    sign = "-" if delta < datetime.timedelta(0) else ""
    whole = abs(delta)
    seconds = str(whole.days * 86400 + whole.seconds)
    if whole.microseconds:
        seconds += f".{whole.microseconds:06}".rstrip("0")
    return f"{sign}PT{seconds}S"


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value)


def _list(value: Any) -> list[Any]:
    return list(value)


def _none(_value: object) -> None:
    return None


def _dict(value: Any) -> dict[Any, Any]:
    return dict(value)


#: What is written by a base class, in this order; the first that fits counts.
_BASES: tuple[tuple[type, Plan], ...] = (
    (enum.Enum, (_VALUE, operator.attrgetter("value"))),
    (str, (_STR, None)),
    (int, (_INT, None)),
    (float, (_FLOAT, None)),
    (datetime.date, (_TEXT, operator.methodcaller("isoformat"))),
    (datetime.time, (_TEXT, operator.methodcaller("isoformat"))),
    (datetime.timedelta, (_TEXT, duration)),
    (uuid.UUID, (_TEXT, str)),
    (decimal.Decimal, (_TEXT, str)),
    (pathlib.PurePath, (_TEXT, str)),
    (tuple, (_VALUE, _tuple)),
    (frozenset, (_SET, None)),
    # In a change, of a place that was not there before or is not there any more.
    (_native.Missing, (_VALUE, _none)),
    (set, (_CHANGING_SET, None)),
    (list, (_CHANGING_VALUE, _list)),
    (collections.abc.Mapping, (_CHANGING_VALUE, _dict)),
)


def plan_of(kind: Any) -> Plan:
    """Returns how the objects of a class are written."""
    if is_record(kind) and not issubclass(kind, enum.Enum):
        try:
            return _RECORD, kind_of(kind)
        except StateError:
            # It can change, or no state takes it for another reason. It can be written all the same.
            return _CHANGING_RECORD, _native.Record(kind, names_of(kind), _refuse, None, None)
    if issubclass(kind, _DRAFTS):
        return _OTHER, "a draft, whose value changes with its transaction. Dump a snapshot, or a plain value"
    for base, plan in _BASES:
        if issubclass(kind, base):
            return plan
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        if issubclass(kind, numpy.ndarray):
            return _CHANGING_VALUE, operator.methodcaller("tolist")
        if issubclass(kind, (numpy.datetime64, numpy.timedelta64)):
            return _TEXT, str
        if issubclass(kind, (numpy.bool_, numpy.integer)):
            return _VALUE, operator.methodcaller("item")
        if issubclass(kind, numpy.floating):
            return _VALUE, float
    if issubclass(kind, (bytes, bytearray, memoryview)):
        return (
            _OTHER,
            f"{kind.__name__}, which JSON has no form for. Make text of them, by base64 for instance",
        )
    return _OTHER, f"of class {kind.__qualname__}, which has no form in JSON. Give dumps a default for it"


def names_of(kind: Any) -> tuple[str, ...]:
    """Returns the names of the fields of a record, be it frozen or not."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return tuple(_first(kind, "__struct_fields__", "model_fields", "_fields"))


def _first(kind: Any, *names: str) -> Any:
    return next(found for name in names if (found := getattr(kind, name, None)) is not None)


def _refuse(*_: object) -> NoReturn:
    raise TypeError("no copy is made of a record that can change")
