"""A line of output: the outcome of one input as JSON or CSV. The worker that runs the function makes the line."""

from __future__ import annotations

import csv
import io
import json
import traceback
from dataclasses import dataclass
from typing import Any, Literal

from ropewalk.cli._encode import encode

Format = Literal["jsonl", "csv"]

CSV_COLUMNS = (
    "index", "input", "ok", "result", "error_type", "error_message", "seconds", "attempt", "worker", "function",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why an input failed. `code` is a Ropewalk error's stable code, None for the function's exceptions."""

    type: str
    message: str
    traceback: str
    code: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """The input and its run: the parts of a line beside the result. They are None if the input never ran."""

    value: Any
    index: int
    seconds: float | None
    attempt: int | None
    worker: int | None


def describe_raised(error: BaseException, skip: int) -> Failure:
    """Describe an exception that the function raised; the first `skip` frames of its traceback are Ropewalk's."""
    trace = error.__traceback__
    for _ in range(skip):
        trace = trace.tb_next if trace is not None else None
    text = "".join(traceback.format_exception(type(error), error, trace)).rstrip()
    return Failure(_name(type(error)), _message(error), text, None)


def describe_lost(error: BaseException, call: str) -> Failure:
    """Describe the failure of an input whose call did not return: its worker died, or it timed out.

    `call` describes the user's call; it replaces the error's text for the command's own call of a chunk.
    """
    code = getattr(error, "code", None)
    message = _message(error)
    ours = getattr(error, "call", None)
    if isinstance(ours, str):
        message = message.replace(ours, call)
    return Failure(_name(type(error)), message, "", code if isinstance(code, str) else None)


def _name(kind: type) -> str:
    if kind.__module__ == "builtins":
        return kind.__qualname__
    # Ropewalk's errors have the name under which a program catches them.
    module = "ropewalk" if kind.__module__ == "ropewalk._errors" else kind.__module__
    return f"{module}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return f"<no text: str() of the {type(error).__name__} failed>"


class Writer:
    """Makes lines of one format."""

    def __init__(self, format: Format, function: str, *, or_repr: bool) -> None:
        """Make a writer; lines name the function `function`, and `or_repr` writes a value without JSON as repr()."""
        self._csv = format == "csv"
        self._function = function
        self._function_json = json.dumps(function)
        self._or_repr = or_repr

    @property
    def header(self) -> bytes:
        """Return the text before the first line."""
        return _row(CSV_COLUMNS) if self._csv else b""

    def result(self, call: Call, result: Any) -> tuple[bytes, Failure | None]:
        """Return the line for a call that returned; a line and a failure if its result cannot be written."""
        shown = False
        try:
            text = encode(result)
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            if not self._or_repr:
                failure = Failure(
                    "ResultNotJSON",
                    f"the result, of type {type(result).__name__}, cannot be written as JSON ({error});"
                    " return plain dicts, lists, strings and finite numbers, or give --repr",
                    "",
                    "result-not-json",
                )
                return self.failure(call, failure), failure
            shown = True
            result = _safe_repr(result)
            text = json.dumps(result)
        if self._csv:
            return self._csv_line(call, "true", result if isinstance(result, str) else text, "", ""), None
        mark = ', "repr": true' if shown else ""
        return self._line(call, f'"ok": true, "result": {text}{mark}'), None

    def failure(self, call: Call, failure: Failure) -> bytes:
        """Return the line for a call that failed."""
        if self._csv:
            return self._csv_line(call, "false", "", failure.type, failure.message)
        error = {
            "type": failure.type,
            "message": failure.message,
            "traceback": failure.traceback,
            "code": failure.code,
        }
        return self._line(call, f'"ok": false, "error": {json.dumps(error)}')

    def _line(self, call: Call, outcome: str) -> bytes:
        return (
            f'{{"input": {json.dumps(call.value)}, "index": {call.index}, "function": {self._function_json},'
            f' {outcome}, "seconds": {_number(call.seconds, "null")}, "attempt": {_number(call.attempt, "null")},'
            f' "worker": {_number(call.worker, "null")}}}\n'
        ).encode("ascii")

    def _csv_line(self, call: Call, ok: str, result: str, error: str, message: str) -> bytes:
        return _row(
            (
                call.index, cell_of(call.value), ok, result, error, message, _number(call.seconds, ""),
                _number(call.attempt, ""), _number(call.worker, ""), self._function,
            )
        )  # fmt: skip


def cell_of(value: Any) -> str:
    """Return an input as a cell of a CSV file: text as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _row(cells: tuple[Any, ...]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue().encode("utf-8", "surrogateescape")


def _number(value: float | None, absent: str) -> str:
    return absent if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)


def _safe_repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__} whose repr() raised {type(error).__name__}>"
