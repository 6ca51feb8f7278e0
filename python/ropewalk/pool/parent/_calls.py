"""`Calls`: the functions of the program that a pool's tasks may call, and the threads that run them."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import CoroutineType
from typing import TYPE_CHECKING, Any, cast

from ropewalk._errors import NotExposed
from ropewalk.pool.parent._exit import start

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures

    from ropewalk import _core


#: Seconds after which a thread that waits for a coroutine looks whether its event loop is closed.
_LOOK = 1.0


class _Answering:
    """A call that is being answered; the context of the function, or of its coroutine, has it."""

    __slots__ = ("calls",)

    def __init__(self, calls: Calls) -> None:
        #: `None` once it is answered: what the function has started may have the context for longer.
        self.calls: Calls | None = calls


_ANSWERING: ContextVar[_Answering | None] = ContextVar("_ANSWERING", default=None)


class _Keeper:
    """What a pool's threads have of its functions, which may refer to the pool: its threads must not keep it alive."""

    __slots__ = ("_there", "kept")

    def __init__(self, calls: Calls) -> None:
        self._there = weakref.ref(calls)
        #: Set when the program has dropped the pool.
        self.kept: Calls | None = None

    def get(self) -> Calls:
        calls = self._there() or self.kept
        if calls is None:
            raise NotExposed(f"the pool of this task is gone, and so are its functions. {NotExposed.remedy}")
        return calls


class Calls:
    """The exposed functions of one pool.

    A thread waits for calls. A thread that has taken one makes sure that another waits, before it runs the function: so
    a function may wait for tasks that call others. Threads that find another one waiting end.
    """

    def __init__(self, name: str) -> None:
        self._keeper = _Keeper(self)
        self._name = name
        self._functions: dict[str, Callable[..., Any]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._waiting = 0
        self._started = 0

    def expose(self, name: object, function: object) -> None:
        """Adds a function, in the place of one that had the name.

        Raises:
            TypeError, ValueError: the name is no text or empty, or the function cannot be called.
        """
        if not isinstance(name, str):
            raise TypeError(f"a function is exposed by a name, not by {name!r}")
        if not name:
            raise ValueError("a function is exposed by a name of one character or more")
        if not callable(function):
            raise TypeError(f"calls must name callables: {name!r} is {function!r}")
        self._functions[name] = function

    def expose_all(self, functions: object) -> None:
        """Adds functions by name.

        Raises:
            TypeError, ValueError: see `expose`.
        """
        if not isinstance(functions, Mapping):
            raise TypeError(f"calls must be a mapping of names to functions, not {functions!r}")
        for name, function in cast("Mapping[object, object]", functions).items():
            self.expose(name, function)

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Runs coroutine functions on this event loop from now on."""
        self._loop = loop

    def run(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a function, and waits for it if it is a coroutine function.

        Raises:
            NotExposed: there is no such function.
        """
        function = self._functions.get(name)
        if function is None:
            known = ", ".join(sorted(self._functions)) or "none"
            raise NotExposed(
                f"the program exposes no function {name!r} (it has {known}). {NotExposed.remedy}"
            )
        result: Any = function(*args, **kwargs)
        if not isinstance(cast("object", result), CoroutineType):
            return result
        loop = self._loop
        if loop is None or loop.is_closed():
            result.close()
            raise NotExposed(
                f"{name!r} is a coroutine function, which runs on the event loop that entered the pool by `async "
                f"with`, and none has. Enter the pool so, or expose a plain function."
            )
        import asyncio

        try:
            future: concurrent.futures.Future[Any] = asyncio.run_coroutine_threadsafe(result, loop)
        except RuntimeError:  # It was closed in this moment.
            result.close()
            raise self._loop_closed(name) from None
        while True:
            try:
                return future.result(_LOOK)
            except TimeoutError:
                if future.done():
                    return future.result()
                if loop.is_closed():
                    raise self._loop_closed(name) from None

    def _loop_closed(self, name: str) -> NotExposed:
        return NotExposed(
            f"the event loop on which the coroutine function {name!r} ran was closed before its end"
        )

    def from_threads(self) -> Callable[[str, tuple[Any, ...], dict[str, Any]], Any]:
        """Returns `run` for the threads of a thread pool: it keeps the functions no longer than the pool does."""
        keeper = self._keeper

        def run(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return keeper.get().run(name, args, kwargs)

        return run

    def outlive(self) -> None:
        """Keeps the functions for the tasks of a pool that the program has dropped, until its last thread ends."""
        if self._functions:
            self._keeper.kept = self

    def serve(self, handle: _core.PoolHandle) -> None:
        """Starts the first thread, unless there is one, or the tasks call by themselves."""
        with self._lock:
            if self._started:
                return
        if handle.serve_calls():
            self._start(handle)

    def _start(self, handle: _core.PoolHandle) -> None:
        with self._lock:
            self._waiting += 1
            self._started += 1
            name = f"{self._name}-call-{self._started}"
        try:
            start(threading.Thread(target=_wait, args=(self._keeper, handle), name=name, daemon=True))
        except BaseException:
            with self._lock:
                self._waiting -= 1
                self._started -= 1
            raise

    def _serve_one(self, handle: _core.PoolHandle, call: _core.TaskCall) -> bool:
        """Answers a call; false if another thread waits for the next one."""
        with self._lock:
            self._waiting -= 1
            alone = self._waiting == 0
        if alone:
            # If the system has no thread left, the next call waits for the end of this one.
            with contextlib.suppress(Exception):
                self._start(handle)
        self._answer(call)
        with self._lock:
            if self._waiting > 0:
                return False
            self._waiting += 1
        return True

    def _answer(self, call: _core.TaskCall) -> None:
        answering = _Answering(self)
        before = _ANSWERING.set(answering)
        call.enter()
        try:
            try:
                name, args, kwargs = call.open()
                call.answer(self.run(name, args, kwargs))
            except BaseException as error:
                call.fail(error)
        finally:
            call.leave()
            answering.calls = None
            _ANSWERING.reset(before)

    def is_answering(self) -> bool:
        """Whether the caller is a function that a task of a process pool has called and waits for."""
        answering = _ANSWERING.get()
        return answering is not None and answering.calls is self


def _wait(keeper: _Keeper, handle: _core.PoolHandle) -> None:
    while (call := handle.next_call()) is not None:
        try:
            calls = keeper.get()
        except NotExposed as error:
            call.fail(error)
            del call
            continue
        goes_on = calls._serve_one(handle, call)
        del call, calls
        if not goes_on:
            return
    keeper.kept = None
