"""Checks of arguments: each returns the value, or raises an error that names the argument and the values it accepts."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Never, cast


def checked_count(name: str, value: object, least: int, most: int = 2**63 - 1) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if number < least:
        raise ValueError(f"{name} must be {least} or more, not {number}")
    if number > most:
        raise ValueError(f"{name} must be {most} or less, not {number}")
    return number


def checked_seconds(name: str, value: object, also: str = "") -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds{also}, not {value!r}")
    if not value >= 0:
        raise ValueError(f"{name} must be 0 or more seconds, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a number of seconds that a float can hold") from None


def checked_wait(name: str, value: object) -> float | None:
    """Checks the seconds for which a caller waits; negative numbers are accepted, as in the standard library."""
    if value is None:
        return None
    try:
        seconds = math.copysign(cast("float", value), cast("float", value))  # Any real number; no string.
    except TypeError:
        raise TypeError(f"{name} must be a number of seconds or None, not {value!r}") from None
    except OverflowError:
        raise ValueError(f"{name} must be a number of seconds that a float can hold") from None
    if seconds != seconds:
        raise ValueError(f"{name} must be a number of seconds or None, not {value!r}")
    return seconds


def checked_switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return value


def checked_limit(name: str, value: object) -> float | None:
    return None if value is None else checked_seconds(name, value, " or None")


def checked_span(name: str, value: object) -> float | None:
    """Checks seconds that must be some: with none the thing that they limit could not begin."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value <= 0:
        raise ValueError(f"{name} must be more than 0 seconds, or None for no limit, not {value!r}")
    return checked_limit(name, value)


def checked_name(name: str, value: object) -> str | None:
    """Checks a name that may be missing; it goes to the system and to other processes as UTF-8."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text or None, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be a text that UTF-8 can encode, not {value!r}") from None
    return value


def checked_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        *first, last = map(repr, choices)
        raise ValueError(f"{name} must be {', '.join(first)} or {last}, not {value!r}")


def unknown_argument(call: str, name: str, known: tuple[str, ...], ours: str | None) -> TypeError:
    """Makes the error for an argument that a call does not have; `ours` is what Ropewalk has instead."""
    if ours is not None:
        return TypeError(f"{call}() has no argument {name!r}: Ropewalk has {ours}")
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    meant = f": did you mean {close[0]}=?" if close else f". It has {', '.join(known)}"
    return TypeError(f"{call}() got an unexpected keyword argument {name!r}{meant}")


def refuse_unknown_argument(
    call: str, unknown: Mapping[str, object], known: tuple[str, ...], spellings: Mapping[str, str]
) -> Never:
    """Raises for the first of the arguments that a call does not have; `spellings` has those of other libraries.

    Raises:
        TypeError: always.
    """
    name = next(iter(unknown))
    raise unknown_argument(call, name, known, spellings.get(name))
