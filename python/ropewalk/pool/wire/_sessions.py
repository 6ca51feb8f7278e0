"""The states of sessions, where their tasks run; and the calls of actors' methods."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Iterator
from types import CoroutineType
from typing import Any, Generic, NoReturn, TypeVar, cast

from ropewalk._load import worker
from ropewalk.pool.wire import _streams

S = TypeVar("S")


class CurrentSession(Generic[S]):
    """The session of a running task, as `current_session` returns it."""

    __slots__ = ("__weakref__", "_runner", "generation", "key", "state")

    #: The session's key; an actor's name.
    key: str | int
    #: The number of this state: it grows each time that the state is made anew.
    generation: int
    #: What `init` returned; `None` without one.
    state: S

    def __init__(self, key: str | int, generation: int, state: S) -> None:
        """For the runtime alone."""
        self.key = key
        self.generation = generation
        self.state = state
        #: Runs the coroutines of an actor's methods; made for the first one.
        self._runner: Any = None

    def __repr__(self) -> str:
        return f"<ropewalk.CurrentSession {self.key!r} generation={self.generation}>"


#: The session of the task that a thread of a thread pool runs.
LOCAL = threading.local()
#: The same in a worker process.
_native = worker.current_session


def current_session() -> CurrentSession[Any]:
    """Returns the session of the task that calls it, with its `key`, `generation` and `state`.

    Threads that the task starts have no session.

    Raises:
        RuntimeError: the caller is no task of a session.
    """
    found: CurrentSession[Any] | None = _native() or getattr(LOCAL, "session", None)
    if found is None:
        raise RuntimeError(
            "there is no session here: current_session() is for tasks that are submitted through Pool.session(...)"
        )
    return found


# --- a state's life ---------------------------------------------------------------------------------------------------


def make(
    init: Callable[..., S] | None, given: tuple[tuple[Any, ...], dict[str, Any], str | int], generation: int
) -> CurrentSession[S | None]:
    """Makes the state of a session; `given` has the arguments of `init` and the session's key."""
    args, kwargs, key = given
    if init is None:
        return CurrentSession(key, generation, None)
    try:
        state = init(*args, **kwargs)
    except Exception as error:
        error.add_note(f"It was raised while the state of session {key!r} was made.")
        raise
    return CurrentSession(key, generation, state)


def close(session: CurrentSession[Any]) -> None:
    """Ends a state that no task will use: calls its `close()`, or else its `__exit__`, if it has one."""
    state, runner = session.state, session._runner
    session.state = session._runner = None
    coroutine = None
    try:
        coroutine = _close(state)
    finally:
        if coroutine is not None or runner is not None:
            _finish_somewhere(coroutine, runner)


def _finish_somewhere(coroutine: Any, runner: Any) -> None:
    """Runs the end of an asynchronous state: in a thread, if this one runs an event loop, which cannot run another."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        threading.Thread(target=_finish, args=(coroutine, runner), name="ropewalk-session-end").start()
    else:
        _finish(coroutine, runner)


def _finish(coroutine: Any, runner: Any) -> None:
    try:
        if coroutine is not None:
            _run(coroutine, runner)
    finally:
        if runner is not None:
            runner.close()


def _close(state: object) -> Any:
    """Calls the end of a state; returns its coroutine, if it is one."""
    if state is None or isinstance(state, type):
        return None
    end: Any = getattr(state, "close", None)
    result: Any
    if callable(end):
        result = end()
    else:
        leave: Any = getattr(type(state), "__exit__", None)
        if leave is None:
            return None
        result = leave(state, None, None, None)
    is_coroutine: bool = isinstance(cast("object", result), CoroutineType)
    return result if is_coroutine else None


def fail_again(error: BaseException) -> NoReturn:
    """Raises the exception of an actor's constructor for a call."""
    raise error


def fail_undecodable(error: BaseException) -> NoReturn:
    """Raises the error for arguments of `init` that could not be unpickled."""
    from ropewalk.pool.wire import _serialize

    raise _serialize.undecodable_arguments(error)


def fail_unannounced() -> NoReturn:
    """Raises for a task of a session that this worker does not know."""
    raise RuntimeError("a worker process received a task of an unknown session")


# --- actors -----------------------------------------------------------------------------------------------------------


def touch() -> None:
    """The first task of an actor: it makes the object, and calls nothing."""


def call_method(name: str, /, *args: Any, **kwargs: Any) -> Any:
    """Calls a method of the actor whose task this is; runs it to its end if it is a coroutine function.

    A worker's compiled code knows this function, and does the same in its place.
    """
    session: CurrentSession[Any] = _native() or LOCAL.session
    result = getattr(session.state, name)(*args, **kwargs)
    return run_method(session, result) if type(result) is CoroutineType else result


def run_method(session: CurrentSession[Any], coroutine: Any) -> Any:
    """Runs the coroutine of an actor's method to its end, on the event loop of its object."""
    if session._runner is None:
        import asyncio

        session._runner = asyncio.Runner()
    return session._runner.run(coroutine)


def _run(coroutine: Any, runner: Any) -> None:
    if runner is not None:
        runner.run(coroutine)
        return
    import asyncio

    asyncio.run(coroutine)


# --- threads of this process ------------------------------------------------------------------------------------------


class LocalSession:
    """The state of a session of a thread pool, which all its threads share."""

    def __init__(
        self,
        key: str | int,
        init: Callable[..., Any] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        once: bool,
        made: Callable[[], int],
    ) -> None:
        """Makes no state yet; `made` is called when there is one, and returns the state's number."""
        self._key = key
        self._number = made
        self._call = init, args, kwargs
        #: Whether `init` is called once only, even if it fails.
        self._once = once
        self._made: CurrentSession[Any] | None = None
        self._failure: BaseException | None = None
        self._making = threading.Lock()

    def _get(self) -> CurrentSession[Any]:
        made = self._made
        if made is not None:
            return made
        with self._making:
            if self._made is None:
                if self._failure is not None:
                    raise self._died(self._failure)
                init, args, kwargs = self._call
                try:
                    made = make(init, (args, kwargs, self._key), 1)
                except BaseException as error:
                    if not self._once:
                        raise
                    self._failure = error
                    raise self._died(error) from error
                made.generation = self._number()
                self._made = made
            return self._made

    def _died(self, error: BaseException) -> BaseException:
        from ropewalk._errors import ActorDied

        made = ActorDied(
            f"the object of the actor {self._key} could not be made: {type(error).__name__}: {error}. "
            f"{ActorDied.remedy}"
        )
        made.__cause__ = error
        return made

    def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Runs a task of the session in this thread."""
        outer = getattr(LOCAL, "session", None)
        LOCAL.session = self._get()
        try:
            return function(*args, **kwargs)
        finally:
            LOCAL.session = outer

    def stream(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Generator[Any, None, None]:
        """Runs a stream of the session in this thread."""
        outer = getattr(LOCAL, "session", None)
        LOCAL.session = self._get()
        try:
            returned = function(*args, **kwargs)
            yield from returned if isinstance(returned, Iterator) else _streams.iterate(returned)
        finally:
            LOCAL.session = outer

    def __del__(self) -> None:
        """Ends the state: the session was closed, and its last task is done."""
        if self._made is not None:
            close(self._made)
