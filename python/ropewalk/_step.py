"""The step of a flow that the calling thread runs, for its own code: its key, and the effects that follow its record.

A worker loads this module, so it knows nothing of journals.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn, TypeAlias

_TRACEBACK: Any = vars(BaseException)["__traceback__"]
#: The packages whose frames say nothing of the program's code.
_HIDDEN = ("ropewalk", "concurrent")
#: What is called after the step's record is on the disk: the function, its arguments, its keyword arguments.
Effect: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class StepCall(NamedTuple):
    """What a step says of itself where it runs."""

    run: str
    name: str
    key: str
    attempt: int


class CurrentStep:
    """The step that the calling thread runs; `current_step()` returns it."""

    __slots__ = ("_call", "_effects")

    def __init__(self, call: StepCall) -> None:
        self._call = call
        self._effects: list[Effect] = []

    @property
    def run(self) -> str:
        """The id of the run."""
        return self._call.run

    @property
    def name(self) -> str:
        """The name under which the step is recorded."""
        return self._call.name

    @property
    def key(self) -> str:
        """32 hexadecimal digits that are the same in every attempt of this step, also after a crash, and nowhere else.

        A service that knows idempotency keys does nothing twice if it is given this one.
        """
        return self._call.key

    @property
    def attempt(self) -> int:
        """Which attempt this is: 1 for the first since the program began to run the step."""
        return self._call.attempt

    def __repr__(self) -> str:
        return f"<CurrentStep {self.name} of {self.run!r}, attempt {self.attempt}>"


_CURRENT: ContextVar[CurrentStep | None] = ContextVar("ropewalk_step", default=None)


def current() -> CurrentStep | None:
    """Returns the step that the calling thread runs, or `None`."""
    return _CURRENT.get()


def add_effect(step: CurrentStep, effect: Effect) -> None:
    """Adds what is called after the step's record is on the disk."""
    step._effects.append(effect)


def checked_effect(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Effect:
    """Checks that an effect can be called with these arguments and a key.

    Raises:
        TypeError: it cannot.
    """
    if not callable(function):
        raise TypeError(f"an effect must be callable, not {function!r}")
    if "key" in kwargs:
        raise TypeError("an effect gets its key from Ropewalk; leave the keyword argument key out")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # A builtin function that does not say what it takes.
        return function, args, kwargs
    try:
        signature.bind(*args, **kwargs, key="")
    except TypeError as error:
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"the effect {name}{signature} cannot be called with these arguments and key=: {error}. It is delivered at "
            f"least once, and `key` is how it knows a delivery that it has seen"
        ) from None
    return function, args, kwargs


def hide_frames(error: BaseException, *, wholly: bool = False) -> None:
    """Takes the frames of this package off the beginning of an error's traceback, up to the first of the program's.

    A caller that re-raises the error behind this adds no frame either. An error that has arisen in this package keeps
    its frames, unless a step has raised it, or ``wholly`` says that they do not matter.
    """
    trace = error.__traceback__
    last = trace
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] in _HIDDEN:
        last, trace = trace, trace.tb_next
    if trace is not None or wholly or (last is not None and last.tb_frame.f_code in _SEAMS):
        # By the setter of the base: a class may forbid assignments.
        _TRACEBACK.__set__(error, trace)


def raise_of_step(error: BaseException) -> NoReturn:
    """Raises the error of a step, so that `hide_frames` hides what is above."""
    try:
        raise error
    finally:
        # The traceback refers to this frame: what refers to the error would make a cycle of it.
        del error


def call(
    described: StepCall, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, list[Effect]]:
    """Runs a step; returns its result and its effects."""
    step = CurrentStep(described)
    token = _CURRENT.set(step)
    try:
        return function(*args, **kwargs), step._effects
    except BaseException as error:
        hide_frames(error)
        raise
    finally:
        _CURRENT.reset(token)


_SEAMS = (raise_of_step.__code__, call.__code__)


def deliver(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: str) -> None:
    """Delivers an effect. What it returns nobody takes, so it does not travel."""
    function(*args, **kwargs, key=key)
