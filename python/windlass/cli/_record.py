"""One line of output: what became of one input."""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an input failed. `code` is Windlass's own stable name of the trouble, None for the function's exceptions."""

    type: str
    message: str
    traceback: str
    code: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """Which input, run by whom: what a line says besides the result. None where it never ran."""

    value: Any
    index: int
    function: str
    seconds: float | None
    attempt: int | None
    worker: int | None


def describe(error: BaseException) -> Failure:
    """Turn an exception into what a record says of it; the traceback is the worker's if there is one."""
    from windlass import WindlassError

    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    cause = error.__cause__
    if cause is not None and type(cause).__name__ == "RemoteTraceback":
        text = str(cause).strip().removeprefix('"""').removesuffix('"""').strip("\n")
    else:
        text = "".join(traceback.format_exception(error)).rstrip()
    code = getattr(error, "code", None) if isinstance(error, WindlassError) else None
    return Failure(name, str(error), text, code if isinstance(code, str) else None)


def line_of_result(call: Call, result: Any, *, or_repr: bool) -> tuple[bytes, Failure | None]:
    """The line for a call that returned; with a failure instead if JSON cannot hold the result and `or_repr` is off."""
    try:
        text = _dumps(result)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        if not or_repr:
            failure = Failure(
                "ResultNotJSON",
                f"the result, of type {type(result).__name__}, cannot be written as JSON ({error});"
                " return plain dicts, lists, strings and finite numbers, or give --repr",
                "",
                "result-not-json",
            )
            return line_of_failure(call, failure), failure
        return _line(call, f'"ok": true, "result": {_dumps(_safe_repr(result))}, "repr": true'), None
    return _line(call, f'"ok": true, "result": {text}'), None


def line_of_failure(call: Call, failure: Failure) -> bytes:
    """The line for a call that failed."""
    error = {
        "type": failure.type,
        "message": failure.message,
        "traceback": failure.traceback,
        "code": failure.code,
    }
    return _line(call, f'"ok": false, "error": {_dumps(error)}')


def _line(call: Call, outcome: str) -> bytes:
    seconds = None if call.seconds is None else round(call.seconds, 9)
    return (
        f'{{"input": {json.dumps(call.value)}, "index": {call.index}, "function": {_dumps(call.function)}, {outcome},'
        f' "seconds": {_dumps(seconds)}, "attempt": {_dumps(call.attempt)}, "worker": {_dumps(call.worker)}}}\n'
    ).encode("ascii")


def _dumps(value: Any) -> str:
    # NaN and infinity are not JSON, and a file with them in it is one that other programs cannot read.
    return json.dumps(value, allow_nan=False)


def _safe_repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__} whose repr() raised {type(error).__name__}>"
