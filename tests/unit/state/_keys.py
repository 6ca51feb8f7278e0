"""Keys for the tests of maps."""

from __future__ import annotations

from collections.abc import Callable


class Hashed:
    """A key with a chosen hash."""

    def __init__(self, name: object, hash_: int = 0) -> None:
        self.name = name
        self.hash_ = hash_

    def __hash__(self) -> int:
        return self.hash_

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, Hashed) else NotImplemented

    def __repr__(self) -> str:
        return f"Hashed({self.name!r}, {self.hash_})"


#: Hashes that meet at the top, further down, at the bottom, and in their folded form.
HASHES = [0, 1, 32, 1 << 10, 1 << 30, 1 << 31, 1 << 32, (1 << 32) | 1, (1 << 40) | (1 << 8), -2, -5]


def fails() -> None:
    raise ZeroDivisionError


class Acts:
    """A key whose comparison does something first."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        self.action()
        return self is other
