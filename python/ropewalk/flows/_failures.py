"""The errors of steps and runs in the journal, which are raised again when a run goes on, and shown to the user."""

from __future__ import annotations

import traceback
from typing import Any, TypeVar, cast

from ropewalk._errors import RemoteError
from ropewalk.flows._packed import pickled
from ropewalk.flows._secrets import are_known, blotted, has_secret, redacted
from ropewalk.pool.wire._exceptions import loads

E = TypeVar("E", bound=BaseException)

_LINKS: dict[str, Any] = {name: vars(BaseException)[name] for name in ("__cause__", "__context__")}
_TRACEBACK: Any = vars(BaseException)["__traceback__"]
_SUPPRESSED: Any = vars(BaseException)["__suppress_context__"]
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
    shown = without_secrets(error)
    if type(found) is type(error):
        return shown
    made = RemoteError(text_of(error))
    made.__cause__ = shown
    return made


def without_secrets(error: E) -> E:
    """Returns an error, or a copy of it, in which the values of secrets are blotted out, also in its causes.

    A cause of which there is no copy is a `RemoteError` with its text; so is the error itself.
    """
    if not are_known():
        return error
    found: dict[int, tuple[BaseException, BaseException]] = {}
    left: list[BaseException] = [error]
    while left:
        one = left.pop()
        if id(one) not in found:
            found[id(one)] = one, _shown(one)
            left += (behind for behind in (one.__cause__, one.__context__) if behind is not None)
    for one, shown in found.values():
        # By the setters of the base: a class may forbid assignments.
        for name, setter in _LINKS.items():
            behind = getattr(one, name)
            if behind is not None and (shown is not one or found[id(behind)][1] is not behind):
                setter.__set__(shown, found[id(behind)][1])
        if shown is not one:
            _TRACEBACK.__set__(shown, one.__traceback__)
            # A cause that is set says that the context is not shown.
            _SUPPRESSED.__set__(shown, one.__suppress_context__)
    return cast("E", found[id(error)][1])


def _shown(error: BaseException) -> BaseException:
    """Returns an error, or a copy without causes if it has the value of a secret."""
    try:
        packed = pickled(error)
        if not has_secret(packed):
            return error
        copy = _loads(pickled(blotted(error)))
        if type(copy) is type(error):
            return copy
    except Exception:
        try:
            text = f"{error} {error.args!r}"
        except Exception:
            text = ""
        if text and redacted(text) == text:
            return error
    return RemoteError(text_of(error))


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
