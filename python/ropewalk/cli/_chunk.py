"""Runs a chunk of inputs in a worker, and writes a record into the chunk's slot as soon as each input is done.

A slot is shared memory that the worker writes and the command reads. It begins with a head: how many inputs are done,
and where the records end. A record is a line of output, the seconds that the call took and, if it failed, the reason.
The worker writes the head after the record that it counts. So a worker that dies loses the input that it was running,
and no earlier result. A run that is killed has written all results but those of the last moment.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ropewalk._target import Place, loaded
from ropewalk.cli._record import Call, Failure, Format, Writer, describe_raised

#: The size of a slot in bytes.
SLOT = 64 * 1024
#: Seconds after which a worker returns the rest of a chunk.
_LONG = 0.05

_HEAD = struct.Struct("<QQ")  # inputs done, end of the records
_RECORD = struct.Struct("<IId")  # bytes of the line, bytes of the failure, seconds in the function


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of a chunk: inputs done, seconds for all of them, and the last record if the slot had no room for it."""

    done: int
    seconds: float
    overflow: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """A record that was read from a slot."""

    line: bytes
    failure: Failure | None
    seconds: float


@dataclass(frozen=True)
class Runner:
    """Calls the function on the inputs of a chunk."""

    place: Place
    format: Format
    or_repr: bool
    star: bool
    keywords: bool
    retries: int
    most_failures: int | None

    def __call__(self, slot: Any, indices: list[int], values: list[Any], attempt: int) -> Answer:
        """Runs inputs until the chunk is done, the slot is full, the time is over or enough inputs have failed."""
        function = loaded(self.place)
        writer = Writer(self.format, self.place.name, or_repr=self.or_repr)
        view = memoryview(slot).cast("B")
        pid = os.getpid()
        end = _HEAD.size
        failures = 0
        start = time.perf_counter()
        for done, (index, value) in enumerate(zip(indices, values, strict=True), 1):
            tried = attempt
            while True:
                failure: Failure | None = None
                result: Any = None
                begun = time.perf_counter()
                try:
                    result = self._call(function, value)
                except BaseException as error:
                    if os.getpid() != pid:
                        raise
                    failure = describe_raised(error, 2)
                seconds = time.perf_counter() - begun
                if failure is None or tried > self.retries:
                    break
                tried += 1
            if (
                os.getpid() != pid
            ):  # The function has forked, and its child returned here; the worker's thread ends the child.
                return Answer(0, 0.0, b"")
            call = Call(value, index, seconds, tried, pid)
            if failure is None:
                line, failure = writer.result(call, result)
                del result
            else:
                line = writer.failure(call, failure)
            why = b"" if failure is None else _pack_failure(failure)
            size = _RECORD.size + len(line) + len(why)
            if end + size > len(view):
                record = _RECORD.pack(len(line), len(why), seconds) + line + why
                return Answer(done, time.perf_counter() - start, record)
            _RECORD.pack_into(view, end, len(line), len(why), seconds)
            at = end + _RECORD.size
            view[at : at + len(line)] = line
            view[at + len(line) : at + len(line) + len(why)] = why
            end += size
            _HEAD.pack_into(view, 0, done, end)
            failures += failure is not None
            if self.most_failures is not None and failures >= self.most_failures:
                return Answer(done, time.perf_counter() - start, b"")
            if time.perf_counter() - start > _LONG:
                return Answer(done, time.perf_counter() - start, b"")
        return Answer(len(values), time.perf_counter() - start, b"")

    def _call(self, function: Callable[..., Any], value: Any) -> Any:
        if not (self.star or self.keywords):
            return function(value)
        given = value
        if isinstance(value, str):
            try:
                given = json.loads(value)
            except ValueError as error:
                raise ValueError(f"the input is not JSON ({error}), and must be {self._wanted}") from None
        if self.star and isinstance(given, list):
            return function(*given)
        if self.keywords and isinstance(given, dict):
            return function(**given)
        raise TypeError(f"the input is JSON, but not {self._wanted}")

    @property
    def _wanted(self) -> str:
        return "an array with --star" if self.star else "an object with --kwargs"


def _pack_failure(failure: Failure) -> bytes:
    return json.dumps([failure.type, failure.message, failure.traceback, failure.code]).encode("ascii")


def clear(slot: Any) -> None:
    """Empties a slot for the next chunk."""
    _HEAD.pack_into(slot, 0, 0, _HEAD.size)


def head(slot: Any) -> tuple[int, int]:
    """Returns how many inputs are done, and where their records end."""
    done, end = _HEAD.unpack_from(slot, 0)
    return done, end


FIRST = _HEAD.size


def read(memory: Any, at: int, end: int) -> Iterator[Record]:
    """Returns the records between two offsets of a slot.

    Raises:
        ValueError: they are malformed; the user's function may have overwritten its worker's memory.
    """
    view = memoryview(memory).cast("B")
    if end > len(view):
        raise ValueError("the records end beyond their slot")
    while at < end:
        if at + _RECORD.size > end:
            raise ValueError("a record is cut off")
        size, why, seconds = _RECORD.unpack_from(view, at)
        at += _RECORD.size
        if at + size + why > end:
            raise ValueError("a record is longer than its slot")
        line = bytes(view[at : at + size])
        failure = Failure(*json.loads(bytes(view[at + size : at + size + why]))) if why else None
        at += size + why
        yield Record(line, failure, seconds)
