"""Work that ends before the interpreter does: pools that were not shut down, engines that are ending, their threads."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ropewalk import _core
from ropewalk._errors import is_of_shutdown, of_thread
from ropewalk.pool.wire import _logs

if TYPE_CHECKING:
    import asyncio

    from ropewalk.pool.parent._pool import Pool

T = TypeVar("T")


class Maker(Protocol):
    """What makes pools when these are needed, a `Runtime` for instance."""

    def _make_no_more(self) -> None:
        """Makes no pool from now on. It neither waits nor ends a pool that was made."""


class EndLimits(NamedTuple):
    """The limits with which an engine is ended after Ctrl-C."""

    #: Seconds that running tasks are given.
    grace: float
    #: Seconds to wait for the engine's end, `None` for no limit: a process can be ended, a call in C in a thread or an
    #: interpreter cannot.
    wait: float | None


#: Engines whose pool is gone or is being shut down, and whose workers may still run tasks.
ENDING: dict[_core.PoolHandle, EndLimits] = {}
#: Objects that must stay alive for as long as such an engine may start workers.
_KEPT: dict[_core.PoolHandle, list[object]] = {}
#: References to the pools' objects, by the ids of their engines. `weakref.finalize` would do, but Python iterates over
#: all finalizers while it exits, and fails if a daemon thread makes a pool meanwhile.
_REFERENCES: dict[int, weakref.ref[Pool]] = {}
#: The ids of engines whose pool has not been shut down: their accepted tasks are finished before the interpreter exits.
#: A `WeakSet` would do, but a Ctrl-C that comes while it forgets a pool is lost.
_OPEN: set[int] = set()
#: References to the objects that make pools when these are needed, by their ids.
_MAKERS: dict[int, weakref.ref[Maker]] = {}
#: Called last of all, when the interpreter's exit has finished or ended every pool.
LAST: list[Callable[[], None]] = []
#: Signals on which the program's pools are drained: see `_drain`.
DRAINING: set[int] = set()
#: Threads of pools, which the interpreter's exit joins.
THREADS: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def start(thread: threading.Thread) -> None:
    """Starts a thread, and registers it to be joined before the interpreter exits.

    Raises:
        OutOfProcesses: the system has no thread left.
        RuntimeError: the interpreter is ending; this is Python's own error.
    """
    try:
        thread.start()
    except RuntimeError as error:
        if is_of_shutdown(error):
            raise
        raise of_thread(thread.name, error) from error
    THREADS.add(thread)


class Runner(threading.Thread):
    """A thread that runs the tasks of a thread pool."""

    def __init__(self, engine: _core.PoolHandle, target: Callable[..., object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self._engine = engine
        #: Whether it has left the initializer, `warmup` and `probe`, which nothing can end.
        self.serves = False

    def is_lost(self) -> bool:
        """Whether its call goes on though the call's task has ended, by its `task_timeout` for instance."""
        return self.ident in self._engine.given_up()


def join(threads: Iterable[threading.Thread]) -> None:
    """Waits for threads, but for none that is lost in a call that the pool has given up."""
    for thread in threads:
        if thread is threading.current_thread() or (isinstance(thread, Runner) and thread.is_lost()):
            continue
        thread.join()


def in_a_thread(name: str, call: Callable[[], object]) -> asyncio.Future[None]:
    """Runs a blocking call in a new thread, and returns a future of the running event loop for its end.

    It does not use the loop's default executor, because that may be busy, or be the pool that is ending.
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
        except RuntimeError:  # The loop is closed, so no coroutine waits.
            return

    start(threading.Thread(target=run, name=name, daemon=True))
    return done


def abandon_with(
    pool: Pool, engine: _core.PoolHandle, owner: int, kept: list[object], limits: EndLimits
) -> None:
    """Abandons the engine once the pool's object is gone, unless the interpreter is exiting."""

    def gone(_: object) -> None:
        closed(engine)
        _REFERENCES.pop(id(engine), None)
        if not sys.is_finalizing():
            abandon(engine, owner, kept, limits)

    _REFERENCES[id(engine)] = weakref.ref(pool, _core.Finalizer(gone))


def opened(engine: _core.PoolHandle) -> None:
    """Finishes the tasks of the engine's pool at exit, unless the pool is shut down before."""
    _OPEN.add(id(engine))


def closed(engine: _core.PoolHandle) -> None:
    """Forgets an opened pool: it was shut down, or its object is gone."""
    _OPEN.discard(id(engine))


def makes_pools(maker: Maker) -> None:
    """Registers an object that makes pools when these are needed."""
    number = id(maker)

    def gone(_: object) -> None:
        _MAKERS.pop(number, None)

    _MAKERS[number] = weakref.ref(maker, _core.Finalizer(gone))


def makers() -> list[Maker]:
    """Returns the registered objects that are still there."""
    known = [reference() for reference in _snapshot(_MAKERS.values())]
    return [maker for maker in known if maker is not None]


def abandon(engine: _core.PoolHandle, owner: int, kept: list[object], limits: EndLimits) -> None:
    """Closes the engine of a pool whose object is gone: it finishes the accepted tasks, then ends the workers.

    The objects in `kept` stay alive until then, because new workers need them.
    """
    if os.getpid() == owner and not engine.ended:
        engine.close(False)
        if not engine.ended:
            ENDING[engine] = limits
            if kept:
                _KEPT[engine] = kept


def forget_ended() -> None:
    """Drops engines that have ended, and the objects that were kept for their workers."""
    ended = [engine for engine in _snapshot(ENDING) if engine.ended]
    for engine in ended:
        ENDING.pop(engine, None)
        _KEPT.pop(engine, None)


def _snapshot(members: Iterable[T]) -> list[T]:
    """Copies a set to which other threads add: a weak set raises if that happens during the copy."""
    while True:
        try:
            return list(members)
        except RuntimeError:
            continue


def open_pools() -> list[Pool]:
    """Returns this process's pools that were not shut down."""
    references = [_REFERENCES.get(number) for number in _snapshot(_OPEN)]
    known = [reference() for reference in references if reference is not None]
    return [pool for pool in known if pool is not None and not pool._is_forked()]


def ending_engines() -> list[_core.PoolHandle]:
    """Returns the engines that were shut down, or abandoned, and may still run tasks."""
    return _snapshot(ENDING)


def _at_exit() -> None:
    """Finishes the accepted tasks before the interpreter exits, as the standard library does.

    After Ctrl-C it cancels the tasks that wait, and ends those that run after their pool's grace.
    """
    try:
        _finish()
    finally:
        for call in LAST:
            call()


def _finish() -> None:
    pools = open_pools()
    if was_interrupted():
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
    """Ends every pool after its grace. All graces begin at once, and a second interrupt ends the pools immediately."""
    ending = _snapshot(ENDING.items())
    begin = time.monotonic()
    try:
        for pool in pools:
            pool._engine.end(pool._grace)
        for engine, limits in ending:
            engine.end(limits.grace)
        for pool in pools:
            pool._end(begin)
        for engine, limits in ending:
            engine.join(None if limits.wait is None else max(0.0, begin + limits.wait - time.monotonic()))
    except BaseException:
        for engine in (*(pool._engine for pool in pools), *(engine for engine, _ in ending)):
            engine.terminate()
        raise


def was_interrupted() -> bool:
    """Whether the program ends because of Ctrl-C; in a REPL the last exception does not tell, so the answer is no."""
    last = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return isinstance(last, KeyboardInterrupt) and not hasattr(sys, "ps1")


def _register_exit() -> None:
    # It runs before the interpreter joins threads, like the standard library's executors: tasks may start threads.
    register: Callable[[Callable[[], None]], object] | None = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(_at_exit)
    else:
        atexit.register(_at_exit)


_register_exit()


def _forked() -> None:
    THREADS.clear()
    _OPEN.clear()
    _MAKERS.clear()
    ENDING.clear()


os.register_at_fork(after_in_child=_forked)
