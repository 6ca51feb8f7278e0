"""Requests of other processes for the runs of a journal: events, cancellations, retries and forks.

One process writes the journal of the runs. So a request goes into a second journal beside it, which is open only while
a request is written. The process that has the runs reads it, and its record of what it did names the request's number;
thus each request is served once, also over a crash, and stays there while no process has the runs.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
from collections.abc import Iterator
from typing import Any, Literal, TypedDict, cast

from ropewalk._errors import JournalError, JournalLocked
from ropewalk.flows._packed import pickled
from ropewalk.journal import Journal, read

#: What is behind the name of the runs' journal.
SUFFIX = ".requests"
#: Seconds for which a request waits for another one that is being written.
_PATIENCE = 10.0
#: Seconds after which the file is read again although it looks the same: its time is no finer than the clock's tick.
_AGAIN = 2.0

Do = Literal["event", "cancel", "retry", "fork"]


class Request(TypedDict, total=False):
    """A request, as JSON."""

    do: Do
    #: The id of the run.
    id: str
    #: The name of the event.
    name: str
    #: The packed value of the event, in base64.
    value: str
    #: The step from which a fork begins anew, and the id of the fork.
    step: str
    new: str


def event(name: str, value: Any) -> Request:
    """Returns the request for an event."""
    return {"do": "event", "name": name, "value": base64.b64encode(pickled(value)).decode()}


def packed_value(request: Request) -> bytes:
    """Returns the packed value of an event."""
    return base64.b64decode(request["value"])


def post(path: str, request: Request) -> int:
    """Puts a request for the runs of the journal at a path on the disk; returns its number.

    Raises:
        JournalError: it could not be written.
    """
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            journal = Journal(path + SUFFIX)
        except JournalLocked:
            if time.monotonic() > end:
                raise
            time.sleep(0.005)
            continue
        with journal:
            return journal.append(json.dumps(request).encode())


def posted(path: str, after: int) -> Iterator[tuple[int, Request | str]]:
    """Yields the requests with numbers behind `after`; text instead of one that cannot be read."""
    if not os.path.exists(path + SUFFIX):
        return
    for record in read(path + SUFFIX):
        if record.is_snapshot or record.sequence <= after:
            continue
        try:
            request: Any = json.loads(record.payload)
            yield record.sequence, cast("Request", request) if isinstance(request, dict) else repr(request)
        except ValueError:
            yield record.sequence, repr(record.payload[:100])


class Posted:
    """The requests for one journal, looked at again and again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._seen_at = 0.0

    def news(self, after: int) -> list[tuple[int, Request | str]]:
        """Returns the requests behind number `after`; it reads only if the file was written since.

        Raises:
            JournalError: it cannot be read.
        """
        try:
            status = os.stat(self._path + SUFFIX)
        except OSError:
            return []
        looks = (status.st_ino, status.st_size, status.st_mtime_ns)
        now = time.monotonic()
        if looks == self._seen and now < self._seen_at + _AGAIN:
            return []
        self._seen, self._seen_at = looks, now
        return list(posted(self._path, after))

    def tidy(self, served: int) -> None:
        """Empties the file if all requests were served and none is being written."""
        with contextlib.suppress(JournalError):
            if os.path.exists(self._path + SUFFIX):
                with Journal(self._path + SUFFIX) as journal:
                    if journal.last <= served:
                        journal.compact([b""])
