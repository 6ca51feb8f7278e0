"""The records of calls in Python's `logging`, and how a command writes what is logged."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeAlias

from ropewalk.serving import _stderr

#: The record of a call, as the gateway gives it: its level and time; tool, protocol, status, message and caller; how
#: long it took, waited and ran, in seconds; the process of the worker, attempts and items; its trace and its span; the
#: class of what its tool raised, and the traceback.
Logged: TypeAlias = tuple[
    tuple[int, float],
    tuple[str, str, str, str | None, str | None],
    tuple[float, float | None, float | None],
    tuple[int, int, int],
    tuple[str, str] | None,
    tuple[str, str | None] | None,
]
#: A worker that was ended: its pool and its process; the tool whose call it ran, and whether the time of that was up;
#: how many others of its pool were ended since the record before.
Ended: TypeAlias = tuple[str, int, str, bool, int]

#: The logger of servers.
LOG = logging.getLogger("ropewalk.serving")
#: The status of a call whose arguments are wrong.
_UNFIT = "INVALID_ARGUMENT"
#: The attribute of a record that names the start of workers in which it was made.
_START = "ropewalk_start"
#: Starts that are remembered, and what is said of each: causes may differ by an address or a number.
_MOST_STARTS, _MOST_SAID = 8, 8
# A program without handlers of its own has nothing printed, as `logging` asks of libraries.
LOG.addHandler(logging.NullHandler())


class _Once(logging.Filter):
    """Drops a record of a worker that says what one of another worker of the same start has said."""

    def __init__(self) -> None:
        super().__init__()
        #: Starts whose workers have failed: what they have said. The thread that receives the records has it alone.
        self._said: dict[str, set[tuple[str, str]]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is new; the mark of its start is taken off."""
        start: object = vars(record).get(_START)
        if not isinstance(start, str) or record.process == os.getpid():
            return True
        delattr(record, _START)
        if start not in self._said and len(self._said) >= _MOST_STARTS:
            del self._said[next(iter(self._said))]
        said = self._said.setdefault(start, set())
        text = (record.getMessage(), record.exc_text or "")
        is_new = text not in said and len(said) < _MOST_SAID
        if is_new:
            said.add(text)
        return is_new


#: The logger of the pools, whose records a program without handlers sees on standard error.
_POOLS = logging.getLogger("ropewalk")
_POOLS.addFilter(_Once())
#: What every record has; the rest is what its maker has added.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def write(calls: list[Logged], ended: list[Ended], dropped: int) -> None:
    """Logs calls that are over: the record's attributes say what a line of JSON says; and workers that were ended."""
    for call in calls:
        (
            (level, at),
            (tool, protocol, status, error, caller),
            (took, queued, ran),
            (pid, attempts, items),
            trace,
            raised,
        ) = call
        if not LOG.isEnabledFor(level):
            continue
        if status == _UNFIT:
            # The message repeats names and values of the arguments.
            error = None
        found: dict[str, Any] = {
            "tool": tool,
            "protocol": protocol,
            "caller": caller,
            "status": status,
            "error": error,
            "duration": took,
            "queue_duration": queued,
            "run_duration": ran,
            "worker_pid": pid or None,
            "attempts": attempts or None,
            "items": items or None,
        }
        if trace is not None:
            found["trace_id"], found["span_id"] = trace
        if raised is not None:
            found["exception.type"] = raised[0]
        extra = {key: value for key, value in found.items() if value is not None}
        text = f"{tool} {status} in {took * 1000:.1f} ms by {protocol}"
        if caller:
            text += f" for {caller}"
        if error:
            text += f": {error}"
        record = LOG.makeRecord(LOG.name, level, "", 0, text, (), None, None, extra)
        record.created = at
        if raised is not None:
            record.exc_text = raised[1]
        LOG.handle(record)
    for pool, pid, tool, is_late, others in ended:
        if is_late:
            why = f"a call of {tool} was out of time. Is the deadline of the caller, or of @tool, too short?"
        else:
            why = f"the caller of {tool} had left. A longer @tool(grace=...) lets a call end by itself"
        also = f"; others of the pool that were ended shortly before: {others}" if others else ""
        extra = {"pool": pool, "worker_pid": pid, "tool": tool, "others": others}
        LOG.warning("worker %d of pool %s was ended, because %s%s", pid, pool, why, also, extra=extra)
    if dropped:
        LOG.warning("%d records of calls were dropped: they came faster than they were written", dropped)


def report(what: str, error: BaseException, start: str) -> None:
    """Logs in a worker why it is not fit for tasks; the server's process logs that once for each start of workers."""
    _POOLS.error("%s", what, exc_info=error, extra={_START: start})


def fail(what: str, error: BaseException) -> None:
    """Logs that something failed, and why: the first line of the error, and the others below it, as a traceback is."""
    if not LOG.isEnabledFor(logging.ERROR):
        return
    first, _, others = (str(error) or type(error).__name__).partition("\n")
    record = LOG.makeRecord(LOG.name, logging.ERROR, "", 0, "%s: %s", (what, first), None)
    record.exc_text = others or None
    LOG.handle(record)


class Json(logging.Formatter):
    """A record as one line of JSON, with all that was added to it."""

    def format(self, record: logging.LogRecord) -> str:
        """Writes it; what JSON cannot say is written as text."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception.stacktrace"] = self.formatException(record.exc_info)
        elif record.exc_text:
            # That of a worker comes as a text.
            line["exception.stacktrace"] = record.exc_text
        added = {
            key: value
            for key, value in vars(record).items()
            if key not in _OWN and key not in line and not key.startswith("_ropewalk")
        }
        try:
            return json.dumps(line | added, default=str, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return json.dumps(line | {key: str(value) for key, value in added.items()})


#: What a terminal or a reader of lines would obey: control characters, and the separators of lines.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


#: The same below the line of a record.
_BELOW = {code: text for code, text in _CONTROLS.items() if code != ord("\n")}


class Text(logging.Formatter):
    """A record as one line, and a traceback below it, indented. Callers choose a part of what errors say."""

    def __init__(self) -> None:
        """Begins each line with the program's name."""
        super().__init__("ropewalk: %(levelname)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Writes the line, with control characters as escapes."""
        return super().formatMessage(record).translate(_CONTROLS)

    def format(self, record: logging.LogRecord) -> str:
        """Writes the record: no line of a traceback can look like one of another record."""
        line, *below = super().format(record).split("\n")
        return "\n".join([line, *(f"  {one.translate(_BELOW)}".rstrip() for one in below)])


def formatter(log_format: str) -> logging.Formatter:
    """Returns what writes a record, ``"json"`` or ``"text"``."""
    return Json() if log_format == "json" else Text()


def _writes_to_stderr(handler: logging.Handler) -> bool:
    # A handler of a file is one of a stream, too.
    stream: object = getattr(handler, "stream", None)
    return stream is sys.stderr


@contextmanager
def written(log_format: str | None) -> Generator[None]:
    """Writes what is logged meanwhile to standard error; `None` leaves that to the program."""
    if log_format is None:
        yield
        return
    handler = _stderr.handler()
    handler.setFormatter(formatter(log_format))
    root = logging.getLogger()
    level = LOG.level
    # The program's own handlers of standard error would write each record once more, in another form.
    others = [one for one in root.handlers if _writes_to_stderr(one)]
    for one in others:
        root.removeHandler(one)
    root.addHandler(handler)
    if level == logging.NOTSET:
        # What a call leaves is chosen by the setting `log`.
        LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for one in others:
            root.addHandler(one)
        LOG.setLevel(level)
