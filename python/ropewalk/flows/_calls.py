"""The steps that an execution runs, until they have an outcome."""

from __future__ import annotations

import heapq
import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import lru_cache
from typing import Any

from ropewalk._keys import key_of
from ropewalk._step import StepCall, call, raise_of_step
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
            raise_of_step(error)
        finally:
            # Its traceback refers to this frame.
            del error


def named_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what runs a step of a function, under the function's name: errors and records of pools show that."""
    name: str = getattr(function, "__qualname__", "") or type(function).__qualname__
    module: Any = getattr(function, "__module__", None)
    return _renamed(module if isinstance(module, str) else type(function).__module__, name)


@lru_cache(maxsize=1024)
def _renamed(module: str, name: str) -> Callable[..., Any]:
    # Only pools of Ropewalk's need it, and they have loaded it.
    from ropewalk.pool.wire._functions import Renamed

    return Renamed(call, module, name)


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
