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
import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NotRequired, TypedDict, cast

from ropewalk._errors import JournalError, JournalLocked
from ropewalk.flows._records import FILE
from ropewalk.journal import Journal, Record, read

#: What is behind the name of the runs' journal.
SUFFIX = ".requests"
#: Seconds for which a request waits for another one that is being written.
_PATIENCE = 10.0
#: Seconds after which the file is read again although it looks the same: its time is no finer than the clock's tick.
_AGAIN = 2.0

Do = Literal["event", "cancel", "retry", "fork"]


class Request(TypedDict):
    """A request, as JSON."""

    do: Do
    #: The number of this file of requests, in its first record.
    file: NotRequired[int]
    #: The id of the run; for an event that of the run which alone receives it.
    id: NotRequired[str]
    #: The name of the event.
    name: NotRequired[str]
    #: The packed value of the event, in base64.
    value: NotRequired[str]
    #: The step from which a fork begins anew, and the id of the fork.
    step: NotRequired[str]
    new: NotRequired[str]


def event(name: str, packed: bytes, run: str | None) -> Request:
    """Returns the request for an event with a packed value, for all runs or for one."""
    request: Request = {"do": "event", "name": name, "value": base64.b64encode(packed).decode()}
    if run is not None:
        request["id"] = run
    return request


def described(request: Request | str) -> str:
    """Returns a request as text, without the value of an event."""
    if isinstance(request, str):
        return request
    return " ".join(str(value) for key, value in request.items() if key != "value")[:1000]


def packed_value(request: Request) -> bytes:
    """Returns the packed value of an event."""
    return base64.b64decode(request.get("value", ""))


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
            file = next((_file_of(record) for record in journal.records()), None)
            if file is None:
                # Its name sets the requests of this file apart from those of one that was moved away or removed.
                file = secrets.randbelow(FILE - 1) + 1
                journal.append(json.dumps({"file": file}).encode())
            return file * FILE + journal.append(json.dumps(request).encode())


def posted(path: str, served: Mapping[int, int]) -> Iterator[tuple[int, Request | str]]:
    """Yields the requests that were not served; text instead of one that cannot be read."""
    if not os.path.exists(path + SUFFIX):
        return
    records = read(path + SUFFIX)
    file = next((_file_of(record) for record in records), 0)
    for record in records:
        if record.sequence > served.get(file, 0):
            yield file * FILE + record.sequence, _request_of(record.payload)


def is_served(number: int, served: Mapping[int, int]) -> bool:
    """Whether the request of a number was served."""
    file, sequence = divmod(number, FILE)
    return sequence <= served.get(file, 0)


def _file_of(record: Record) -> int:
    """Returns the number of a file, which its first record says."""
    request = _request_of(record.payload)
    number: Any = None if isinstance(request, str) else request.get("file")
    return number if isinstance(number, int) and 0 < number < FILE else 0


def _request_of(payload: bytes) -> Request | str:
    try:
        request: Any = json.loads(payload)
    except (ValueError, RecursionError):
        request = None
    return cast("Request", request) if isinstance(request, dict) else repr(payload[:100])


class Posted:
    """The requests for one journal, looked at again and again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._seen_at = 0.0

    def news(self, served: Mapping[int, int]) -> list[tuple[int, Request | str]]:
        """Returns the requests that were not served; it reads only if the file was written since.

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
        return list(posted(self._path, served))

    def tidy(self, served: Mapping[int, int]) -> None:
        """Empties the file if all requests were served and none is being written."""
        with contextlib.suppress(JournalError):
            if os.path.exists(self._path + SUFFIX):
                with Journal(self._path + SUFFIX) as journal:
                    first = next(journal.records(), None)
                    if first is not None and journal.last <= served.get(_file_of(first), 0):
                        journal.compact([first.payload])
