"""Checks of contexts and sockets that other libraries pass as numbers."""

from __future__ import annotations

from typing import Any


def cast_int_addr(n: Any) -> int:
    """Return a number as it is.

    Raises:
        ValueError: It is not a number: a C pointer, for instance, has no meaning here.
    """
    if isinstance(n, int):
        return n
    raise ValueError(f"Cannot cast {n!r} to int")


__all__ = ["cast_int_addr"]
