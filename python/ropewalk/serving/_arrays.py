"""Arrays of NumPy as arguments and results.

A parameter is an array if its annotation says so: `numpy.ndarray`, `NDArray[numpy.float32]`, or with its dimensions
`Shm[float32, "n 3"]`, a word of `ropewalk.state`. The bytes of an argument stay where the server has put them, in
shared memory; the array is a view of it that nothing can write to. NumPy is imported by the program that names it, and
not here.
"""

from __future__ import annotations

import json
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ropewalk._errors import WrongType
from ropewalk.serving._checker import ARRAY, ARRAYS, Misfit, Parameter, Schema, Violations

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ropewalk.state._zones import ArrayShape

#: The types of items that travel as bytes (`crates/gateway/src/arrays/dtype.rs`).
DTYPES = frozenset(("bool", "float16", "float32", "float64", "complex64", "complex128")) | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
#: In a JSON Schema: the array that stands behind nested lists.
KEY = "x-ropewalk-array"
#: For each kind of items, those of lists that become such.
_KINDS = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "c": "iuf"}
_WORDS = {
    "b": "true and false",
    "i": "whole numbers",
    "u": "whole numbers",
    "f": "numbers",
    "c": "pairs of numbers",
}
#: The types of Python's numbers in lists.
_NUMBERS = frozenset((bool, int, float))
#: Characters that NumPy reserves for a number among texts, and bytes of each character.
_NUMBER, _CHARACTER = 32, 4
#: Bytes that an array of texts may have in any case, and how many for each character that was sent.
_SMALL, _WIDEST = 1 << 20, 64

#: Arguments as a worker receives them: bytes, a view of shared memory, or with arrays a tuple of such.
Given: TypeAlias = "Buffer | tuple[Buffer, ...]"
#: What a worker answers: bytes, or bytes and buffers behind them.
Answer: TypeAlias = bytes | tuple[bytes | PickleBuffer, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """What an annotation says of an array."""

    #: The type of its items; `None` for any.
    dtype: str | None
    #: Its type and its dimensions, if they are said.
    shape: ArrayShape | None = None
    #: Whether `None` may be in its place.
    is_optional: bool = False

    def schema(self, *, of_result: bool = False) -> Schema:
        """Returns the JSON Schema: nested lists of numbers, and what array they are."""
        item: Schema = _item_schema(self.dtype)
        if of_result and item == {"type": "number"}:
            # What JSON has no numbers for, such as infinity, is written as null.
            item = {"type": ["number", "null"]}
        dims = None if self.shape is None else self.shape.dims
        if dims is None:
            nested: Schema = {
                "type": "array",
                "items": {} if self.dtype is None else {"anyOf": [item, {"type": "array"}]},
            }
        else:
            nested = item
            for dim in reversed(dims):
                nested = {"type": "array", "items": nested}
                if isinstance(dim, int):
                    nested |= {"minItems": dim, "maxItems": dim}
        if self.is_optional:
            nested = {"anyOf": [nested, {"type": "null"}]}
        return {
            "description": f"{self}, as nested lists.",
            **nested,
            KEY: {"dtype": self.dtype, "shape": dims},
        }

    def of_lists(self, value: Any, lengths: dict[str, int]) -> Any:
        """Returns the array that nested lists stand for.

        Raises:
            ValueError, WrongType: they stand for none, or for another one.
        """
        if value is None and self.is_optional:
            return None
        numpy = sys.modules["numpy"]
        has_no_dims = self.shape is not None and not self.shape.dims
        if not isinstance(value, list) and not (has_no_dims and isinstance(value, (int, float))):
            raise ValueError("Input should be an array: nested lists")
        wanted = None if self.dtype is None else numpy.dtype(self.dtype)
        words = "numbers" if wanted is None else _WORDS[wanted.kind]
        # NumPy makes an array of whatever there is, and room for the longest text in the place of each item.
        kinds, items = _items(value)
        if not kinds <= (_NUMBERS if wanted is not None else _NUMBERS | {str}):
            raise ValueError(f"Input should be an array: nested lists of {words}")
        if str in kinds:
            _check_texts(items)
        try:
            made = numpy.asarray(value)
        except (ValueError, OverflowError):
            raise ValueError("Input should be an array: lists of equal lengths") from None
        if made.dtype.kind not in ("biufU" if wanted is None else _KINDS[wanted.kind]) and made.size:
            raise ValueError(f"Input should be an array: nested lists of {words}")
        if wanted is not None:
            made = _converted(numpy, made, wanted)
        return self.checked(made, lengths)

    def checked(self, array: Any, lengths: dict[str, int]) -> Any:
        """Returns the array, if it is such a one; `lengths` has the lengths that have names so far.

        Raises:
            WrongType: it is not.
        """
        if self.shape is not None:
            self.shape.check(array, lengths)
        elif self.dtype is not None and str(array.dtype) != self.dtype:
            raise WrongType(f"an array of {array.dtype} {array.shape} was given for {self}")
        return array

    def check_result(self, value: Any, *, is_json: bool) -> None:
        """Looks whether a result is what `schema` says. As JSON, an array without dimensions is no list.

        Raises:
            Misfit: they are not.
        """
        if value is None and self.is_optional:
            return
        try:
            made: Any = value if hasattr(value, "dtype") else sys.modules["numpy"].asarray(value)
            kind, dims = made.dtype.kind, tuple(made.shape)
        except (AttributeError, ValueError, OverflowError):
            # An array of another library, or lists that are none: how these are written is not known.
            return
        wanted = None if self.shape is None else self.shape.dims
        fits = bool(dims) or wanted == () or (made is value and not is_json)
        is_complex = self.dtype is not None and self.dtype.startswith("complex")
        if is_complex and kind in "iuf" and dims[-1:] == (2,):
            kind, dims = "c", dims[:-1]  # pairs
        if wanted is not None:
            fits = len(dims) == len(wanted) and all(
                not isinstance(one, int) or one == length for one, length in zip(wanted, dims, strict=True)
            )
        if self.dtype is not None and made.size:
            kinds = "c" if is_complex else _KINDS[sys.modules["numpy"].dtype(self.dtype).kind]
            fits = fits and kind in kinds
        if not fits:
            kind_of = cast("type[object]", type(value))
            is_array = made is value or kind_of in (list, tuple)
            returned = f"an array of {made.dtype} {dims}" if is_array else f"a {kind_of.__name__}"
            if made is value and not dims:
                returned = f"one {made.dtype}, an array without dimensions, for which JSON has no list,"
            raise Misfit(("", f"{returned} was returned for {self}"))

    def __str__(self) -> str:
        if self.shape is not None:
            return f'array of {self.dtype} "{" ".join(map(str, self.shape.dims))}"'
        return "array" if self.dtype is None else f"array of {self.dtype}"


def _items(value: Any) -> tuple[set[type], list[Any]]:
    """Returns the types of the items of nested lists, and the items.

    Raises:
        ValueError: there are items beside lists.
    """
    items: list[Any] = [value]
    while list in (kinds := set(map(type, items))):
        if len(kinds) > 1:
            raise ValueError("Input should be an array: lists of equal lengths")
        items = list(chain.from_iterable(items))
    return kinds, items


def _check_texts(items: list[Any]) -> None:
    """Refuses texts that take far more memory as an array, where each is as long as the longest.

    Raises:
        ValueError: they do.
    """
    lengths = [len(one) if isinstance(one, str) else _NUMBER for one in items]
    if _CHARACTER * max(lengths) * len(lengths) > max(_SMALL, _WIDEST * (sum(lengths) + len(lengths))):
        raise ValueError("Input should be an array: texts of similar lengths")


def _item_schema(dtype: str | None) -> Schema:
    if dtype is None:
        return {}
    if dtype == "bool":
        return {"type": "boolean"}
    if dtype.startswith("complex"):
        number = {"type": "number"}
        return {"type": "array", "prefixItems": [number, number], "minItems": 2, "maxItems": 2}
    if dtype.startswith("float"):
        return {"type": "number"}
    bits = int(dtype.lstrip("uint"))
    low, high = (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return {"type": "integer", "minimum": low, "maximum": high}


def _converted(numpy: Any, made: Any, wanted: Any) -> Any:
    """Returns an array with items of the wanted type."""
    if wanted.kind == "c":
        if made.shape[-1:] != (2,):
            raise ValueError(
                "Input should be an array: nested lists of pairs, the real and the imaginary part"
            )
        return (made[..., 0] + 1j * made[..., 1]).astype(wanted)
    if wanted.kind in "iu" and made.size:
        limits = numpy.iinfo(wanted)
        if int(made.min()) < limits.min or int(made.max()) > limits.max:
            raise ValueError(f"Input should be an array of {wanted}: from {limits.min} to {limits.max}")
    with numpy.errstate(over="ignore"):
        return made.astype(wanted, copy=False)


def array_of(annotation: Any) -> Array | None:
    """Returns what an annotation says of an array; `None` if it says something else.

    Raises:
        ValueError: it is an array with items that callers cannot send.
    """
    numpy, zones = sys.modules.get("numpy"), sys.modules.get("ropewalk.state._zones")
    origin, of = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        rest = [one for one in of if one is not type(None)]
        made = array_of(rest[0]) if len(rest) == 1 < len(of) else None
        return None if made is None else Array(made.dtype, made.shape, is_optional=True)
    if zones is not None:
        for one in getattr(annotation, "__metadata__", ()):
            if isinstance(one, zones.ArrayShape):
                return Array(_known(one.dtype), one)
    if origin is typing.Annotated:
        return array_of(of[0])
    # Aliases by `type`, as `NDArray` is one from NumPy 2.5 on, stand for their value.
    if (value := getattr(origin, "__value__", None)) is not None:
        return array_of(value[of])
    if origin is None and hasattr(annotation, "__value__"):
        return array_of(annotation.__value__)
    if numpy is None:
        return None
    if annotation is numpy.ndarray:
        return Array(None)
    if origin is not numpy.ndarray:
        return None
    # `NDArray[float32]` is `ndarray[tuple[...], dtype[float32]]`.
    item: Any = (*typing.get_args(of[1]), Any)[0] if len(of) > 1 else Any
    is_one = isinstance(item, type) and issubclass(cast("Any", item), numpy.generic)
    return Array(_known(str(numpy.dtype(item))) if is_one and item.__name__ in _concrete(numpy) else None)


def _concrete(numpy: Any) -> set[str]:
    """Returns the names of NumPy's classes of items that are no mere families, such as `floating`."""
    return {numpy.dtype(char).type.__name__ for char in numpy.typecodes["All"]}


def _known(dtype: str) -> str:
    if dtype not in DTYPES:
        raise ValueError(f"callers cannot send arrays of {dtype}: {', '.join(sorted(DTYPES))} are served")
    return dtype


def result_schema(annotation: Any) -> Schema | None:
    """Returns the JSON Schema of a result with arrays in it; `None` if there are none, or if nothing can be said."""
    made = array_of(annotation)
    if made is not None:
        return made.schema(of_result=True)
    origin, of = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple and of and of[-1] is not Ellipsis:
        items = [array_of(one) for one in of]
        if any(items):
            parts = [{} if one is None else one.schema(of_result=True) for one in items]
            return {"type": "array", "prefixItems": parts, "minItems": len(of), "maxItems": len(of)}
    if origin in (list, tuple, Sequence) and of and (item := array_of(of[0])) is not None:
        return {"type": "array", "items": item.schema(of_result=True)}
    if origin in (dict, Mapping) and len(of) == 2 and (item := array_of(of[1])) is not None:
        return {"type": "object", "additionalProperties": item.schema(of_result=True)}
    if typing.is_typeddict(annotation):
        fields = {
            name: array_of(hint)
            for name, hint in typing.get_type_hints(annotation, include_extras=True).items()
        }
        if any(fields.values()):
            shown = {name: {} if one is None else one.schema(of_result=True) for name, one in fields.items()}
            return {"type": "object", "properties": shown, "required": sorted(annotation.__required_keys__)}
    return None


class Arrays:
    """The parameters of a tool that are arrays."""

    def __init__(self, parameters: list[Parameter]) -> None:
        found = {each.name: array_of(each.annotation) for each in parameters}
        self._arrays = {name: made for name, made in found.items() if made is not None}
        self._only = next(iter(self._arrays)) if len(self._arrays) == 1 else None

    def others(self, parameters: list[Parameter]) -> list[Parameter]:
        """Returns the parameters for the library that checks them, for which arrays are anything."""
        return [
            Parameter(one.name, Any, one.default) if one.name in self._arrays else one for one in parameters
        ]

    def describe(self, properties: dict[str, Schema]) -> None:
        """Puts the schemas of arrays among those of the arguments."""
        for name, made in self._arrays.items():
            properties[name] = made.schema()

    def of_lists(self, given: dict[str, Any]) -> dict[str, Any]:
        """Puts arrays in the place of nested lists.

        Raises:
            Violations: some stand for none.
        """
        return self._placed(given, {}) if self._arrays else given

    def decode(self, given: tuple[Buffer, ...], check: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
        """Returns the arguments of a call that has arrays; `check` reads those that are JSON.

        Raises:
            Violations: they do not fit.
        """
        import numpy

        text, header, *buffers = given
        text = bytes(text)
        arrays: dict[str, Any] = {}
        for (name, dtype, shape), buffer in zip(json.loads(bytes(header)), buffers, strict=True):
            if name is None:
                name = self._only
                if name is None:
                    raise Violations(("", "the tool takes no single array: name its arguments"))
            arrays[name] = (
                numpy.frombuffer(cast("Any", buffer), dtype).reshape(shape)
                if memoryview(buffer).nbytes
                else numpy.empty(shape, dtype)
            )
        # The library sees nothing where an array is, and lists where it is none of the tool's.
        for name, array in arrays.items():
            value = "null" if name in self._arrays else _listed(name, array)
            text = text[:-1] + (b"," if len(text) > 2 else b"") + f"{json.dumps(name)}:{value}}}".encode()
        return self._placed(check(text), arrays)

    def _placed(self, given: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
        lengths: dict[str, int] = {}
        wrong: list[tuple[str, str]] = []
        for name, made in self._arrays.items():
            if name not in given:
                continue
            try:
                if name in arrays:
                    given[name] = made.checked(arrays[name], lengths)
                else:
                    given[name] = made.of_lists(given[name], lengths)
            except (ValueError, WrongType) as error:
                wrong.append((name, str(error)))
        if wrong:
            raise Violations(*wrong)
        return given


def _listed(name: str, array: Any) -> str:
    """Returns an array as JSON, for a parameter that is none; one of a single item is that item."""
    value = array.item() if array.shape in ((), (1,)) else array.tolist()
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise Violations((name, f"JSON has no words for some items of this array of {array.dtype}")) from None


def encode(form: int, value: Any, write: Callable[[Any], bytes]) -> Answer | None:
    """Writes a result with arrays in it; `None` if it has none. `write` writes other parts as JSON."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None

    def travels(one: Any) -> bool:
        return isinstance(one, numpy.ndarray) and one.dtype.name in DTYPES

    items: Sequence[tuple[str | None, Any]]
    if travels(value):
        kind, items = "array", [(None, value)]
    elif form == ARRAY:
        return None
    elif isinstance(value, (list, tuple)) and any(map(travels, cast("list[Any]", value))):
        kind, items = "list", [(None, one) for one in cast("list[Any]", value)]
    elif isinstance(value, dict) and any(map(travels, cast("dict[str, Any]", value).values())):
        kind, items = "values", [(str(name), one) for name, one in cast("dict[str, Any]", value).items()]
    else:
        return None
    parts: list[str] = []
    buffers: list[PickleBuffer] = []
    for name, one in items:
        if travels(one):
            parts.append(json.dumps([name, one.dtype.name, one.shape]))
            # Little-endian and in C order; most arrays are that already, and stay where they are.
            one = numpy.asarray(one, one.dtype.newbyteorder("<"), order="C")
            buffers.append(PickleBuffer(memoryview(one).toreadonly()))
        else:
            parts.append(f"[{json.dumps(name)}, {write(one).decode()}]")
    header = f'["{kind}", [{", ".join(parts)}]]'
    return bytes((ARRAYS,)) + header.encode(), *buffers
