"""What the two libraries that check arguments have in common: forms, parameters, violations."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

#: The forms of arguments and results, as the gateway numbers them (`crates/gateway/src/call.rs`).
JSON, MSGPACK, RAW, ARRAYS, ARRAY = 1, 2, 3, 4, 5
#: The first byte of an answer that lists what is wrong with the arguments.
WRONG = 0
#: What is wrong with no bytes at all, which no form reads. The libraries speak of the end of a value.
EMPTY = ("", "the arguments are empty: send {} for none, or an object with each of them")

#: What an answer says of wrong arguments: so many fields, and so many characters of each text.
MOST_LISTED, _LONGEST = 100, 200
#: Places of a result that an error names.
_MOST_SHOWN = 5
#: Why JSON has `null` where a number should be.
NO_NUMBER = "a number is expected, and None, NaN and infinities are null in JSON"

Schema = dict[str, Any]

_NEVER = object()


class Violations(Exception):
    """Arguments do not fit: fields, such as ``"items[2].name"``, and what is wrong with each.

    A caller chooses how many there are, and how long their names: the first are kept, and the start of each text.
    """

    def __init__(self, *found: tuple[str, str], count: int | None = None) -> None:
        """Keeps what an answer lists; `count` says how many there are if `found` has not all."""
        kept = tuple((_start(field), _start(text)) for field, text in found[:MOST_LISTED])
        super().__init__(*kept)
        self.found = kept
        self.more = (len(found) if count is None else count) - len(kept)

    def answer(self) -> bytes:
        """Returns what a worker answers."""
        listed = [{"field": field, "description": text} for field, text in self.found]
        if self.more:
            listed.append({"field": "", "description": f"and {self.more} more"})
        return bytes((WRONG,)) + json.dumps(listed).encode()


def _start(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


class Misfit(Exception):
    """A result does not fit its annotation: each place, such as ``"[2].name"``, and what is wrong there."""

    def __init__(self, *found: tuple[str, str]) -> None:
        super().__init__(*found)
        self.found = found

    def __str__(self) -> str:
        texts = [f"{place}: {text}" if place else text for place, text in self.found[:_MOST_SHOWN]]
        left = len(self.found) - len(texts)
        return "; ".join(texts) + (f"; and {left} more" if left else "")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a tool."""

    name: str
    annotation: Any
    #: `inspect.Parameter.empty` if callers must pass it.
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether callers must pass it."""
        return self.default is inspect.Parameter.empty


class Checker(Protocol):
    """What pydantic and msgspec have in common: each has a module here."""

    def arguments_schema(self) -> Schema:
        """Returns the JSON Schema of the arguments, an object.

        Raises:
            TypeError: a parameter has none.
        """
        ...

    def result_schema(self) -> Schema:
        """Returns the JSON Schema of the result."""
        ...

    def arguments(self, form: int, data: bytes) -> dict[str, Any]:
        """Reads arguments.

        Raises:
            Violations: they do not fit.
        """
        ...

    def result(self, form: int, value: Any) -> bytes:
        """Writes a result, a part of one, or an item of a stream.

        Raises:
            Misfit: its JSON does not fit the annotation.
        """
        ...

    def takes_bytes(self) -> bool:
        """Returns whether bytes, whose JSON is a text, fit the annotation."""
        ...


def plain(value: Any) -> Any:
    """Returns what JSON can say of a value that neither library knows.

    NumPy's scalars and arrays are numbers, what pandas has for nothing is null, and a mapping is an object.

    Raises:
        TypeError: nothing.
    """
    if value is getattr(sys.modules.get("pandas"), "NA", _NEVER):
        return None
    if issubclass(type(value), Mapping):
        return dict(value)
    listed = getattr(value, "tolist", None)
    if callable(listed):
        # JSON has no complex numbers, but pairs.
        is_complex = getattr(getattr(value, "dtype", None), "kind", None) == "c"
        return _pairs(value) if is_complex else listed()
    raise TypeError(f"a result of type {type(value).__name__!r} cannot be written as JSON")


def _pairs(value: Any) -> Any:
    numpy: Any = sys.modules["numpy"]
    return numpy.stack((value.real, value.imag), axis=-1).tolist()
