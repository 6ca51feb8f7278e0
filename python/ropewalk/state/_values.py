"""Which classes are values that never change, and which change in place, with what to use instead."""

from __future__ import annotations

import array
import collections
import collections.abc
import datetime
import decimal
import enum
import fractions
import pathlib
import uuid
from typing import Any, get_origin

from ropewalk._errors import NotFrozen

#: Subclasses of these are leaves too: a member of an enumeration, a path of one system.
_LEAVES: tuple[type, ...] = (
    bool,
    bytes,
    complex,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    decimal.Decimal,
    enum.Enum,
    float,
    fractions.Fraction,
    frozenset,
    int,
    pathlib.PurePath,
    range,
    slice,
    str,
    tuple,
    type(None),
    type,
    uuid.UUID,
)

#: Classes that change in place; their subclasses do too.
_MUTABLE: tuple[tuple[type, str], ...] = (
    (bytearray, "bytes"),
    (memoryview, "bytes"),
    (array.array, "tuple[T, ...] or, for large ones, Shm"),
    (collections.deque, "PVector"),
    (list, "PVector"),
    (collections.abc.MutableSequence, "PVector"),
    (collections.Counter, "PMap with values that are Counter of ropewalk.state"),
    (collections.abc.MutableMapping, "PMap, or a frozen dataclass for a dict with known keys"),
    (dict, "PMap, or a frozen dataclass for a dict with known keys"),
    (set, "frozenset, or PMap for a large one that changes"),
    (collections.abc.MutableSet, "frozenset, or PMap for a large one that changes"),
)


def is_leaf(kind: type) -> bool:
    """Whether the instances of a class are values that are replaced as a whole."""
    return issubclass(kind, _LEAVES)


def is_class(annotation: Any) -> bool:
    """Whether an annotation is a class, and not a generic one with arguments."""
    return isinstance(annotation, type) and annotation is not Any and get_origin(annotation) is None


def is_collection(kind: Any) -> bool:
    """Whether a class is a leaf that holds other values."""
    return issubclass(kind, (tuple, frozenset))


def refuse_mutable(kind: Any, annotation: Any, where: str) -> None:
    """Raises for a class whose instances change in place.

    Raises:
        NotFrozen: it says what to use instead.
    """
    instead = instead_of(kind)
    if instead:
        shown = getattr(annotation, "__name__", None) if isinstance(annotation, type) else annotation
        raise NotFrozen(
            f"{where} is annotated with {shown or annotation}, which changes in place, so that a snapshot would change "
            f"too. Use {instead}"
        )


def instead_of(kind: Any) -> str:
    """Returns what to use instead of a class whose instances change in place; an empty text for other classes."""
    if not isinstance(kind, type):
        return ""
    if kind.__module__.partition(".")[0] == "numpy" and kind.__name__ in ("ndarray", "matrix", "recarray"):
        return 'Shm[float32, "n 256"]'
    return next((what for base, what in _MUTABLE if issubclass(kind, base)), "")
