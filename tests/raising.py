"""Exceptions that pickle cannot restore, or not completely, and functions that raise them in workers."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any


class Positional(Exception):
    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} failed with {code}")
        self.name = name
        self.code = code


class Keyword(Exception):
    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class Checked(Exception):
    """Its arguments are not what it is made of."""

    def __init__(self, code: int) -> None:
        if not isinstance(code, int):
            raise TypeError("code must be a number")
        super().__init__(f"code {code}")
        self.code = code


class New(Exception):
    def __new__(cls, name: str, code: int) -> New:
        return super().__new__(cls, name)

    def __init__(self, name: str, code: int) -> None:
        super().__init__(name)
        self.code = code


class Slotted(Exception):
    __slots__ = ("code", "unset")

    def __init__(self, *, code: int) -> None:
        super().__init__("slotted")
        self.code = code


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Missing(OSError):
    def __init__(self, path: str, *, code: int) -> None:
        super().__init__(2, "not there", path)
        self.code = code


class Mixed(RuntimeError, OSError):
    """Has the layout of the second base."""

    def __init__(self, *, code: int) -> None:
        super().__init__("mixed")
        self.code = code


class Leaving(BaseException):
    def __init__(self, *, code: int) -> None:
        super().__init__("leaving")
        self.code = code


class Locked(Exception):
    def __init__(self, code: int) -> None:
        super().__init__("locked", code)
        self.lock = threading.Lock()


class Reduced(Exception):
    """Knows how it is made, which is not how pickle would."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name}: {code}")
        self.parts = (name, code)
        self.code = code

    def __reduce__(self) -> Any:
        return Reduced, self.parts


#: Each of them with a code of 7.
MAKERS: dict[str, Callable[[], BaseException]] = {
    "positional": lambda: Positional("it", 7),
    "keyword": lambda: Keyword("text", code=7),
    "checked": lambda: Checked(7),
    "new": lambda: New("it", 7),
    "slotted": lambda: Slotted(code=7),
    "frozen": lambda: Frozen(7),
    "oserror": lambda: Missing("/a/path", code=7),
    "mixed": lambda: Mixed(code=7),
    "base": lambda: Leaving(code=7),
    "reduced": lambda: Reduced("it", 7),
}


def throw(name: str) -> None:
    raise MAKERS[name]()


def make(name: str) -> list[BaseException]:
    return [MAKERS[name]()]


def throw_group() -> None:
    raise ExceptionGroup("many", [Keyword("text", code=7), ExceptionGroup("inner", [Locked(1), Frozen(2)])])


def throw_with_notes() -> None:
    try:
        try:
            raise KeyError("the cause")
        except KeyError as error:
            raise Keyword("text", code=7) from error
    except Keyword as error:
        error.add_note("a note")
        raise


def throw_locked() -> None:
    raise Locked(7)


def describe(errors: list[BaseException]) -> list[tuple[str, str, Any]]:
    """What a worker sees of exceptions that it is given."""
    return [(type(error).__name__, str(error), getattr(error, "code", None)) for error in errors]
