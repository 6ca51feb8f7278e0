"""`Future`: the standard library's class, whose condition is made only when it is first needed."""

from __future__ import annotations

import concurrent.futures
import logging
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED, PENDING, RUNNING
from functools import partial
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from ropewalk import _core
from ropewalk.pool.parent._options import FUTURE_METHODS, no_attribute

if TYPE_CHECKING:
    from ropewalk.pool.parent._records import Progress, TaskRecord

T = TypeVar("T")

#: The standard library's own logger, so that its handlers get these messages too.
_LOGGER = logging.getLogger("concurrent.futures")
#: Guards the making of a future's shared part; held for an instruction or two.
_MAKING = threading.Lock()


class _Shared:
    """The part of a future that `wait` and `as_completed` read: `state` changes only under the condition."""

    __slots__ = ("condition", "state", "waiters")

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.waiters: list[Any] = []
        self.state: str | None = None


class Future(_core.FutureBase, concurrent.futures.Future[T]):
    """The result of a task that a pool has taken.

    It is a `concurrent.futures.Future`, and works with `concurrent.futures.wait`, `as_completed` and
    `asyncio.wrap_future`. `result`, `exception` and `add_done_callback` are the standard library's; a thread that
    waits in `result` drives the pool itself. Callbacks run in the pool's collector thread.
    """

    _shared: _Shared | None = None

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        """Raises `RuntimeError`: only a pool can make a future, and it does not call this."""
        raise RuntimeError("only a pool can make a ropewalk.Future")

    # --- attributes that the standard library's functions read ------------------------------------------------------

    def _share(self) -> _Shared:
        shared = self._shared
        if shared is not None:
            return shared
        with _MAKING:
            shared = self._shared
            if shared is not None:
                return shared
            shared = _Shared()
            self._shared = shared
        if not self._watch():
            self._publish()
        return shared

    def _final_state(self) -> str:
        return CANCELLED_AND_NOTIFIED if self._is_cancelled() else FINISHED

    def _publish(self) -> None:
        """Makes the end visible to `wait` and `as_completed`; called when the task is done."""
        shared = self._shared
        if shared is None:
            return
        with shared.condition:
            if shared.state is not None:
                return
            shared.state = self._final_state()
            for waiter in shared.waiters:
                if shared.state == CANCELLED_AND_NOTIFIED:
                    waiter.add_cancelled(self)
                elif self.exception() is not None:
                    waiter.add_exception(self)
                else:
                    waiter.add_result(self)
            shared.condition.notify_all()

    # Type checkers see the standard library's attributes: its `wait` and `as_completed` are declared for futures that
    # have them, and do not accept properties.
    if not TYPE_CHECKING:

        @property
        def _condition(self) -> threading.Condition:
            return self._share().condition

        @property
        def _waiters(self) -> list[Any]:
            return self._share().waiters

        @property
        def _state(self) -> str:
            shared = self._shared
            if shared is not None:
                if shared.state is not None:
                    return shared.state
            elif self._is_done():
                return self._final_state()
            return RUNNING if self._is_running() else PENDING

        @property
        def _result(self) -> Any:
            return None if self._exception is not None else self.result()

        @property
        def _exception(self) -> BaseException | None:
            return None if not self.done() or self.cancelled() else self.exception()

    def _get_snapshot(self) -> tuple[bool, bool, Any, BaseException | None]:
        """Returns done, cancelled, result and exception; `asyncio` of Python 3.14 copies a future from these."""
        if not self.done():
            return False, False, None, None
        if self.cancelled():
            return True, True, None, None
        exception = self.exception()
        return True, False, None if exception is not None else self.result(), exception

    # --- the public face --------------------------------------------------------------------------------------------

    def _no_attribute(self, name: str) -> AttributeError:
        return no_attribute(self, name, FUTURE_METHODS)

    if TYPE_CHECKING:

        def result(self, timeout: float | None = None) -> T: ...

    def __await__(self) -> Generator[Any, None, T]:
        """Waits for the result without blocking the running event loop.

        Cancel safety: a cancelled await cancels the task if it has not started, as `asyncio.wrap_future` does.
        """
        if not self.done():
            yield from _posted(self).__await__()
        return self.result()

    def running(self) -> bool:
        """Whether the task is running now."""
        return self._is_running()

    def cancel(self, *, running: bool = False) -> bool:
        """Cancels the task if it has not started; returns whether it is cancelled.

        With ``running=True`` it also ends a task that runs. A worker process is killed and replaced. In an interpreter
        the task's own code raises `KeyboardInterrupt` at its next step, so a call in C first runs to its end. A task
        that runs in a thread cannot be ended.
        """
        if self._is_cancelled():
            return True
        if not self._cancel(running):
            return False
        self._publish()
        return True

    def request_cancel(self) -> bool:
        """Asks the task to stop; returns whether it is cancelled, or has been asked.

        A task that has not started is cancelled. One that runs goes on, and sees that `CurrentTask.cancelled` is true;
        if it lets the `TaskCancelled` of `CurrentTask.check` pass, the future is cancelled then. It is not run again.
        A task that never looks runs to its end: ``cancel(running=True)`` ends one by force.
        """
        if not self._ask_to_stop():
            return False
        if self._is_cancelled():
            self._publish()
        return True

    @property
    def progress(self) -> Progress | None:
        """What the task has last reported with `CurrentTask.progress`; `None` if it has reported nothing.

        The report of a task that runs is read when this is called. That of a task that has ended stays.
        """
        told = self._progress()
        if told is None:
            return None
        from ropewalk.pool.parent._records import Progress

        return Progress(*told)

    @property
    def task(self) -> TaskRecord | None:
        """The record of the task's run, or `None` while the task is not done."""
        fields = self._record()
        if fields is None:
            return None
        from ropewalk.pool.parent._records import record_of

        return record_of(self._pool_kind, fields)

    def set_running_or_notify_cancel(self) -> bool:
        """Raises `InvalidStateError`: only the pool changes the state of a future."""
        raise concurrent.futures.InvalidStateError("only its pool can change the state of a ropewalk.Future")

    def set_result(self, result: T) -> None:
        """Raises `InvalidStateError`: only the pool sets the result."""
        raise concurrent.futures.InvalidStateError("only its pool can set a ropewalk.Future")

    def set_exception(self, exception: BaseException | None) -> None:
        """Raises `InvalidStateError`: only the pool sets the exception."""
        raise concurrent.futures.InvalidStateError("only its pool can set a ropewalk.Future")

    def __repr__(self) -> str:
        state = {PENDING: "pending", RUNNING: "running", FINISHED: "finished"}.get(self._state, "cancelled")
        if state != "finished":
            return f"<{type(self).__name__} at {id(self):#x} state={state}>"
        exception = self.exception()
        what = (
            f"raised {type(exception).__name__}" if exception else f"returned {type(self.result()).__name__}"
        )
        return f"<{type(self).__name__} at {id(self):#x} state={state} {what}>"


async def _posted(future: Future[Any]) -> None:
    """Returns when a future is done, and cancels it if it is cancelled itself."""
    import asyncio

    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    future.add_done_callback(partial(_core.mailbox_of(loop).post, waiter, None))
    try:
        await waiter
    except asyncio.CancelledError:
        future.cancel()
        raise


def log_callback(future: Future[Any], exception: BaseException) -> None:
    """Logs the exception of a callback as the standard library does."""
    _LOGGER.error("exception calling callback for %r", future, exc_info=exception)


#: The code of asyncio's callback, and the indices of its variables in its closure; `None` before the first search.
_carrier: tuple[CodeType | None, tuple[int, ...]] | None = None


def by_mailbox(callback: FunctionType) -> Callable[[Any], object]:
    """Returns a post to the loop's mailbox in place of asyncio's own done-callback; any other callback as it is.

    `asyncio.wrap_future`, and so `run_in_executor`, add a callback that wakes the loop once for each future. Each
    wake-up makes the collector thread lose the interpreter to the loop's thread, which takes longer than the rest of
    the task.
    """
    global _carrier
    code = callback.__code__
    if code.co_name != "_call_set_state":
        return callback
    if _carrier is None:
        _carrier = _find_carrier(sys.modules.get("asyncio.futures"))
    known, places = _carrier
    if code is not known or callback.__closure__ is None:
        return callback
    closure = callback.__closure__
    set_state, destination, loop = [closure[at].cell_contents for at in places]
    if loop is None:  # The destination is a future that belongs to no loop.
        return callback
    return partial(_core.mailbox_of(loop).post, destination, set_state)


def _find_carrier(futures: Any) -> tuple[CodeType | None, tuple[int, ...]]:
    outer = getattr(getattr(futures, "_chain_future", None), "__code__", None)
    for code in outer.co_consts if outer is not None else ():
        if isinstance(code, CodeType) and code.co_name == "_call_set_state":
            names = ("_set_state", "destination", "dest_loop")
            if all(name in code.co_freevars for name in names):
                return code, tuple(code.co_freevars.index(name) for name in names)
    return None, ()  # Another version of Python, whose callbacks are called as they are.
