"""JSON of states: `dumps` writes it from the values as they are, and `loads` makes typed values of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, overload

from ropewalk._errors import BadJson, NotJson
from ropewalk._load import state as _native
from ropewalk.state._json_plans import plan_of
from ropewalk.state._json_types import Misfit, reader_of

T = TypeVar("T")

#: An escape that may be half of a pair.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def dumps(value: object, *, default: Callable[[Any], Any] | None = None, cache: bool = True) -> bytes:
    """Returns a value as JSON, in UTF-8 and without spaces.

    A `PMap` is an object, in the order of the map, which follows the hashes of its keys; a `PVector`, a tuple and a
    list are arrays. A set is an array in the order of its items' texts. A record is an object with the names of its
    fields: a dataclass, a named tuple, a msgspec struct, a pydantic model. Dates and times are as RFC 3339 has them,
    without an offset if they have none; a `timedelta` is a duration of ISO 8601. A `UUID`, a `Decimal` and a path are
    strings, an enumeration's member is its value, `MISSING` is `null`, and arrays and numbers of NumPy are arrays and
    numbers; an array without dimensions is a number. NaN and the infinities are `null`, and complex numbers have no
    form. Keys may also be numbers, booleans, `None`, dates, UUIDs, decimals,
    paths, and members of enumerations of these, all as strings; NaN and the infinities are no keys, and nothing looks
    for two keys with one string. `default` gets any other object, and returns a value to write in its place.

    Nodes of maps and vectors keep their text, and what shares them writes it by copying. After a change of one entry,
    at most some 16 KiB of text around it are written anew, and less after the next one. The texts are freed with the
    nodes. All that are kept of one value are about as long as its JSON; where it has changed, they are twice that and
    never more than four times. A node keeps none if something in it can change, such as a list or what `default`
    returns. With `cache=False` no text is kept or used.

    Raises:
        NotJson: a part has no form in JSON, or more than 512 values lie in one another. The message has the path.
    """
    return _native.encode_json(value, default, cache, plan_of)


@overload
def loads(data: bytes | bytearray | memoryview | str) -> Any: ...
@overload
def loads(data: bytes | bytearray | memoryview | str, type: type[T]) -> T: ...
@overload
def loads(data: bytes | bytearray | memoryview | str, type: Any) -> Any: ...
def loads(data: bytes | bytearray | memoryview | str, type: Any = None) -> Any:
    """Returns the value that JSON stands for, of a type; without one, objects are `PMap` and arrays are `PVector`.

    The type may be all that a state is annotated with, and `list`, `dict` and `set`; it reads what `dumps` writes. Of a
    union, the first member that fits counts, after a member that is the very type of the JSON value. A record is made
    by its class, so that `__post_init__` and validators run. It may lack fields that have defaults, and has no others
    than those of the class. Arrays are as a state has them; `null` in an array of floats is NaN, which an infinity
    becomes that way. Of an array without items JSON has the lengths up to the first 0: those behind it are as
    `Shm[...]` says, or 0 where that has a name.

    Raises:
        BadJson: it is not JSON, or does not fit the type. The message has the path and what was expected.
        NotJson: the type has no form in JSON, such as `bytes`.
    """
    try:
        text = data if isinstance(data, str) else str(data, "utf-8")
        plain = json.loads(text, parse_constant=_refuse)
        if _SURROGATE.search(text):
            # Half of a pair is no text, and could not be written again.
            _native.encode_json(plain, None, False, plan_of)
    except (ValueError, NotJson) as error:
        raise _bad("$", f"the text is not JSON: {error}") from error
    except RecursionError as error:
        raise _bad("$", "the text nests too deep") from error
    try:
        return reader_of(Any if type is None else type)(plain)
    except Misfit as error:
        # The cause is what the class of a record has raised.
        raise _bad(error.path, f"{error.path}: {error.text}") from error.__cause__
    except RecursionError as error:
        raise _bad("$", "the text nests too deep") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _bad(path: str, text: str) -> BadJson:
    error = BadJson(text)
    error.path = path
    return error
