"""The inputs: from the command line, `--glob`, `--jsonl` and `--stdin`, in this order.

A regular file is read twice: first to find a malformed line before any work is done and to count the lines, then to
submit the inputs. A separate thread reads pipes, so that a slow writer does not delay results.
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ropewalk.cli._errors import CommandError
from ropewalk.cli._flags import MapOptions

_AHEAD = (
    1024  # inputs that the reading thread may be ahead; it bounds the memory, and evens out a bursty writer
)


class Inputs:
    """All inputs of a run. `known` has those that can be read again, `stream` those that can be read once."""

    def __init__(
        self, known: tuple[Callable[[], Iterator[Any]], ...], total: int, stream: Iterator[Any] | None
    ) -> None:
        self._known = known
        self._total = total
        self._stream = stream

    @property
    def total(self) -> int | None:
        """Return the number of inputs, or None if it is unknown before the end of the stream."""
        return self._total if self._stream is None else None

    def known(self) -> Iterator[Any]:
        """Return the inputs that can be read before the run; it may be called again."""
        return itertools.chain.from_iterable(open_one() for open_one in self._known)

    @property
    def stream(self) -> Iterator[Any] | None:
        """Return the inputs after the known ones, or None; reading them blocks."""
        return self._stream


class Feed:
    """Returns inputs without blocking.

    `take` returns `(True, value)`, or `(False, None)` if there is no input yet or no input any more; `exhausted` tells
    these apart. The reading thread calls `wake` when an input arrives after a `take` found none.

    The reading thread appends to `_ready`, and the main thread pops; a deque needs no lock for that. `_room` counts the
    free places of `_ready`.
    """

    def __init__(self, inputs: Inputs, wake: Callable[[], None]) -> None:
        self._known = inputs.known()
        self._stream = inputs.stream
        self._known_left = True
        self._wake = wake
        self._ready: deque[Any] = deque()
        self._room = threading.Semaphore(_AHEAD)
        self._ended = threading.Event()
        self._error: CommandError | None = None
        if self._stream is None:
            self._ended.set()
        else:
            threading.Thread(target=self._read, name="ropewalk-inputs", daemon=True).start()

    @property
    def exhausted(self) -> bool:
        """Whether no further input will arrive."""
        return not self._known_left and self._ended.is_set() and not self._ready

    def take(self) -> tuple[bool, Any]:
        """Return the next input, if there is one now.

        Raises:
            CommandError: the stream contains a malformed input, or cannot be read.
        """
        if self._known_left:
            for value in self._known:
                return True, value
            self._known_left = False
        ended = self._ended.is_set()
        try:
            value = self._ready.popleft()
        except IndexError:
            if ended and self._error is not None:
                error, self._error = self._error, None
                raise error from None
            return False, None
        self._room.release()
        return True, value

    def _read(self) -> None:
        assert self._stream is not None
        try:
            for value in self._stream:
                self._room.acquire()
                self._ready.append(value)
                self._wake()
        except CommandError as error:
            self._error = error
        except OSError as error:
            self._error = CommandError(f"the inputs cannot be read any more: {error.strerror}")
        finally:
            self._ended.set()
            self._wake()


def open_inputs(options: MapOptions) -> Inputs:
    """Find all inputs that the options name.

    Raises:
        CommandError: there are no inputs, or a `--jsonl` file cannot be read or has a line that is not JSON.
    """
    known: list[Callable[[], Iterator[Any]]] = [options.inputs.__iter__]
    total = len(options.inputs)
    streams: list[Iterator[Any]] = []
    for pattern in options.glob:
        files = _matching(pattern)
        known.append(files.__iter__)
        total += len(files)
    if options.jsonl is not None:
        path = options.jsonl
        if path != "-" and _is_regular(path):
            total += sum(1 for _ in _json_values(path))
            known.append(lambda: _json_values(path))
        else:
            streams.append(_json_values(path))
    if options.stdin:
        streams.append(_lines())
    if options.null:
        streams.append(_null_ended())
    if not total and not streams:
        raise no_inputs(options)
    return Inputs(tuple(known), total, itertools.chain.from_iterable(streams) if streams else None)


def no_inputs(options: MapOptions) -> CommandError:
    """Make the error of a run without any input."""
    hint = "arguments after the function, --glob, --jsonl, --stdin or --null"
    if options.glob:
        hint = "a pattern in quotes such as 'data/**/*.csv', so that the shell does not expand it"
    return CommandError("there are no inputs" + (": no file matches" if options.glob else ""), hint)


def _matching(pattern: str) -> list[str]:
    found = glob.iglob(os.path.expanduser(pattern), recursive=True)
    return sorted(path for path in found if os.path.isfile(path))


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        raise CommandError(f"--jsonl {path!r} cannot be read: {error.strerror}") from None


def _open(path: str) -> Any:
    # A new reader of standard input: the interpreter flushes sys.stdin at exit, and would abort if a thread were still
    # blocked in it.
    source: str | int = 0 if path == "-" else path
    return open(source, encoding="utf-8", errors="surrogateescape", newline="\n", closefd=path != "-")


def _json_values(path: str) -> Iterator[Any]:
    shown = "standard input" if path == "-" else repr(path)
    try:
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                if line.isspace():
                    continue
                try:
                    yield json.loads(line, parse_constant=_no_constant)
                except (ValueError, RecursionError) as error:
                    raise CommandError(
                        f"line {number} of --jsonl {shown} is not JSON: {error}",
                        "one JSON value on each line; --stdin takes lines as plain text",
                    ) from None
    except OSError as error:
        raise CommandError(f"--jsonl {shown} cannot be read: {error.strerror}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


def _lines() -> Iterator[str]:
    if sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write("ropewalk: reading inputs from the terminal, one on each line; Ctrl-D ends them\n")
    with _open("-") as file:
        for line in file:
            text = line.rstrip("\r\n")
            if text and not text.isspace():
                yield text


def _null_ended() -> Iterator[str]:
    with open(0, "rb", closefd=False) as file:
        rest = b""
        while piece := file.read1(1 << 16):
            *whole, rest = (rest + piece).split(b"\0")
            yield from (os.fsdecode(text) for text in whole if text)
        if rest:
            yield os.fsdecode(rest)
