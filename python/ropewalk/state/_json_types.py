"""Readers: for each type, a function that makes its values of what the JSON parser has made.

A reader is made of an annotation. Those of plain classes of records stay with their classes.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import difflib
import enum
import json
import pathlib
import re
import sys
import uuid
from collections.abc import Callable, Iterable
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    ForwardRef,
    Literal,
    NewType,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

from ropewalk._errors import NotJson, StateError
from ropewalk._load import state as _native
from ropewalk.state._json_plans import plan_of
from ropewalk.state._records import fields_of, is_record, parameters_of
from ropewalk.state._shape import name_of
from ropewalk.state._zones import ArrayShape

Reader: TypeAlias = "Callable[[Any], Any]"
#: The values of type variables.
Bound: TypeAlias = "dict[Any, Any]"

#: Where a class of records keeps its reader.
_NAME = "__ropewalk_json__"
_DURATION = re.compile(r"(-?)PT([0-9]+(?:\.[0-9]{1,6})?)S")
_WORDS: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


class Misfit(Exception):
    """A value does not fit; the readers around it add the steps that lead to it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.steps: list[str | int] = []

    @property
    def path(self) -> str:
        """The place, from the top of the text."""
        path = "$"
        for step in reversed(self.steps):
            if isinstance(step, str) and step.isidentifier():
                path += f".{step}"
            else:
                path += f"[{json.dumps(step)}]"
        return path


def _wanted(what: str, value: Any) -> Misfit:
    shown = f"{value!r:.60}"
    found = _WORDS[type(value)]
    if isinstance(value, (int, float, str)):
        found += f", {shown}"
    return Misfit(f"expected {what}, found {found}")


def reader_of(annotation: Any, bound: Bound | None = None) -> Reader:
    """Returns the reader of a type.

    Raises:
        NotJson: the type has no form in JSON.
        StateError: an annotation cannot be read.
    """
    annotation, bound = _plain(annotation, bound or {})
    if get_origin(annotation) is Annotated:
        return _array(next(one for one in annotation.__metadata__ if isinstance(one, ArrayShape)))
    if annotation in (Any, object):
        return anything
    if annotation is None or annotation is type(None):
        return _null
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin in (Union, UnionType):
        return _union(annotation, [(arm, reader_of(arm, bound)) for arm in arguments])
    if origin is Literal:
        return _member(annotation, arguments)
    kind: Any = annotation if origin is None else origin
    if isinstance(kind, type):
        found = _of_class(kind, arguments, annotation, bound)
        if found is not None:
            return found
    raise NotJson(f"loads makes no {name_of(annotation)}, which has no form in JSON. Ask for another type")


def _plain(annotation: Any, bound: Bound) -> tuple[Any, Bound]:
    """Takes off what stands around a type, and fills in type variables."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            if any(isinstance(one, ArrayShape) for one in annotation.__metadata__):
                return annotation, bound
            annotation = annotation.__origin__
        elif origin is Final:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, TypeVar):
            annotation, bound = bound.get(annotation, annotation.__bound__ or Any), {}
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":  # `type X = ...` of Python 3.12
            annotation = annotation.__value__
        elif type(origin).__name__ == "TypeAliasType":
            parameters: Any = origin
            given = [bound.get(one, one) for one in get_args(annotation)]
            annotation, bound = (
                parameters.__value__,
                dict(zip(parameters.__type_params__, given, strict=False)),
            )
        elif isinstance(annotation, (str, ForwardRef)):
            raise StateError(f"the annotation {annotation!r} names nothing that can be found")
        else:
            return annotation, bound


def _of_class(kind: Any, arguments: tuple[Any, ...], annotation: Any, bound: Bound) -> Reader | None:
    if issubclass(kind, enum.Enum):
        return _enum(kind)
    if is_record(kind):
        return _record(kind, tuple(_filled(one, bound) for one in arguments))
    if kind in _SCALARS:
        return _SCALARS[kind]
    if issubclass(kind, _native.PMap):
        return _object(kind, arguments, bound)
    if issubclass(kind, _native.PVector):
        return _items(kind, arguments, bound)
    if issubclass(kind, tuple):
        return _tuple(kind, arguments, bound)
    if issubclass(kind, (frozenset, set, list)):
        return _items(kind, arguments, bound)
    if kind is collections.abc.Mapping or issubclass(kind, dict):
        return _object(_native.PMap if kind is collections.abc.Mapping else kind, arguments, bound)
    if kind is collections.abc.Sequence:
        return _items(_native.PVector, arguments, bound)
    parse = _parser(kind)
    if parse is not None:
        return _text(annotation, parse)
    for base in (int, float, str):
        if issubclass(kind, base):
            return _made(annotation, _SCALARS[base], kind)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        if issubclass(kind, numpy.ndarray):
            return _made(annotation, _list, numpy.array)
        for scalar, plain in ((numpy.bool_, bool), (numpy.integer, int), (numpy.floating, float)):
            if issubclass(kind, scalar):
                return _made(annotation, _SCALARS[plain], kind)
    return None


def _filled(annotation: Any, bound: Bound) -> Any:
    return bound.get(annotation, annotation) if isinstance(annotation, TypeVar) else annotation


# --- values without parts ---------------------------------------------------------------------------------------------


def anything(value: Any) -> Any:
    """Reads a value of any type: objects become `PMap`, and arrays `PVector`."""
    if _is(value, dict):
        return _native.PMap({key: anything(item) for key, item in value.items()})
    if _is(value, list):
        return _native.PVector([anything(item) for item in value])
    return value


def _is(value: Any, kind: type) -> bool:
    return type(value) is kind


def _null(value: Any) -> None:
    if value is not None:
        raise _wanted("null", value)


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _wanted("a boolean", value)
    return value


def _int(value: Any) -> int:
    if type(value) is not int:
        raise _wanted("a whole number", value)
    return value


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is not int:
        raise _wanted("a number", value)
    try:
        return float(value)
    except OverflowError:
        raise Misfit("expected a number that a float can hold") from None


def _str(value: Any) -> str:
    if type(value) is not str:
        raise _wanted("a string", value)
    return value


def _list(value: Any, what: str = "an array") -> list[Any]:
    if not _is(value, list):
        raise _wanted(what, value)
    items: list[Any] = value
    return items


def _dict(value: Any, what: str = "an object") -> dict[str, Any]:
    if not _is(value, dict):
        raise _wanted(what, value)
    entries: dict[str, Any] = value
    return entries


def _decimal(value: Any) -> decimal.Decimal:
    if type(value) not in (str, int, float):
        raise _wanted("a decimal number", value)
    try:
        return decimal.Decimal(str(value))
    except ArithmeticError:
        raise _wanted("a decimal number", value) from None


_SCALARS: dict[Any, Reader] = {bool: _bool, int: _int, float: _float, str: _str, decimal.Decimal: _decimal}


def _duration(text: str) -> datetime.timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(text)
    whole, _, part = found[2].partition(".")
    delta = datetime.timedelta(seconds=int(whole), microseconds=int(part.ljust(6, "0")))
    return -delta if found[1] else delta


def _parser(kind: Any) -> Callable[[str], Any] | None:
    """Returns what makes a value of a class of its text."""
    if issubclass(kind, (datetime.date, datetime.time)):
        return cast("Callable[[str], Any]", kind.fromisoformat)
    if kind is datetime.timedelta:
        return _duration
    if issubclass(kind, (uuid.UUID, pathlib.PurePath, decimal.Decimal)):
        return cast("Callable[[str], Any]", kind)
    return None


def _text(annotation: Any, parse: Callable[[str], Any]) -> Reader:
    what = f"a string with a {name_of(annotation)}"

    def read(value: Any) -> Any:
        if type(value) is not str:
            raise _wanted(what, value)
        try:
            return parse(value)
        except (ValueError, ArithmeticError):
            raise _wanted(what, value) from None

    return read


def _made(annotation: Any, first: Reader, make: Callable[[Any], Any]) -> Reader:
    """Reads a value, and makes that of another class of it."""

    def read(value: Any) -> Any:
        plain = first(value)
        try:
            return make(plain)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise Misfit(f"expected {name_of(annotation)}: {error}") from error

    return read


def _encoded(value: Any) -> bytes:
    return _native.encode_json(value, None, False, plan_of)


def _member(annotation: Any, members: Iterable[Any]) -> Reader:
    """Reads one of some values, by their JSON."""
    known: dict[bytes, Any] = {}
    for member in members:
        known.setdefault(_encoded(member), member)
    what = " or ".join(text.decode() for text in known)
    what = what if len(what) <= 200 else name_of(annotation)

    def read(value: Any) -> Any:
        try:
            return known[_encoded(value)]
        except KeyError:
            raise _wanted(what, value) from None

    return read


def _enum(kind: Any) -> Reader:
    member = _member(kind, kind)
    if not issubclass(kind, enum.Flag):
        return member

    def read(value: Any) -> Any:
        try:
            return kind(_int(value))
        except ValueError:
            return member(value)

    return read


#: What items are made of, by the codes that NumPy has for their kinds. NumPy itself would cut numbers off, and read
#: texts.
_FROM: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float, type(None)}}


def _array(shape: ArrayShape) -> Reader:
    if shape.dtype.startswith("complex"):
        raise NotJson(f"loads makes no {shape}: complex numbers have no form in JSON. Ask for another type")

    def read(value: Any) -> Any:
        # NumPy is imported by the first array.
        import numpy

        from ropewalk.state._arrays import committed

        if shape.dims:
            _list(value)
        try:
            array = numpy.array(value, dtype=shape.dtype)
            if not set(map(type, numpy.array(value, object).flat)) <= _FROM[array.dtype.kind]:
                raise TypeError("there are items of another type")
            if not array.size:
                # The text has the lengths up to the first 0.
                rest = shape.dims[array.ndim :]
                array = array.reshape((*array.shape, *(0 if isinstance(dim, str) else dim for dim in rest)))
            shape.check(array)
        except (ValueError, TypeError, OverflowError, StateError) as error:
            raise Misfit(f"expected {shape}: {error}") from error
        return committed(array)

    return read


def _union(annotation: Any, arms: list[tuple[Any, Reader]]) -> Reader:
    exact: dict[Any, Reader] = {arm: read for arm, read in arms if arm in (bool, int, float)}
    otherwise = _first(annotation, [read for _, read in arms])
    only = [read for arm, read in arms if arm is not type(None)]
    is_optional = len(only) < len(arms)

    def read(value: Any) -> Any:
        if value is None and is_optional:
            return None
        if len(only) == 1:
            return only[0](value)
        first = exact.get(type(value))
        if first is not None:
            return first(value)
        return otherwise(value)

    return read


def _first(annotation: Any, readers: list[Reader]) -> Reader:
    """Reads with the first reader that can."""

    def read(value: Any) -> Any:
        deepest: Misfit | None = None
        for one in readers:
            try:
                return one(value)
            except Misfit as error:
                if deepest is None or len(error.steps) > len(deepest.steps):
                    deepest = error
        misfit = _wanted(name_of(annotation), value)
        if deepest is not None and deepest.steps:
            misfit.text += f"; at {deepest.path}: {deepest.text}"
        raise misfit

    return read


# --- values with parts ------------------------------------------------------------------------------------------------


def _items(kind: Any, arguments: tuple[Any, ...], bound: Bound) -> Reader:
    item = reader_of(arguments[0] if arguments else Any, bound)

    def read(value: Any) -> Any:
        return _collected(kind, _list(value), lambda _: item)

    return read


def _collected(kind: Any, values: list[Any], reader: Callable[[int], Reader]) -> Any:
    made: list[Any] = []
    try:
        for value in values:
            made.append(reader(len(made))(value))
    except Misfit as error:
        error.steps.append(len(made))
        raise
    try:
        return kind(made)
    except TypeError as error:
        # An item of a set that has no hash.
        raise Misfit(f"expected a {kind.__name__}: {error}") from error


def _tuple(kind: Any, arguments: tuple[Any, ...], bound: Bound) -> Reader:
    if (not arguments and kind is tuple) or (len(arguments) == 2 and arguments[1] is ...):
        return _items(kind, arguments[:1], bound)
    # `tuple[()]` has one argument before Python 3.11.
    readers = [reader_of(one, bound) for one in arguments]

    def read(value: Any) -> Any:
        what = f"an array of {len(readers)} items"
        items = _list(value, what)
        if len(items) != len(readers):
            raise Misfit(f"expected {what}, found one of {len(items)}")
        return _collected(kind, items, readers.__getitem__)

    return read


def _object(kind: Any, arguments: tuple[Any, ...], bound: Bound) -> Reader:
    key_reader = _key(arguments[0], bound) if arguments else _str
    item = reader_of(arguments[1] if arguments else Any, bound)

    def read(value: Any) -> Any:
        made: dict[Any, Any] = {}
        key = ""
        try:
            for key, one in _dict(value).items():
                made[key if key_reader is _str else key_reader(key)] = item(one)
        except Misfit as error:
            error.steps.append(key)
            raise
        return made if kind is dict else kind(made)

    return read


def _key(annotation: Any, bound: Bound) -> Reader:
    """Returns what reads the keys of a map, which are strings in JSON."""
    annotation, bound = _plain(annotation, bound)
    if annotation in (str, Any, object):
        return _str
    if get_origin(annotation) in (Union, UnionType):
        return _first(annotation, [_key(one, bound) for one in get_args(annotation)])
    if get_origin(annotation) is Literal:
        members: Any = get_args(annotation)
    elif isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        members = annotation
    elif annotation is bool:
        members = (True, False)
    elif annotation in (None, type(None)):
        members = (None,)
    elif isinstance(annotation, type) and (
        issubclass(annotation, (int, float)) or annotation is decimal.Decimal
    ):
        return _text(annotation, _number(annotation))
    elif isinstance(annotation, type) and (issubclass(annotation, str) or _parser(annotation) is not None):
        return reader_of(annotation, bound)
    else:
        raise NotJson(f"{name_of(annotation)} is no key in JSON. Use a map with keys of text or numbers")
    # A member reads as it is written.
    known = {next(iter(json.loads(_encoded({member: None})))): member for member in members}

    def read(key: Any) -> Any:
        try:
            return known[key]
        except KeyError:
            raise _wanted(f"a key that is {' or '.join(map(json.dumps, known))}", key) from None

    return read


def _number(kind: Any) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        if text != text.strip() or "_" in text or not text.isascii():
            raise ValueError(text)
        return kind(text)

    return parse


def _record(kind: Any, arguments: tuple[Any, ...]) -> Reader:
    if arguments:
        return _Record(kind, arguments)
    known = kind.__dict__.get(_NAME)
    if known is None:
        known = _Record(kind, ())
        type.__setattr__(kind, _NAME, known)
    return cast("Reader", known)


class _Record:
    """The reader of a class of records. It reads the annotations when it first reads a value, because of cycles."""

    __slots__ = ("_arguments", "_fields", "_kind")

    def __init__(self, kind: Any, arguments: tuple[Any, ...]) -> None:
        self._kind = kind
        self._arguments = arguments
        self._fields: tuple[dict[str, Reader], frozenset[str], frozenset[str]] | None = None

    def __call__(self, value: Any) -> Any:
        values = _dict(value, f"an object for {name_of(self._kind)}")
        readers, required, computed = self._fields or self._read()
        made: dict[str, Any] = {}
        name = ""
        try:
            for name, one in values.items():
                reader = readers.get(name)
                if reader is None:
                    near = difflib.get_close_matches(name, readers, n=1)
                    hint = f"; its field is {near[0]}" if near else f"; its fields are {', '.join(readers)}"
                    raise Misfit(f"{name_of(self._kind)} has no such field{hint}")
                item = reader(one)
                if name not in computed:
                    made[name] = item
        except Misfit as error:
            error.steps.append(name)
            raise
        lacking = required.difference(made)
        if lacking:
            names = ", ".join(name for name in readers if name in lacking)
            raise Misfit(f"expected an object for {name_of(self._kind)}, found one without {names}")
        try:
            return _make(self._kind, made)
        except (ValueError, TypeError) as error:
            raise Misfit(f"{name_of(self._kind)} refuses its fields: {error}") from error

    def _read(self) -> tuple[dict[str, Reader], frozenset[str], frozenset[str]]:
        kind = self._kind
        bound = parameters_of(kind, self._arguments)
        readers = {name: reader_of(one, bound) for name, one in fields_of(kind, kind.__qualname__).items()}
        computed: frozenset[str] = frozenset()
        if dataclasses.is_dataclass(kind):
            computed = frozenset(field.name for field in dataclasses.fields(kind) if not field.init)
        self._fields = readers, _required(kind) - computed, computed
        return self._fields


def _required(kind: Any) -> frozenset[str]:
    """Returns the names of the fields that have no default."""
    if dataclasses.is_dataclass(kind):
        missing = dataclasses.MISSING
        return frozenset(
            field.name
            for field in dataclasses.fields(kind)
            if field.default is missing and field.default_factory is missing
        )
    if hasattr(kind, "__struct_fields__"):
        msgspec: Any = sys.modules["msgspec"]
        return frozenset(field.name for field in msgspec.structs.fields(kind) if field.required)
    if hasattr(kind, "model_fields"):
        return frozenset(name for name, field in kind.model_fields.items() if field.is_required())
    return frozenset(kind._fields) - frozenset(kind._field_defaults)


def _make(kind: Any, values: dict[str, Any]) -> Any:
    if hasattr(kind, "model_fields") and not dataclasses.is_dataclass(kind):
        if any(field.validation_alias or field.alias for field in kind.model_fields.values()):
            return kind.model_validate(values, by_alias=False, by_name=True)
        return kind.model_validate(values)
    make: Any = kind
    return make(**values)
