"""`Retry`: how often, when and after which exceptions something is tried again."""

from __future__ import annotations

import functools
import inspect
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from types import CoroutineType
from typing import Any, Literal, Never, ParamSpec, TypeVar, cast

from ropewalk._checked import (
    checked_choice,
    checked_count,
    checked_limit,
    checked_seconds,
    checked_switch,
    refuse_unknown_argument,
)
from ropewalk._retried import On, is_retried, note

P = ParamSpec("P")
T = TypeVar("T")

Jitter = Literal["full", "equal", "decorrelated", "none"]

_JITTERS = ("full", "equal", "decorrelated", "none")
#: What the engine counts in.
_MOST_RETRIES = 2**32 - 1
#: Seconds of the longest delay, whatever `max_delay` is: some 30 years. A thread cannot sleep without end.
_LONGEST = 1e9

_COUNTED = "attempts=, which counts the first time, too"
#: Arguments of other libraries, and what `Retry` has instead.
_SPELLINGS = {
    "max_attempts": "attempts=",
    "tries": "attempts=",
    "max_tries": "attempts=",
    "stop_max_attempt_number": "attempts=",
    "retries": _COUNTED,
    "max_retries": _COUNTED,
    "total": _COUNTED,
    "stop": "attempts= and deadline=",
    "wait": "backoff=, max_delay= and jitter=",
    "delay": "backoff=",
    "base": "backoff=",
    "initial": "backoff=",
    "initial_delay": "backoff=",
    "backoff_factor": "backoff=",
    "max_wait": "max_delay=",
    "max_backoff": "max_delay=",
    "max_time": "deadline=",
    "timeout": "deadline=",
    "retry": "on=",
    "retry_on": "on=",
    "exception": "on=",
    "exceptions": "on=",
    "reraise": "nothing: the last exception is raised as it is",
}

#: How the note on the tries begins.
_TRIED = "ropewalk.Retry tried "

#: Of the system, so that programs with equal seeds and forked processes do not come back together.
_RANDOM = random.SystemRandom()


def checked_on(on: object) -> On:
    """Checks the classes, or the predicate, by which exceptions are chosen."""
    given: Any = on
    classes: list[Any] = [*given] if type(given) is tuple else [given]
    if all(isinstance(one, type) for one in classes):
        for one in classes:
            if not issubclass(one, Exception):
                hint = ""
                if issubclass(one, BaseException):
                    hint = ": a cancellation and the end of the program are never tried again"
                raise TypeError(f"on must be subclasses of Exception, or a predicate, not {one!r}{hint}")
        if not classes:
            raise ValueError("on must be one class of exceptions or more, not ()")
        return cast("On", on)
    if not callable(on):
        raise TypeError(f"on must be subclasses of Exception, or a predicate, not {on!r}")
    return cast("On", on)


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """A policy of retries: a decorator for functions and coroutine functions, and a setting of a pool's tasks.

    The delays double from one try to the next. `jitter` spreads them, so that callers that failed together do not come
    back together: ``"full"`` between 0 and the delay, ``"equal"`` between its half and its whole, ``"decorrelated"``
    between the first delay and three times the last one, ``"none"`` not at all.

    A cancellation (`asyncio.CancelledError`), `KeyboardInterrupt` and `SystemExit` are never tried again.

    Args:
        attempts: how often it is tried at most, the first time included; `None` for no limit.
        backoff: seconds before the second try; 0 for no delays.
        max_delay: the longest delay in seconds.
        jitter: how the delays are spread.
        on: after which exceptions it is tried again: subclasses of `Exception`, or a predicate of the exception.
        deadline: seconds from the first try after which no further one begins. In a pool they count from the
            submission.
        crashes: whether the death of a worker process counts as a failure after which a pool's task is run again. A
            worker that is killed because its task hangs dies, too.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> import ropewalk
        >>> tries = []
        >>> @ropewalk.Retry(attempts=3, backoff=0, on=OSError)
        ... def fetch():
        ...     tries.append("once")
        ...     if len(tries) < 3:
        ...         raise ConnectionError
        ...     return "here"
        >>> fetch(), len(tries)
        ('here', 3)
    """

    attempts: int | None
    _: KW_ONLY
    backoff: float
    max_delay: float
    jitter: Jitter
    on: On
    deadline: float | None
    crashes: bool

    def __init__(
        self,
        attempts: int | None = 3,
        *,
        backoff: float = 0.1,
        max_delay: float = 30.0,
        jitter: Jitter = "full",
        on: On = Exception,
        deadline: float | None = None,
        crashes: bool = True,
        **unknown: Never,
    ) -> None:
        """Checks the arguments."""
        if unknown:
            refuse_unknown_argument("Retry", unknown, tuple(Retry.__dataclass_fields__), _SPELLINGS)
        if callable(attempts):
            raise TypeError(
                f"Retry needs parentheses, as in @Retry() or @Retry(attempts=3), not {attempts!r}"
            )
        if attempts is not None:
            checked_count("attempts", attempts, 1, _MOST_RETRIES)
        checked_seconds("backoff", backoff)
        checked_seconds("max_delay", max_delay)
        checked_choice("jitter", jitter, _JITTERS)
        checked_limit("deadline", deadline)
        checked_switch("crashes", crashes)
        checked_on(on)
        # A frozen object sets its attributes so.
        change = functools.partial(object.__setattr__, self)
        change("attempts", attempts)
        change("backoff", backoff)
        change("max_delay", max_delay)
        change("jitter", jitter)
        change("on", on)
        change("deadline", deadline)
        change("crashes", crashes)

    @property
    def _plan(self) -> tuple[int, float, float, str, float | None, bool, On]:
        """The policy as the engine of a pool reads it."""
        retries = _MOST_RETRIES if self.attempts is None else self.attempts - 1
        return (
            retries,
            float(self.backoff),
            float(self.max_delay),
            self.jitter,
            self.deadline,
            self.crashes,
            self.on,
        )

    def delays(self) -> Iterator[float]:
        """Returns the delays before the second try, the third and so on, in seconds; they differ from call to call.

        The iterator ends where the tries do. It has no end without a limit of attempts.
        """
        # Source: Brooker, "Exponential backoff and jitter" (AWS Architecture Blog, 2015). The engine of a pool does the
        # same for tasks in `crates/pool/src/backoff.rs`.
        delay = last = 0.0
        longest = min(self.max_delay, _LONGEST)
        retries = 0
        while self.attempts is None or retries < self.attempts - 1:
            # `ldexp` overflows where the delay has long been the longest.
            whole = min(longest, self.backoff * 2.0 ** min(retries, 1000)) if self.backoff else 0.0
            match self.jitter:
                case "none":
                    delay = whole
                case "full":
                    delay = _RANDOM.uniform(0.0, whole)
                case "equal":
                    delay = _RANDOM.uniform(whole / 2, whole)
                case "decorrelated":
                    most = min(longest, 3 * max(last, self.backoff))
                    delay = _RANDOM.uniform(min(self.backoff, most), most)
            retries += 1
            last = delay
            yield delay

    def __call__(self, function: Callable[P, T], /) -> Callable[P, T]:
        """Returns a function that tries a function, or a coroutine function, by this policy.

        Raises:
            TypeError: it is no callable, or it is a generator function, whose call raises nothing.
        """
        if not callable(function):
            raise TypeError(f"Retry decorates a function, not {function!r}")
        if is_generator_function(function):
            raise TypeError(
                f"Retry cannot decorate the generator function {function!r}: its call raises nothing, and its body "
                "cannot be resumed. Decorate a function that it calls."
            )
        if is_coroutine_function(function):
            awaited = cast("Callable[P, Awaitable[Any]]", function)

            @functools.wraps(function)
            async def retried_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                return await self.call_async(awaited, *args, **kwargs)

            return cast("Callable[P, T]", retried_async)

        @functools.wraps(function)
        def retried(*args: P.args, **kwargs: P.kwargs) -> T:
            return self.call(function, *args, **kwargs)

        return retried

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function by this policy; the thread sleeps during the delays.

        Raises:
            Exception: the last one that the function raised, with a note on the tries.
        """
        tries = Tries(self)
        while True:
            try:
                result = function(*args, **kwargs)
            except Exception as error:
                delay = tries.delay_after(error)
                if delay is None:
                    raise
            else:
                refuse_coroutine(result)
                return result
            # Outside of the handler, so that a signal's exception here has no context that is not its own.
            time.sleep(delay)

    async def call_async(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Awaits a coroutine function by this policy, as `call` calls a function.

        Cancel safety: a cancellation ends the try, or the delay, and is not tried again.
        """
        import asyncio  # A worker that decorates plain functions does not need it.

        tries = Tries(self)
        while True:
            try:
                return await function(*args, **kwargs)
            except Exception as error:
                delay = tries.delay_after(error)
                if delay is None:
                    raise
            await asyncio.sleep(delay)


def refuse_coroutine(result: object) -> None:
    """Raises `TypeError` if what `call` has called returned a coroutine, whose exceptions `call` does not see."""
    if isinstance(result, CoroutineType):
        result.close()
        raise TypeError(
            f"call runs plain functions, and {result.__qualname__} is a coroutine: await call_async(...) instead"
        )


def is_coroutine_function(function: Callable[..., object]) -> bool:
    """Whether a call of it is awaited: a coroutine function, a partial of one, or an object with such a `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def is_generator_function(function: Callable[..., object]) -> bool:
    """Whether a call of it makes a generator: a generator function, a partial of one, or an object with such a call."""
    while isinstance(function, functools.partial):
        function = function.func
    call = function if inspect.isroutine(function) else type(function).__call__
    return inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call)


class Tries:
    """The tries of one call."""

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self._begin = time.monotonic()
        self._delays = retry.delays()
        self._failures = 0

    def delay_after(self, error: Exception) -> float | None:
        """Returns the seconds until the next try, or `None` if there is none."""
        self._failures += 1
        if not is_retried(self._retry.on, error):
            return None
        delay = next(self._delays, None)
        passed = time.monotonic() - self._begin
        limit = self._retry.deadline
        if delay is None:
            end = "it has no more attempts"
        elif limit is not None and passed + delay >= limit:
            end = f"its deadline of {limit:g} s would pass before the next"
        else:
            return delay
        if self._failures > 1:
            note(error, _TRIED, f"{self._failures} times in {passed:.3g} s: {end}.")
        return None
