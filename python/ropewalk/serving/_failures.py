"""What a caller reads of an exception that a tool raised."""

from __future__ import annotations

from ropewalk._errors import (
    DecodeError,
    EncodeError,
    FunctionLoadError,
    InternalError,
    RemoteTraceback,
    TaskCancelled,
    ToolError,
)

#: Characters of a message: it travels in a header, for which clients have limits.
_LONGEST = 1000


#: Errors of what carries a call to its tool and its result back.
_OF_CALLS = (DecodeError, EncodeError, FunctionLoadError, InternalError)
#: Characters of a traceback: its end says most.
_LONGEST_TRACEBACK = 16_000


def explain(error: BaseException) -> tuple[str, str, list[tuple[str, str]], str | None, str | None]:
    """Returns the status of a call, by gRPC's names, the message, what is wrong with which field, and the traceback.

    Callers read the class and the message of an exception, and never its traceback, which is for the operator. The last
    is the class of an exception that the log has with its traceback: one that the tool did not raise as an answer.
    """
    return *_explained(error), _traceback(error), _class(error)


def _class(error: BaseException) -> str | None:
    if isinstance(error, (ToolError, TaskCancelled, *_OF_CALLS)):
        return None
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _traceback(error: BaseException) -> str | None:
    cause = error.__cause__
    if not isinstance(cause, RemoteTraceback):
        return None
    text = str(cause).strip().removeprefix('"""').removesuffix('"""').strip("\n")
    return text.encode("utf-8", "replace").decode()[-_LONGEST_TRACEBACK:]


def _explained(error: BaseException) -> tuple[str, str, list[tuple[str, str]]]:
    if isinstance(error, ToolError):
        violations = [(str(field), str(text)) for field, text in error.violations]
        return error.status, _shortened(_text(error)), violations
    if isinstance(error, TaskCancelled):
        return "CANCELLED", "the call was cancelled", []
    if isinstance(error, _OF_CALLS):
        return "INTERNAL", _shortened(str(error)), []
    text = _text(error)
    name = type(error).__name__
    return "UNKNOWN", _shortened(f"{name}: {text}" if text else name), []


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # It is code of the program.
        return ""


def _shortened(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
