"""What is finished before the interpreter leaves: pools that were not shut down, engines that end, their threads."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ropewalk import _core
from ropewalk._errors import is_of_shutdown, of_thread
from ropewalk.pool.wire import _logs

if TYPE_CHECKING:
    import asyncio

    from ropewalk.pool.parent._pool import Pool

T = TypeVar("T")

#: Pools that have not been shut down: their accepted tasks are finished before the interpreter leaves.
OPEN: weakref.WeakSet[Pool] = weakref.WeakSet()


class Patience(NamedTuple):
    """How an engine is ended after Ctrl-C."""

    #: Seconds that what runs is given.
    grace: float
    #: Seconds for which its end is waited for; a call in a thread cannot be ended, a worker process can.
    wait: float | None


#: Engines whose pool is gone or is being shut down, but whose workers may be at work.
ENDING: dict[_core.PoolHandle, Patience] = {}
#: What new workers of such an engine have only for as long as it is here.
_KEPT: dict[_core.PoolHandle, list[object]] = {}
#: Threads of pools: they finish what they have before the interpreter goes.
THREADS: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def start(thread: threading.Thread) -> None:
    """Starts a thread that is joined before the interpreter leaves; only a started one can be joined.

    Raises:
        OutOfProcesses: if the system has no thread left.
        RuntimeError: if the interpreter is ending; what Python has raised.
    """
    try:
        thread.start()
    except RuntimeError as error:
        if is_of_shutdown(error):
            raise
        raise of_thread(thread.name, error) from error
    THREADS.add(thread)


def join(threads: Iterable[threading.Thread]) -> None:
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join()


def in_a_thread(name: str, call: Callable[[], object]) -> asyncio.Future[None]:
    """Runs something that blocks in a thread of its own; a future of the running event loop says when it is done.

    Not in the loop's executor: that may be busy, or be the very pool that is being left.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error = None
        try:
            call()
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(settle, error)
        except RuntimeError:  # The loop is closed: nobody waits any more.
            return

    start(threading.Thread(target=run, name=name, daemon=True))
    return done


def abandon(engine: _core.PoolHandle, owner: int, kept: list[object], patience: Patience) -> None:
    """The pool object is gone: what it accepted is finished, then its workers leave.

    What new workers need is `kept` until then.
    """
    if os.getpid() == owner and not engine.ended:
        engine.close(False)
        if not engine.ended:
            ENDING[engine] = patience
            if kept:
                _KEPT[engine] = kept


def forget_ended() -> None:
    """Lets go of engines that have ended, and of what was kept for their workers."""
    ended = [engine for engine in _snapshot(ENDING) if engine.ended]
    for engine in ended:
        ENDING.pop(engine, None)
        _KEPT.pop(engine, None)


def _snapshot(members: Iterable[T]) -> list[T]:
    """What is in a set that other threads add to: a weak one raises when that happens while it is copied."""
    while True:
        try:
            return list(members)
        except RuntimeError:
            continue


def _at_exit() -> None:
    """Finishes what was accepted, as the standard library does, before the interpreter goes.

    After Ctrl-C nobody waits for that: what waits is cancelled, and what runs is ended after its pool's grace.
    """
    pools = [pool for pool in _snapshot(OPEN) if not pool._is_forked()]
    if _was_interrupted():
        _end(pools)
        return
    try:
        for pool in pools:
            pool.shutdown(wait=True)
        for engine in _snapshot(ENDING):
            engine.join()
        join(_snapshot(THREADS))
        _logs.drain()
    except BaseException:
        _end(pools)
        raise


def _end(pools: list[Pool]) -> None:
    """Ends every pool after its grace, which is the same stretch of time for all; a second interrupt ends them now."""
    ending = _snapshot(ENDING.items())
    try:
        for pool in pools:
            pool._engine.end(pool._grace)
        for engine, patience in ending:
            engine.end(patience.grace)
        for pool in pools:
            pool._end()
        for engine, patience in ending:
            engine.join(patience.wait)
    except BaseException:
        for engine in (*(pool._engine for pool in pools), *(engine for engine, _ in ending)):
            engine.terminate()
        raise


def _was_interrupted() -> bool:
    """Whether the program ends because of Ctrl-C. What a REPL has printed before is none of its business."""
    last = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return isinstance(last, KeyboardInterrupt) and not hasattr(sys, "ps1")


def _register_exit() -> None:
    # Before the threads are joined, like the standard library's own executors: tasks may still start threads.
    register: Callable[[Callable[[], None]], object] | None = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(_at_exit)
    else:
        atexit.register(_at_exit)


_register_exit()


def _forked() -> None:
    THREADS.clear()
    OPEN.clear()
    ENDING.clear()


os.register_at_fork(after_in_child=_forked)
