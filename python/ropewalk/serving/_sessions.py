"""Sessions of tools: a class whose object lives in one worker between calls, and whose methods are the operations.

The gateway opens a session of the pool for each, as an actor's is. Its first task makes the object, the others call
methods, and the last one calls `close`, or `__exit__`. All of them are tasks like those of other tools, so that limits,
cancellation, streams and failures are the same.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import CoroutineType
from typing import Any, cast

from ropewalk._errors import ServingError
from ropewalk.pool.wire._sessions import close, current_session, run_method
from ropewalk.serving._signature import Signature

#: The operation that makes the object, and the one that ends it. A method named `close` is the second.
OPEN, CLOSE = "__init__", "close"
#: What a path and a message of gRPC can both write; Python's names may have more.
_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")
#: Over MCP the methods are tools with this argument beside their own.
_SESSION = "session"


class Session:
    """A class that is a session: what opens it, and its methods, with what callers may pass to each."""

    def __init__(self, marked: Callable[..., Any]) -> None:
        """Reads the class, which `tool` has found to be one.

        Raises:
            ServingError: it has no methods, or callers cannot call one.
            ExtraMissing: neither pydantic nor msgspec is installed.
        """
        self._class = cls = cast("type[Any]", marked)
        self._functions = {OPEN: _constructor(cls), **_methods(cls)}
        if has_end(cls):
            self._functions[CLOSE] = _nothing
        #: What callers may pass to each operation: `OPEN`, the methods, and `CLOSE` if the class has an end.
        self.signatures = {
            name: Signature(function, streams=is_stream(function), is_method=True)
            for name, function in self._functions.items()
        }

    def streams(self, operation: str) -> bool:
        """Whether an operation makes a stream of items."""
        return is_stream(self._functions[operation])

    def qualname(self, operation: str) -> str:
        """Returns the name of an operation in records of tasks, ``Account.deposit``."""
        return f"{self._class.__qualname__}.{operation}"

    def describe(self, operation: str) -> str:
        """Returns the docstring of an operation."""
        return inspect.getdoc(self._functions[operation]) or ""

    def call(self, operation: str) -> Callable[..., Any]:
        """Returns what a worker calls for an operation, within the session's task."""
        cls, method = self._class, self._functions[operation]
        if operation == OPEN:

            def open_it(**given: Any) -> None:
                # A task of this session alone runs here, and before this one there was none.
                current_session().state = cls(**given)

            return open_it
        if operation == CLOSE:

            def close_it() -> None:
                close(current_session())

            return close_it

        def call(**given: Any) -> Any:
            session = current_session()
            value = method(session.state, **given)
            return run_method(session, value) if type(value) is CoroutineType else value

        return call


def is_stream(function: Callable[..., Any]) -> bool:
    """Whether a function is a generator function, plain or asynchronous."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def has_end(cls: type[Any]) -> bool:
    """Whether objects of a class have something to call at their end, as a state of `Pool.session` has it."""
    return callable(getattr(cls, "close", None)) or hasattr(cls, "__exit__")


def _nothing(self: Any) -> None:
    """Ends the session."""


def _constructor(cls: type[Any]) -> Callable[..., Any]:
    made = cast("Any", cls).__init__
    return made if inspect.isfunction(made) else _nothing


def _methods(cls: type[Any]) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for name in dir(cls):
        function = inspect.getattr_static(cls, name)
        if name.startswith("_") or name == CLOSE or not inspect.isfunction(function):
            continue
        if not _NAME.fullmatch(name):
            raise ServingError(
                f"the method {name!r} of the session {cls.__name__!r} has a name that callers cannot write. "
                f"Use up to 64 of the characters A-Z a-z 0-9 _, or begin it with an underscore"
            )
        if _SESSION in list(inspect.signature(function).parameters)[1:]:
            raise ServingError(
                f"the method {name!r} of the session {cls.__name__!r} has a parameter {_SESSION!r}, which names the "
                f"session itself to agents. Give it another name"
            )
        found[name] = function
    if not found:
        raise ServingError(
            f"the session {cls.__name__!r} has no methods: its public methods are what callers call. Give it one"
        )
    return found
