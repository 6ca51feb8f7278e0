"""The errors of steps and runs in the journal, which are raised again when a run goes on, and shown to the user."""

from __future__ import annotations

import pickle
import traceback
from typing import cast

from ropewalk._errors import RemoteError
from ropewalk.flows._packed import pickled
from ropewalk.flows._secrets import blotted, redacted

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
    """Packs an error; one that pickle cannot rebuild is packed as a `RemoteError` with its text."""
    try:
        packed = pickled(blotted(error))
        if isinstance(pickle.loads(memoryview(packed)[1:]), BaseException):
            return packed
    except Exception:
        pass
    return pickled(RemoteError(text_of(error)))


def unpacked_error(packed: bytes, text: str) -> Exception:
    """Returns the error that was packed, or a `RemoteError` with its text."""
    try:
        return cast("Exception", pickle.loads(memoryview(packed)[1:]))
    except Exception:
        return RemoteError(text)
