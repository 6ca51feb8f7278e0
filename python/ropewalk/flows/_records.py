"""The records of a journal of flows.

A record is a head, and then fields of bytes, each behind its length. What the fields of a kind are is said at the kind.
A record says what has happened, never what is to be done, so that reading all of them in their order gives the state of
all runs.
"""

from __future__ import annotations

import struct
import time
from enum import IntEnum
from typing import NamedTuple

#: The first record.
TITLE = b"ropewalk flows 1\n"
#: The key of records that belong to no step.
NO_KEY = bytes(16)

#: Kind, number of the run, time in seconds since 1970, number of the request that caused the record, key of the step.
_HEAD = struct.Struct("<BIdQ16s")
_SIZE = struct.Struct("<I")
_TRIES = struct.Struct("<Id")


#: A request's number is that of its file, times this, and its number there.
FILE = 1 << 32


class Kind(IntEnum):
    """What has happened."""

    #: A run was started: id, flow, digest of the code, digest of the arguments, packed arguments, id of the run that it
    #: was forked from.
    STARTED = 1
    #: A step has begun to wait, or began a while ago and has not ended: name, form, the time until which it waits, or
    #: nothing.
    BEGAN = 2
    #: A step has finished: name, form, packed result, effects (their number in four bytes, and the packed
    #: list of them) or nothing, `tried`.
    FINISHED = 3
    #: A step has failed after all its attempts: name, form, text of the error, packed error, `tried`.
    FAILED = 4
    #: The next effect of a step was delivered.
    DELIVERED = 5
    #: A delivery has failed and is tried again: text of the error.
    UNDELIVERED = 6
    #: An event has come, for the run whose number the record has, or for all runs: name, packed value.
    EVENT = 7
    #: A run has ended: state, packed result or error, text of the error.
    ENDED = 8
    #: A run that has failed or was cancelled goes on: its failed steps are forgotten.
    RETRIED = 9
    #: A run begins anew: all its steps are forgotten. Digest of the new code.
    RESTARTED = 10
    #: A run goes on with other code: its digest.
    RECODED = 11
    #: A request was refused: its text, and why.
    REFUSED = 12
    #: Requests up to this number were served; it stands in a compacted journal.
    SERVED = 13
    #: So many events of a name were forgotten, since the first: name, number as text.
    FORGOTTEN = 14


class Entry(NamedTuple):
    """A record."""

    kind: Kind
    run: int
    time: float
    #: The number of the request that caused it; 0 if none did.
    request: int
    key: bytes
    fields: tuple[bytes, ...]

    def text(self, index: int) -> str:
        """Returns a field that is text."""
        return self.fields[index].decode(errors="replace")


#: How many fields a record of each kind has.
_FIELDS = {
    Kind.STARTED: 6,
    Kind.BEGAN: 3,
    Kind.FINISHED: 5,
    Kind.FAILED: 5,
    Kind.DELIVERED: 0,
    Kind.UNDELIVERED: 1,
    Kind.EVENT: 2,
    Kind.ENDED: 3,
    Kind.RETRIED: 0,
    Kind.RESTARTED: 1,
    Kind.RECODED: 1,
    Kind.REFUSED: 2,
    Kind.SERVED: 0,
    Kind.FORGOTTEN: 2,
}


def made(
    kind: Kind, run: int = 0, *fields: bytes, key: bytes = NO_KEY, request: int = 0, at: float | None = None
) -> Entry:
    """Makes a record of now."""
    return Entry(kind, run, time.time() if at is None else at, request, key, fields)


def tried(attempts: int, began: float) -> bytes:
    """Returns the field that says how often a step was tried, and when the first time began."""
    return _TRIES.pack(attempts, began)


def tries_of(field: bytes) -> tuple[int, float]:
    """Returns how often a step was tried, and when the first time began."""
    attempts, began = _TRIES.unpack(field)
    return attempts, began


def encoded(entry: Entry) -> bytes:
    """Returns the record's bytes."""
    parts = [_HEAD.pack(entry.kind, entry.run, entry.time, entry.request, entry.key)]
    for field in entry.fields:
        parts += (_SIZE.pack(len(field)), field)
    return b"".join(parts)


def decoded(payload: bytes) -> Entry:
    """Returns the record of these bytes.

    Raises:
        ValueError: they are no record of this version.
    """
    if len(payload) < _HEAD.size:
        raise ValueError(f"a record of {len(payload)} bytes is too short")
    number, run, at, request, key = _HEAD.unpack_from(payload)
    kind = Kind(number)
    fields: list[bytes] = []
    offset = _HEAD.size
    while offset < len(payload):
        start = offset + _SIZE.size
        if start > len(payload):
            raise ValueError("a record ends inside of a field's length")
        (size,) = _SIZE.unpack_from(payload, offset)
        offset = start + size
        if offset > len(payload):
            raise ValueError("a record ends inside of a field")
        fields.append(payload[start:offset])
    if len(fields) != _FIELDS[kind]:
        raise ValueError(f"a record of kind {kind.name} has {len(fields)} fields instead of {_FIELDS[kind]}")
    if kind in (Kind.FINISHED, Kind.FAILED) and len(fields[4]) != _TRIES.size:
        raise ValueError(f"a record of kind {kind.name} does not say how often its step was tried")
    return Entry(kind, run, at, request, key, tuple(fields))
