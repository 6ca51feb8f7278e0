"""What a flow's code calls: `step`, `sleep`, `wait_event` and `on_commit`.

These functions find the execution of the run that the calling thread carries on, and leave the work to it. A worker
that imports a module with flows loads this module, so it knows nothing of journals.
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ropewalk._checked import checked_limit, checked_seconds
from ropewalk._errors import FlowError
from ropewalk._retry import Retry, is_coroutine_function
from ropewalk._step import (
    CurrentStep,
    Effect,
    StepCall,
    add_effect,
    call,
    checked_effect,
    current,
    hide_frames,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

T = TypeVar("T")

#: The default of `pool=`: the pool of the flows.
_THEIRS: Any = object()


class Asked(NamedTuple):
    """The function of a step, or of the steps of a map, and how it is run."""

    function: Callable[..., Any]
    retry: Retry
    timeout: float | None
    #: Whether it names a pool; else it runs on that of the flows.
    has_pool: bool
    pool: Executor | None
    name: str | None


class Execution(ABC):
    """What a run's thread offers to its flow's code."""

    @abstractmethod
    def step(self, asked: Asked, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a step, or returns its recorded result."""

    @abstractmethod
    def map(self, asked: Asked, inputs: list[tuple[Any, ...]]) -> list[Any]:
        """Runs a step for each input."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Sleeps for some time from the first call on."""

    @abstractmethod
    def sleep_until(self, when: float) -> None:
        """Sleeps until a time, in seconds since 1970."""

    @abstractmethod
    def wait_event(self, name: str, timeout: float | None, default: Any) -> Any:
        """Waits for the next event of a name."""

    @abstractmethod
    def effect(self, effect: Effect) -> None:
        """Records an effect of the flow itself."""


class _Plain(Execution):
    """Runs everything at once, without a journal."""

    def step(self, asked: Asked, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = asked.function
        name: str = asked.name or getattr(function, "__qualname__", "") or type(function).__qualname__
        described = StepCall("", name, secrets.token_hex(16), 1)
        retried = asked.retry(partial(call, described, function))
        if asked.pool is None:
            value, effects = retried(args, kwargs)
        else:
            value, effects = asked.pool.submit(retried, args, kwargs).result(asked.timeout)
        for effect in effects:
            self.effect(effect)
        return value

    def map(self, asked: Asked, inputs: list[tuple[Any, ...]]) -> list[Any]:
        return [self.step(asked, args, {}) for args in inputs]

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def sleep_until(self, when: float) -> None:
        time.sleep(max(0.0, when - time.time()))

    def wait_event(self, name: str, timeout: float | None, default: Any) -> Any:
        if timeout is None:
            raise FlowError(f"the event {name!r} never comes to a flow that runs without a journal")
        return default

    def effect(self, effect: Effect) -> None:
        function, args, kwargs = effect
        function(*args, **kwargs, key=secrets.token_hex(16))


_EXECUTION: ContextVar[Execution | None] = ContextVar("ropewalk_flow", default=None)


def execution() -> Execution | None:
    """Returns the execution of the run that the calling thread carries on, or `None`; a step is no part of one."""
    found = _EXECUTION.get()
    # A pool's threads run a step with the context of the flow's code, which has submitted it.
    return None if current() is not None and not isinstance(found, _Plain) else found


class carried_on_by:  # noqa: N801 - it is called as a function.
    """Makes an execution the one that the code inside finds."""

    __slots__ = ("_found", "_token")

    def __init__(self, found: Execution | None) -> None:
        self._found = found

    def __enter__(self) -> None:
        self._token = _EXECUTION.set(self._found)

    def __exit__(self, *_: object) -> None:
        _EXECUTION.reset(self._token)


def plainly() -> carried_on_by:
    """Lets the code inside run without a journal."""
    return carried_on_by(_Plain())


def _here(call: str) -> Execution:
    found = execution()
    if found is None:
        where = "in a step" if current() is not None else "outside of a flow"
        raise FlowError(
            f"{call} was called {where}; only the code of a flow, which flows.start() runs, can call it"
        )
    return found


class _Step:
    """The functions `step` and `step.map`."""

    def __call__(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        retries: int | Retry = 0,
        timeout: float | None = None,
        pool: Executor | None = _THEIRS,
        name: str | None = None,
        **kwargs: Any,
    ) -> T:
        """Runs a call once and for all: its result is recorded, and what has a result is not run again.

        A step is known by the function's name, the arguments, and how many equal calls were before it in this run. So
        the order of different steps may change from one version of the flow to the next. The arguments are compared by
        value and have to be picklable; the function may be changed.

        The result is on the disk when `step` returns. If the process ends while the step runs, the step runs again: use
        `current_step().key` to let a service know the second time.

        Args:
            function: what is called, on the pool of the flows or in the flow's thread.
            retries: how often it is tried again after an exception, or a `Retry`. An exception after the last attempt
                is recorded too, and is raised here, also when the run goes on after a crash.
            timeout: seconds after which an attempt ends with `TaskTimeout`; it needs a pool of Ropewalk's.
            pool: the executor that runs it; `None` for the flow's thread.
            name: the step's name in the journal instead of the function's.

        Raises:
            FlowError: no flow runs here.
            TypeError: the arguments have no key, or the result cannot be pickled.
            JournalError: the result could not be recorded; the run stops.
            Exception: what the function raised.
        """
        found = _here("step()")
        asked = _asked(function, retries, timeout, pool, name)
        try:
            result: T = found.step(asked, args, kwargs)
        except Exception as error:
            hide_frames(error)
            raise
        return result

    def map(
        self,
        function: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        retries: int | Retry = 0,
        timeout: float | None = None,
        pool: Executor | None = _THEIRS,
        name: str | None = None,
    ) -> list[T]:
        """Runs a step for each input, all at once on the pool, and returns their results in the inputs' order.

        Each is a step of its own, and is recorded when it has finished. If some fail, the others are waited for and
        recorded, and then the first failure is raised.
        """
        found = _here("step.map()")
        if not iterables:
            raise TypeError("step.map needs an iterable of inputs")
        asked = _asked(function, retries, timeout, pool, name)
        inputs: list[tuple[Any, ...]] = [*zip(*iterables)]  # noqa: B905
        try:
            return found.map(asked, inputs)
        except Exception as error:
            hide_frames(error)
            raise

    def __repr__(self) -> str:
        return "<function step of ropewalk.flows>"


step = _Step()


#: That of a step without settings, of which a flow may have many.
_ONCE = Retry(1)


def _asked(
    function: Callable[..., Any],
    retries: int | Retry,
    timeout: float | None,
    pool: Executor | None,
    name: str | None,
) -> Asked:
    given: Any = function
    if not callable(given):
        raise TypeError(
            f"a step must be callable, not {given!r}; pass the function and its arguments, as in step(f, x)"
        )
    if is_coroutine_function(given):
        raise TypeError(
            f"a step must be a plain function, and {given!r} is an asynchronous one; run it by asyncio.run"
        )
    if retries == 0 and timeout is None and pool is _THEIRS and name is None and type(retries) is int:
        return Asked(given, _ONCE, None, False, None, None)
    if not isinstance(retries, Retry):
        checked_retries: Any = retries
        if type(checked_retries) is not int or retries < 0:
            raise TypeError(f"retries must be a number from 0 on, or a Retry, not {retries!r}")
        retries = Retry(retries + 1)
    checked_limit("timeout", timeout)
    if isinstance(pool, type) or (pool is not None and pool is not _THEIRS and not hasattr(pool, "submit")):
        raise TypeError(f"pool must be an executor, or None for the flow's own thread, not {pool!r}")
    if name is not None and (not isinstance(name, str) or not name):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"name must be text, not {name!r}")
    has_pool = pool is not _THEIRS
    return Asked(given, retries, timeout, has_pool, pool if has_pool else None, name)


def sleep(seconds: float) -> None:
    """Sleeps in a flow, also over the end of the process: the time at which it wakes is recorded.

    A run that sleeps for more than a second takes no thread meanwhile.
    """
    checked_seconds("seconds", seconds)
    _here("sleep()").sleep(float(seconds))


def sleep_until(when: datetime | float) -> None:
    """Sleeps in a flow until a time, also over the end of the process; a time that has passed is no sleep.

    It goes by the system's clock, and follows it when that is set.

    Args:
        when: a `datetime`, local time if it has no zone, or seconds since 1970.
    """
    if isinstance(when, datetime):
        moment = when.timestamp()
    else:
        given: Any = when
        if isinstance(given, (bool, timedelta)) or not isinstance(given, (int, float)) or given != given:
            raise TypeError(
                f"when must be a datetime or seconds since 1970, not {when!r}; sleep() takes a span"
            )
        moment = float(given)
    _here("sleep_until()").sleep_until(moment)


def wait_event(name: str, timeout: float | None = None, default: Any = None) -> Any:
    """Waits in a flow for an event, also over the end of the process, and returns the event's value.

    Events stay: one that was sent before counts too. A wait takes the first event of its name that this run has not
    received; every run has all of them, but for those that were sent to one run.

    Args:
        name: the event's name; `Flows.send`, `ropewalk.flows.send` and `ropewalk flows send` send one.
        timeout: seconds from the first call on; `None` waits without end.
        default: what it returns when the time is over.
    """
    given: Any = name
    if not isinstance(given, str) or not given:
        raise TypeError(f"the name of an event must be text, not {name!r}")
    checked_limit("timeout", timeout)
    return _here("wait_event()").wait_event(name, timeout, default)


def on_commit(function: Callable[..., object], /, *args: Any, **kwargs: Any) -> None:
    """Adds an effect to the step that runs here: a call that follows when the step is recorded, and only then.

    Effects are recorded with the step's result, all or nothing: an attempt that fails leaves none. They are delivered
    in the order of a run's steps, each at least once: after a crash a delivery may be repeated. So the function gets a
    keyword argument ``key``, text that is the same in every delivery of this effect and in no other effect.

    In the code of the flow itself the effect is a step of its own.

    Raises:
        TypeError: the function cannot be called with these arguments and ``key``.
        FlowError: neither a step nor a flow runs here.
    """
    effect = checked_effect(function, args, kwargs)
    running = current()
    if running is not None:
        add_effect(running, effect)
        return
    _here("on_commit()").effect(effect)


def current_step() -> CurrentStep:
    """Returns the step that the calling thread runs.

    Raises:
        FlowError: none does.
    """
    found = current()
    if found is None:
        raise FlowError("current_step() was called where no step runs; the functions of steps can call it")
    return found
