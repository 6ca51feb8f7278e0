"""What other libraries hand over as a context or a socket."""

from __future__ import annotations

from typing import Any


def cast_int_addr(n: Any) -> int:
    """Return a number as it is.

    Raises:
        ValueError: It is none: a C pointer, say, which cannot mean anything here.
    """
    if isinstance(n, int):
        return n
    raise ValueError(f"Cannot cast {n!r} to int")


__all__ = ["cast_int_addr"]
