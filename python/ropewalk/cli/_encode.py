"""Encodes results as JSON: plain values as they are, and other common types by a documented substitute."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import json
import os
import uuid
from collections import deque
from collections.abc import ItemsView, KeysView, Mapping, Set as AbstractSet, ValuesView
from typing import Any, cast

_SPELLED = (decimal.Decimal, fractions.Fraction, uuid.UUID)


def encode(value: Any) -> str:
    """Returns the value as JSON.

    Dates and times are written in ISO 8601, a time span as seconds, paths, `Decimal`, `Fraction` and `UUID` as text,
    enumerations as their value, sets (sorted if possible), deques and views of dicts as lists, dataclasses and mappings
    as objects, NumPy's scalars and arrays, and other objects with `tolist`, as numbers and lists.

    Raises:
        TypeError, ValueError, RecursionError, OverflowError: JSON cannot express the value, NaN for instance.
    """
    try:
        return _ENCODER.encode(value)
    except TypeError:
        # The encoder does not call `stand_in` for the keys of a dict.
        return _ENCODER.encode(_with_plain_keys(value))


def stand_in(value: Any) -> Any:
    """Returns what is encoded in place of a value that JSON cannot express.

    Raises:
        TypeError: there is no substitute.
    """
    kind = cast("type[object]", type(value))
    if kind.__module__ == "numpy":
        return _of_numpy(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, _SPELLED):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, AbstractSet) and not isinstance(value, KeysView | ItemsView):
        try:
            return sorted(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        except TypeError:
            return list(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, deque | range | KeysView | ItemsView | ValuesView):
        return list(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    for name in ("tolist", "model_dump"):  # Arrays of every library; models of pydantic.
        method = getattr(value, name, None)
        if callable(method) and not isinstance(value, type):
            return method()
    raise TypeError(f"{kind.__qualname__} has no equivalent in JSON")


def _of_numpy(value: Any) -> Any:
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind in "mM" and kind:  # Dates, for which `tolist` returns plain numbers if the unit is nanoseconds.
        return value.astype(str).tolist()
    if not hasattr(value, "tolist"):
        raise TypeError(f"numpy.{type(value).__qualname__} has no equivalent in JSON")
    plain = value.tolist()
    if type(plain) is type(value):  # A `longdouble` is its own nearest value.
        return float(plain)
    return plain


def _with_plain_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _with_plain_keys(item) for key, item in value.items()}  # pyright: ignore
    if isinstance(value, list | tuple):
        return [_with_plain_keys(item) for item in value]  # pyright: ignore
    if value is None or isinstance(value, str | int | float):
        return value
    return _with_plain_keys(stand_in(value))


def _key(key: Any) -> Any:
    if key is None or isinstance(key, str | int | float):
        return key
    plain = stand_in(key)
    if not isinstance(plain, str | int | float):
        raise TypeError(f"a key of type {type(key).__qualname__} has no equivalent in JSON")
    return plain


# NaN and infinity are not JSON: other programs could not read a file that contains them.
_ENCODER = json.JSONEncoder(allow_nan=False, default=stand_in)
