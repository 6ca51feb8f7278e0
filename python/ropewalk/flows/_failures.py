"""The errors of steps and runs in the journal, which are raised again when a run goes on, and shown to the user."""

from __future__ import annotations

import traceback
from typing import cast

from ropewalk._errors import RemoteError
from ropewalk.flows._packed import pickled
from ropewalk.flows._secrets import blotted, has_secret, redacted
from ropewalk.pool.wire._exceptions import loads

#: Characters of an error's text in the journal.
_LONGEST = 4000


def unrecordable(what: str, name: str, error: Exception) -> TypeError:
    """Returns the error for a result that pickle refuses."""
    made = TypeError(
        f"the {what} {name} has run, and what it returned, or one of its effects, cannot be recorded: {error}. Return "
        f"what can be pickled, for instance a path instead of an open file"
    )
    made.__cause__ = error
    return made


def text_of(error: BaseException) -> str:
    """Returns the type and the message of an error, without the values of secrets, and such that it can be encoded."""
    try:
        text = "".join(traceback.format_exception_only(error)).strip()
    except Exception:  # Its `__str__` has failed.
        text = type(error).__name__
    # The name of a file that is no UTF-8 has surrogates.
    return redacted(text).encode(errors="backslashreplace").decode()[:_LONGEST]


def packed_error(error: BaseException) -> bytes:
    """Packs an error; one that pickle cannot take is packed as a `RemoteError` with its text."""
    try:
        packed = pickled(error)
        if has_secret(packed):
            packed = pickled(blotted(error))
        if type(_loads(packed)) is type(error):
            return packed
    except Exception:
        pass
    return pickled(RemoteError(text_of(error)))


def as_recorded(error: Exception, packed: bytes) -> Exception:
    """Returns an error as the flow gets it when its run goes on, so that it takes the same way the first time."""
    try:
        found = _loads(packed)
    except Exception:
        found = None
    if type(found) is type(error):
        return error
    made = RemoteError(text_of(error))
    made.__cause__ = error
    return made


def unpacked_error(packed: bytes, text: str) -> Exception:
    """Returns the error that was packed, or a `RemoteError` with its text."""
    try:
        return cast("Exception", _loads(packed))
    except Exception:
        return RemoteError(text)


def _loads(packed: bytes) -> BaseException:
    # An exception whose class wants other arguments than it has in `args` is restored too.
    found = loads(memoryview(packed)[1:])
    if not isinstance(found, BaseException):
        raise TypeError(f"no exception, but {type(found).__name__}")
    return found
