"""Conversions of text and bytes that programs needed for Python 2; deprecated, as in pyzmq."""

from __future__ import annotations

import builtins
import warnings

bytes = builtins.bytes
unicode = str
basestring = (str,)


def cast_bytes(s: str | bytes, encoding: str = "utf8", errors: str = "strict") -> bytes:
    """Return text encoded, and bytes as they are."""
    _warn()
    if isinstance(s, str):
        return s.encode(encoding, errors)
    return _checked(s)


def cast_unicode(s: str | bytes, encoding: str = "utf8", errors: str = "strict") -> str:
    """Return bytes decoded, and text as it is."""
    _warn()
    return s if isinstance(s, str) else _checked(s).decode(encoding, errors)


def _checked(s: object) -> bytes:
    if isinstance(s, bytes):
        return s
    raise TypeError(f"Expected unicode or bytes, got {s!r}")


def _warn() -> None:
    warnings.warn("zmq.utils.strtypes is deprecated in pyzmq 23.", DeprecationWarning, stacklevel=3)


b = asbytes = cast_bytes
u = cast_unicode

__all__ = ["asbytes", "b", "basestring", "bytes", "cast_bytes", "cast_unicode", "u", "unicode"]
