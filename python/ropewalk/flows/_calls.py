"""The steps that an execution runs, until they have an outcome."""

from __future__ import annotations

import heapq
import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from ropewalk._keys import key_of
from ropewalk._step import StepCall
from ropewalk.flows._history import Form, RunHistory
from ropewalk.flows._records import Entry, Kind, made

#: So many results are recorded with one sync at most.
BATCH = 512


class Call:
    """A step that is run, or was."""

    __slots__ = (
        "args",
        "attempts",
        "began",
        "delay",
        "entry",
        "error",
        "form",
        "function",
        "is_interruptible",
        "key",
        "kwargs",
        "name",
        "value",
    )

    def __init__(
        self,
        form: Form,
        name: str,
        key: bytes,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.form: Form = form
        self.name, self.key = name, key
        self.function, self.args, self.kwargs = function, args, kwargs
        self.attempts = 0
        self.began = 0.0
        #: Whether an error may come from the end of the executor.
        self.is_interruptible = False
        #: Seconds until the next attempt.
        self.delay = 0.0
        #: The record of its outcome.
        self.entry: Entry | None = None
        self.value: Any = None
        self.error: Exception | None = None

    def begin_in(self, run: RunHistory) -> Entry:
        """Returns the record of its begin."""
        name, form = self.name.encode(), self.form.encode()
        return made(Kind.BEGAN, run.number, name, form, b"", key=self.key, at=self.began)

    def described(self, run: RunHistory) -> StepCall:
        """Returns what the step says of itself where it runs. Its key there is that of no other run."""
        return StepCall(run.id, self.name, key_of((run.nonce, self.key)).hex(), self.attempts)

    def taken(self) -> Any:
        """Returns the result, or raises the error."""
        if self.error is None:
            return self.value
        error, self.error = self.error, None
        try:
            raise error
        finally:
            # The traceback refers to this frame: what refers to the error would make a cycle of it.
            del error


def next_call(later: list[tuple[float, int, Call]], waiting: Iterator[Call]) -> Call | None:
    """Returns the next step to be submitted, if there is one now."""
    if later and later[0][0] <= time.monotonic():
        return heapq.heappop(later)[2]
    return next(waiting, None)


def arrived(
    arrivals: queue.SimpleQueue[tuple[Call, Future[Any]]], due: float | None, is_flying: bool
) -> list[tuple[Call, Future[Any]]]:
    """Waits for arrivals until a time, and returns those that are there."""
    if not is_flying:
        # Nothing can arrive before the next attempt; a stop is seen between these slices.
        time.sleep(min(max(0.0, (due or 0.0) - time.monotonic()), 0.05))
        return []
    found: list[tuple[Call, Future[Any]]] = []
    try:
        found.append(arrivals.get(timeout=None if due is None else max(0.0, due - time.monotonic())))
        while len(found) < BATCH:
            found.append(arrivals.get_nowait())
    except queue.Empty:
        pass
    return found
