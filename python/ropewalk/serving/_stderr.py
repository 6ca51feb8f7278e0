"""Standard error, which may be a pipe that nobody reads: what is written there waits a moment, and never for ever.

A thread that waits in a write holds the lock of its handler, for which the interpreter's exit waits.
"""

from __future__ import annotations

import logging
import os
import select
import sys
from typing import TextIO

#: Milliseconds that a text may wait for its reader, unless the one before it was not taken in time.
_PATIENCE = 1000
#: Bytes that a pipe with room takes at once (`PIPE_BUF`).
_AT_ONCE = 4096


class Stderr:
    """A stream's descriptor, which is asked for with each text: the program may close the stream."""

    def __init__(self, stream: TextIO) -> None:
        stream.fileno()
        self._stream = stream
        self._is_stuck = False
        #: Whether the last text was written in part.
        self._is_torn = False

    def write(self, text: str) -> bool:
        """Writes a text, and returns whether all of it was; it is not where nobody can read it any more."""
        try:
            return self._write(text, self._stream.fileno())
        except (OSError, ValueError):
            return False

    def _write(self, text: str, descriptor: int) -> bool:
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        left = text.encode("utf-8", "backslashreplace")
        if self._is_torn:
            left = b"\n" + left
        begun = False
        while left:
            if not poll.poll(0 if self._is_stuck else _PATIENCE):
                self._is_stuck, self._is_torn = True, begun or self._is_torn
                return False
            left = left[os.write(descriptor, left[:_AT_ONCE]) :]
            begun = True
        self._is_stuck = self._is_torn = False
        return True


def _of(stream: TextIO | None) -> Stderr | None:
    try:
        return None if stream is None else Stderr(stream)
    except (AttributeError, OSError, ValueError):
        return None  # A stream of the program's, without a descriptor.


class _Handler(logging.Handler):
    """Writes records; those that were not read in time are counted, and named once they are read again."""

    def __init__(self, to: Stderr) -> None:
        super().__init__()
        self._to = to
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        try:
            if self._lost and self._to.write(f"{self.format(self._note(record))}\n"):
                self._lost = 0
            if self._lost or not self._to.write(f"{self.format(record)}\n"):
                self._lost += 1
        except RecursionError:
            raise
        except Exception:  # As every handler of `logging` has it.
            self.handleError(record)

    def _note(self, record: logging.LogRecord) -> logging.LogRecord:
        text = "%d records are missing here: nobody read standard error"
        return logging.LogRecord(record.name, logging.WARNING, "", 0, text, (self._lost,), None)


def handler() -> logging.Handler:
    """Returns what writes records to standard error, and drops them while nobody reads it."""
    to = _of(sys.stderr)
    if to is not None:
        return _Handler(to)
    return logging.NullHandler() if sys.stderr is None else logging.StreamHandler(sys.stderr)


def say(text: str) -> None:
    """Writes a line to standard error, if there is one."""
    to = _of(sys.stderr)
    if to is not None:
        to.write(f"{text}\n")
    elif sys.stderr is not None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
