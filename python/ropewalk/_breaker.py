"""`CircuitBreaker`: stops calling what keeps failing, and tries it again after a while.

Source: Nygard, "Release It!" (2007), chapter "Stability Patterns".
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Never, ParamSpec, TypeVar, cast

from ropewalk._checked import checked_count, checked_seconds, refuse_unknown_argument
from ropewalk._errors import BusError, CircuitOpen, PublishTooDeep
from ropewalk._retried import On, is_retried
from ropewalk._retry import checked_on, is_coroutine_function, is_generator_function, refuse_coroutine

P = ParamSpec("P")
T = TypeVar("T")

State = Literal["closed", "open", "half-open"]

_NUMBERS = itertools.count()
_TOPICS: dict[State, str] = {
    "closed": "breaker.closed",
    "open": "breaker.opened",
    "half-open": "breaker.half_open",
}

#: Arguments of other libraries, and what `CircuitBreaker` has instead.
_SPELLINGS = {
    "fail_max": "failures=",
    "failure_threshold": "failures=",
    "max_failures": "failures=",
    "threshold": "failures=",
    "period": "window=",
    "time_window": "window=",
    "timeout": "reset=",
    "reset_timeout": "reset=",
    "timeout_duration": "reset=",
    "recovery_timeout": "reset=",
    "success_threshold": "half_open=",
    "half_open_max_calls": "half_open=",
    "expected_exception": "on=",
    "exceptions": "on=",
    "exclude": "on=, a predicate of the exception for instance",
    "listeners": "ropewalk.events, with the topics breaker.*",
}


@dataclass(frozen=True, slots=True)
class BreakerStatistics:
    """A snapshot of a circuit breaker; totals run from its making."""

    #: Its name.
    name: str
    #: ``"closed"``, ``"open"`` or ``"half-open"``.
    state: State
    #: Failures within the window, while it is closed.
    failures: int
    #: Calls that returned, or raised what is no failure.
    succeeded: int
    #: Calls that failed.
    failed: int
    #: Calls that were refused with `CircuitOpen`.
    refused: int
    #: How often it opened.
    opened: int
    #: Seconds until it lets a call through again; 0 unless it is open.
    retry_after: float


@dataclass(frozen=True, slots=True)
class BreakerEvent:
    """A change of a circuit breaker's state, on `ropewalk.events`."""

    #: ``"breaker.opened"``, ``"breaker.half_open"`` or ``"breaker.closed"``.
    topic: str
    #: The breaker's name.
    breaker: str
    #: Why: ``"failures"``, ``"trial failed"``, ``"time"``, ``"trials succeeded"``, ``"trip"`` or ``"reset"``.
    reason: str


def _checked_name(name: object) -> str | None:
    if name is None or isinstance(name, str):
        return name
    raise TypeError(f"name must be a text or None, not {name!r}")


#: The breakers in whose ``with`` blocks this context is, and the pass of each.
_entered: ContextVar[tuple[tuple[CircuitBreaker, int], ...]] = ContextVar("ropewalk_breakers", default=())


class CircuitBreaker:
    """Refuses calls while what they call keeps failing: a decorator and a context manager, for sync and async code.

    *Closed*, it lets every call through. After `failures` failures within `window` seconds it is *open*, and refuses
    calls with `CircuitOpen`, which says when to try again. After `reset` seconds it is *half-open*: `half_open` calls
    may go through at once. When as many have succeeded it is closed; the first that fails opens it again.

    Threads, event loops and their tasks may share one. It is the process's own: a breaker that a worker process
    unpickles starts closed. An exception that `on` does not choose shows that the callee answers, and counts as a
    success; a cancellation counts as nothing.

    Args:
        failures: so many failures within the window open it.
        window: seconds for which a failure counts.
        reset: seconds for which it stays open.
        half_open: calls that may be tried at once, and must succeed, before it closes.
        on: what counts as a failure: subclasses of `Exception`, or a predicate of the exception.
        name: its name in errors and events.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> import ropewalk
        >>> breaker = ropewalk.CircuitBreaker(failures=2, reset=60, name="search")
        >>> @breaker
        ... def search(text):
        ...     raise ConnectionError
        >>> for _ in range(3):
        ...     try:
        ...         search("x")
        ...     except Exception as error:
        ...         print(type(error).__name__, breaker.state)
        ConnectionError closed
        ConnectionError open
        CircuitOpen open
    """

    def __init__(
        self,
        failures: int = 5,
        *,
        window: float = 60.0,
        reset: float = 30.0,
        half_open: int = 1,
        on: On = Exception,
        name: str | None = None,
        **unknown: Never,
    ) -> None:
        """Checks the arguments; the breaker is closed."""
        if unknown:
            known = ("failures", *(CircuitBreaker.__init__.__kwdefaults__ or ()))
            refuse_unknown_argument("CircuitBreaker", unknown, known, _SPELLINGS)
        if callable(failures):
            raise TypeError(
                f"CircuitBreaker needs parentheses, as in @CircuitBreaker() or @CircuitBreaker(failures=5), not "
                f"{failures!r}"
            )
        self._failures = checked_count("failures", failures, 1, 1_000_000)
        self._window = checked_seconds("window", window)
        self._reset = checked_seconds("reset", reset)
        self._most_trials = checked_count("half_open", half_open, 1, 1_000_000)
        self._on = checked_on(on)
        self._name = _checked_name(name) or f"breaker-{next(_NUMBERS)}"
        # A signal's handler, or a finalizer, may use the breaker in a thread that holds the lock: so it is one that the
        # thread may take again. Nothing else of the program's runs under it.
        self._lock = threading.RLock()
        self._state: State = "closed"
        #: Counts changes of the state. What comes of a call that began before one says nothing about the time after it.
        self._pass = 0
        #: When the last failures were.
        self._recent: deque[float] = deque(maxlen=self._failures)
        #: Since when it has been in its state.
        self._since = 0.0
        #: Whether `trip` has opened it, and not a failure.
        self._is_tripped = False
        self._trials = 0
        self._good_trials = 0
        self._succeeded = self._failed = self._refused = self._opened = 0

    # --- its state ----------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name in errors and events."""
        return self._name

    @property
    def state(self) -> State:
        """``"closed"``, ``"open"`` or ``"half-open"``; open until a call finds that its time is over."""
        return self._state

    def statistics(self) -> BreakerStatistics:
        """Returns a snapshot of its state and its counters."""
        with self._lock:
            now = time.monotonic()
            recent = [at for at in self._recent if now - at <= self._window]
            return BreakerStatistics(
                name=self._name,
                state=self._state,
                failures=len(recent) if self._state == "closed" else 0,
                succeeded=self._succeeded,
                failed=self._failed,
                refused=self._refused,
                opened=self._opened,
                retry_after=self._retry_after(now),
            )

    def trip(self) -> None:
        """Opens it by hand, for `reset` seconds from now."""
        self._tell(self._change("open", "trip"))

    def reset(self) -> None:
        """Closes it by hand, and forgets its failures."""
        self._tell(self._change("closed", "reset"))

    def _retry_after(self, now: float) -> float:
        return max(0.0, self._since + self._reset - now) if self._state == "open" else 0.0

    def _change(self, state: State, reason: str) -> BreakerEvent | None:
        """Changes the state; returns the event that is to be published without the lock."""
        with self._lock:
            before, self._state = self._state, state
            self._since = time.monotonic()
            self._pass += 1
            if state != "half-open":
                self._is_tripped = reason == "trip"
            self._recent.clear()
            self._trials = self._good_trials = 0
            if before == state:
                return None
            if state == "open":
                self._opened += 1
        return BreakerEvent(_TOPICS[state], self._name, reason)

    @staticmethod
    def _tell(event: BreakerEvent | None) -> None:
        # Nobody listens if the bus was never loaded; a worker must not load it for this.
        module = sys.modules.get("ropewalk.pool.parent._events")
        if event is not None and module is not None:
            # A listener that has no room misses it: the caller's own outcome is what counts here.
            with contextlib.suppress(BusError, PublishTooDeep):
                module.events.publish_nowait(event.topic, event)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _admit(self) -> int:
        """Lets a call through, and returns the pass with which its outcome counts.

        Raises:
            CircuitOpen: it is open, or half-open with enough trials under way.
        """
        event = None
        with self._lock:
            now = time.monotonic()
            if self._state == "open" and now >= self._since + self._reset:
                event = self._change("half-open", "time")
            elif (
                self._state == "half-open"
                and self._trials >= self._most_trials
                and now >= self._since + self._reset
            ):
                # The outcomes of its trials may never come: others are tried.
                self._change("half-open", "time")
            number = self._pass
            after = self._retry_after(now)
            refused = self._state == "open"
            if self._state == "half-open":
                if self._trials >= self._most_trials:
                    refused = True
                    after = max(0.0, self._since + self._reset - now)
                else:
                    self._trials += 1
            if refused:
                self._refused += 1
            why = "trip() has opened it" if self._is_tripped else "what it guards keeps failing"
        self._tell(event)
        if refused:
            raise self._error(after, why)
        return number

    def _error(self, after: float, why: str) -> CircuitOpen:
        error = CircuitOpen(
            f"the circuit breaker {self._name!r} is open, because {why}: try again in {after:.3g} s. "
            f"{CircuitOpen.remedy}"
        )
        error.breaker = self._name
        error.retry_after = after
        return error

    def _finish(self, number: int, error: BaseException | None) -> None:
        """Takes note of the outcome of a call."""
        # A predicate is the program's code: it is called before the lock is taken.
        failed = error is not None and is_retried(self._on, error)
        judged = error is None or isinstance(error, Exception)
        event = None
        with self._lock:
            if failed:
                self._failed += 1
            elif judged:
                self._succeeded += 1
            if number != self._pass:
                return
            if self._state == "half-open":
                self._trials -= not failed
                self._good_trials += judged and not failed
                if failed:
                    event = self._change("open", "trial failed")
                elif self._good_trials >= self._most_trials:
                    event = self._change("closed", "trials succeeded")
            elif failed and self._state == "closed":
                now = time.monotonic()
                self._recent.append(now)
                if len(self._recent) == self._failures and now - self._recent[0] <= self._window:
                    event = self._change("open", "failures")
        self._tell(event)

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function, unless the breaker is open.

        Raises:
            CircuitOpen: the breaker refuses the call.
        """
        number = self._admit()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            self._finish(number, error)
            raise
        self._finish(number, None)
        refuse_coroutine(result)
        return result

    async def call_async(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Awaits a coroutine function, unless the breaker is open.

        Cancel safety: a cancellation is no failure and no success.

        Raises:
            CircuitOpen: the breaker refuses the call.
        """
        number = self._admit()
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            self._finish(number, error)
            raise
        self._finish(number, None)
        return result

    def __call__(self, function: Callable[P, T], /) -> Callable[P, T]:
        """Returns a function that goes through the breaker with each call; for a coroutine function, one.

        Raises:
            TypeError: it is no callable, or it is a generator function, whose call cannot fail.
        """
        if not callable(function):
            raise TypeError(f"CircuitBreaker decorates a function, not {function!r}")
        if is_generator_function(function):
            raise TypeError(
                f"CircuitBreaker cannot decorate the generator function {function!r}: its call does not fail. Use "
                "`with breaker:` in it."
            )
        if is_coroutine_function(function):
            awaited = cast("Callable[P, Awaitable[Any]]", function)

            @functools.wraps(function)
            async def guarded_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                return await self.call_async(awaited, *args, **kwargs)

            return cast("Callable[P, T]", guarded_async)

        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            return self.call(function, *args, **kwargs)

        return guarded

    def __enter__(self) -> CircuitBreaker:
        """Goes through the breaker.

        Raises:
            CircuitOpen: the breaker refuses.
        """
        number = self._admit()
        _entered.set((*_entered.get(), (self, number)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Takes note of how the block ended."""
        stack = _entered.get()
        for at in range(len(stack) - 1, -1, -1):
            if stack[at][0] is self:
                _entered.set(stack[:at] + stack[at + 1 :])
                self._finish(stack[at][1], value)
                return

    async def __aenter__(self) -> CircuitBreaker:
        """Goes through the breaker, as ``with`` does."""
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Takes note of how the block ended."""
        self.__exit__(kind, value, traceback)

    def __reduce__(self) -> tuple[Any, ...]:
        made = functools.partial(
            CircuitBreaker,
            window=self._window,
            reset=self._reset,
            half_open=self._most_trials,
            on=self._on,
            name=self._name,
        )
        return made, (self._failures,)

    def __repr__(self) -> str:
        return f"<ropewalk.CircuitBreaker {self._name!r} {self._state}>"
