"""`Pool`: the standard library's executor over worker processes or threads."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Never, TypeVar

from ropewalk import _core
from ropewalk._checked import checked_choice, checked_count, checked_seconds
from ropewalk._core import private_bytes
from ropewalk.pool.parent._cores import usable_cores
from ropewalk.pool.parent._exit import (
    ENDING,
    THREADS,
    EndLimits,
    abandon_with,
    closed,
    forget_ended,
    in_a_thread,
    join,
    opened,
    start,
)
from ropewalk.pool.parent._future import Future
from ropewalk.pool.parent._map import MapIterator
from ropewalk.pool.parent._options import (
    POOL_METHODS,
    Kind,
    TaskSettings,
    choose_kind,
    no_attribute,
    refuse_unknown,
)
from ropewalk.pool.parent._spawn import depth, spawn_settings, stamps
from ropewalk.pool.parent._statistics import PoolStatistics, WorkerStatistics
from ropewalk.pool.parent._tasks import TaskMethods
from ropewalk.pool.wire import _logs
from ropewalk.pool.wire._handed import Handing

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

_NUMBERS = itertools.count()
#: The zygote receives the descriptors of all threads of a worker in one packet, which bounds their number.
_MOST_THREADS = 200


class Pool(_core.PoolBase, TaskMethods):
    """Runs functions on many cores: a `concurrent.futures.Executor`.

    A *zygote*, a small process that has imported what workers need, forks worker processes on request. They start in
    about a millisecond each, and end with the program. Arguments and results are pickled: functions by reference where
    workers can import them, else by cloudpickle. Large buffers, those of NumPy arrays for instance, travel in shared
    memory and arrive read-only.

    Args:
        workers: worker processes, or threads of a thread pool; by default one for each usable core.
        kind: ``"process"``, ``"thread"``, or ``"auto"``: threads where Python runs without a GIL, else processes. The
            pool's `kind` and `explain` report which kind really runs.
        threads: threads that run tasks in each worker process.
        initializer: called with `initargs` in each worker before its first task. If it raises, the pool is broken.
        preload: names of modules that the zygote imports, so that no worker has to.
        capacity: tasks that may wait; `None` for no limit.
        overflow: what `submit` does when the queue is full: ``"block"`` waits for room, ``"error"`` raises `QueueFull`.
        on_crash: what the pool does when a worker dies. ``"replace"`` fails the task that ran and starts another
            worker; ``"break"`` fails every pending task and breaks the pool, as the standard library does.
        task_timeout: seconds that each run of a task may take; see `options`.
        retries: how often a task may be run again; see `options`.
        priority: see `options`.
        writable: whether tasks may write to their array arguments; see `options`.
        grace: seconds that running tasks are given when an exception leaves the ``with`` block, or on Ctrl-C; then the
            pool ends them. If the pool ends one task of a worker with several threads, the worker's other tasks have
            the same grace.
        deadline: seconds from the submission of a task by which it must be done; see `options`.
        blas_threads: threads of BLAS and OpenMP in each worker process; by default the usable cores divided by the
            number of threads that run tasks, and at least 1.
        name: the pool's name, which the names of its workers and threads contain.
        log: send the workers' log records to this process's logging, if the worker has no handler for them.
        max_workers: the standard library's name for `workers`.

    Raises:
        ValueError, TypeError: a setting is invalid.
        EncodeError: the initializer or its arguments cannot be sent to a worker.
        LimitReached: the machine has no descriptors, processes or memory left for a pool.
        Unsupported: the system has no pidfds, which process pools need.
    """

    _kind: Literal["process", "thread"]
    _reason: str
    _name: str
    _workers: int
    _threads: int
    #: Tasks that run at once.
    _lanes: int
    #: Whether workers are processes of their own, which can be ended and take signals.
    _isolates: bool
    _blas_threads: int
    _preload: tuple[str, ...]
    _stamps: dict[str, tuple[str, int, int]]
    _settings: TaskSettings
    _engine: _core.PoolHandle
    _maps: list[weakref.ref[MapIterator[Any]]]
    #: Maps of unknown length that were dropped before the program read a result: their inputs are run all the same.
    _unread: list[_core.MapIterator]
    #: A lock for each event loop: its holder waits for room in the queue, other coroutines wait for the lock.
    _turns: weakref.WeakKeyDictionary[Any, asyncio.Lock]
    _runners: list[threading.Thread]
    _is_ending: bool
    _owner: int
    _grace: float
    _end_limits: EndLimits
    _collector: _Collector
    #: Objects that must stay alive for as long as the pool may start workers.
    _kept: list[object]

    def __init__(
        self,
        workers: int | None = None,
        *,
        kind: Kind = "auto",
        threads: int = 1,
        initializer: Callable[..., object] | None = None,
        initargs: Sequence[Any] = (),
        preload: Iterable[str] = (),
        capacity: int | None = None,
        overflow: Literal["block", "error"] = "block",
        on_crash: Literal["replace", "break"] = "replace",
        task_timeout: float | None = None,
        retries: int = 0,
        priority: int = 0,
        writable: bool = False,
        grace: float = 2.0,
        deadline: float | None = None,
        blas_threads: int | None = None,
        name: str | None = None,
        log: bool = True,
        max_workers: int | None = None,
        **unknown: Never,
    ) -> None:
        """Checks the settings and starts the workers."""
        if unknown:
            refuse_unknown(("workers", *(Pool.__init__.__kwdefaults__ or ())), unknown)
        if max_workers is not None:
            if workers is not None:
                raise TypeError("give workers or max_workers, which are the same, not both")
            if max_workers <= 0:
                raise ValueError("max_workers must be greater than 0")
            workers = max_workers
        cores = usable_cores()
        count = cores if workers is None else checked_count("workers", workers, 1)
        threads = checked_count("threads", threads, 1)
        if threads > _MOST_THREADS:
            raise ValueError(f"threads must be {_MOST_THREADS} or fewer in one process, not {threads}")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if isinstance(initargs, (str, bytes, bytearray)) or not hasattr(initargs, "__iter__"):
            raise TypeError(f"initargs must be a tuple of the initializer's arguments, not {initargs!r}")
        checked_choice("overflow", overflow, ("block", "error"))
        checked_choice("on_crash", on_crash, ("replace", "break"))
        if isinstance(preload, str):
            raise TypeError(f"preload must be a list of module names, not the string {preload!r}")
        chosen, reason = choose_kind(kind)
        name = name or f"ropewalk-{next(_NUMBERS)}"
        blas = (
            max(1, cores // (count * threads))
            if blas_threads is None
            else checked_count("blas_threads", blas_threads, 1)
        )
        modules = tuple(preload)
        defaults = TaskSettings.checked(task_timeout, retries, priority, writable, deadline)
        collector = _Collector(name)
        settings: dict[str, Any] = {
            "name": name,
            "workers": count,
            "threads": threads if chosen == "process" else 1,
            "capacity": None if capacity is None else checked_count("capacity", capacity, 1),
            "overflow": overflow,
            "break_on_crash": on_crash == "break",
            **defaults._asdict(),
            "depth": depth(),
            "grace": checked_seconds("grace", grace),
            "future": Future,
            "start_collector": collector.start,
            "spawn": None,
        }
        # Threads already share the program's state. A thread pool must not read `sys.modules` either: see
        # `_surroundings.depth`.
        handing = Handing() if chosen == "process" else None
        try:
            if handing is not None:
                settings["spawn"] = spawn_settings(
                    modules, initializer, tuple(initargs), threads, blas, name, bool(log), handing
                )
            self._start(settings)
        finally:
            if handing is not None:
                handing.close()
        self._kind = chosen
        self._reason = reason
        self._name = name
        self._workers = count
        self._threads = threads
        self._lanes = count * settings["threads"]
        self._blas_threads = blas
        self._preload = modules
        self._stamps = stamps(modules) if chosen == "process" else {}
        self._settings = defaults
        self._engine = self._handle()
        self._isolates = self._engine.isolates
        self._maps = []
        self._unread = []
        self._turns = weakref.WeakKeyDictionary()
        self._runners = []
        #: Whether an exception has left the `with` block, or ended the pool.
        self._is_ending = False
        self._owner = os.getpid()
        self._grace = checked_seconds("grace", grace)
        self._end_limits = EndLimits(self._grace, None if chosen == "process" else self._grace)
        self._collector = collector
        self._kept = [] if handing is None else handing.kept
        # Before any thread starts, because threads live until the engine is closed and the next steps may raise.
        abandon_with(self, self._engine, self._owner, self._kept, self._end_limits)
        if chosen == "thread":
            blas_limit = blas_threads if blas_threads is not None else None
            try:
                self._start_threads(initializer, tuple(initargs), blas_limit)
            except BaseException:
                self._engine.terminate()
                raise
        forget_ended()
        opened(self._engine)

    # --- tasks ------------------------------------------------------------------------------------------------------

    # `submit` itself is inherited: PoolBase.submit is the hot path.
    _submit_plainly = _core.PoolBase.submit

    def _no_attribute(self, name: str) -> Exception:
        if name in Pool.__annotations__:
            return RuntimeError("Pool.__init__() was not called")
        return no_attribute(self, name, POOL_METHODS)

    def _view(self) -> tuple[Pool, TaskSettings]:
        return self, self._settings

    async def _await(self, future: Future[T]) -> T:
        import asyncio

        if not future.done():
            try:
                await self._posted(future)
            except asyncio.CancelledError:
                future.cancel(running=True)
                raise
        result: T = future.result()
        return result

    def _posted(self, future: Future[Any]) -> asyncio.Future[None]:
        """Returns a future of the running loop that is done when `future` is."""
        import asyncio

        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        future.add_done_callback(partial(_core.mailbox_of(loop).post, waiter, None))
        return waiter

    async def _submit_in_turn(
        self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any], options: TaskSettings
    ) -> Future[T]:
        """Submits a task, and awaits room in a full queue without blocking the loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        turn = self._turns.get(loop)
        if turn is None:
            turn = self._turns.setdefault(loop, asyncio.Lock())
        async with turn:
            while True:
                room = self._room()
                if room is None:
                    future = self._try_submit(fn, args, kwargs, options)
                    if future is not None:
                        return future
                    continue
                try:
                    await self._posted(room)
                finally:
                    self._forget_room(room)

    # --- the pool itself --------------------------------------------------------------------------------------------

    @property
    def kind(self) -> Literal["process", "thread"]:
        """The kind that really runs the tasks: ``"process"`` or ``"thread"``."""
        return self._kind

    def explain(self) -> str:
        """Returns sentences that say what kind of pool this is and why, its size, and what went wrong with preloads."""
        cores = usable_cores()
        unit, plural = ("worker process", "es") if self._isolates else ("thread", "s")
        lines = [
            f"{self._name} runs {self._reason}.",
            f"{self._workers} {unit}{'' if self._workers == 1 else plural} on "
            f"{cores} usable core{'' if cores == 1 else 's'}.",
        ]
        if self._isolates:
            lines.append(
                f"Each runs {self._threads} task{'' if self._threads == 1 else 's'} at a time, with "
                f"{self._blas_threads} BLAS thread{'' if self._blas_threads == 1 else 's'}."
            )
            if self._preload:
                lines.append(f"Preloaded: {', '.join(self._preload)}.")
            lines.extend(f"A preload failed: {complaint}" for complaint in self._engine.complaints())
            shortage = self._engine.shortage()
            if shortage is not None:
                lines.append(f"Short of workers: {shortage}.")
            now = stamps(self._preload)
            lines.extend(
                f"{module} has been edited since this pool was made, and its workers have the old code. A new pool "
                f"imports it anew; call ropewalk.restart_preloads() first if only what it imports was edited."
                for module, stamp in self._stamps.items()
                if now.get(module) != stamp
            )
        return "\n".join(lines)

    def statistics(self) -> PoolStatistics:
        """Returns a snapshot of the pool's counters."""
        totals, workers = self._engine.statistics()
        busy = totals.pop("busy_ns") / 1e9
        details = tuple(
            WorkerStatistics(pid, state, completed, nanoseconds / 1e9, private_bytes(pid))
            for pid, state, completed, nanoseconds in workers
        )
        return PoolStatistics(
            kind=self._kind,
            workers=self._workers,
            threads=self._threads,
            busy_seconds=busy,
            worker_pids=tuple(worker.pid for worker in details if worker.pid),
            workers_detail=details,
            **totals,
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accepts no more tasks, and ends the workers when the accepted ones are done.

        Before that it submits the remaining inputs of each `map` that has no `buffersize`, if their number is known or
        the program has not read a result.

        Args:
            wait: return when the workers are gone.
            cancel_futures: cancel the tasks that have not started.

        Warns:
            RuntimeWarning: a map over inputs of unknown length was read in part; its remaining inputs are not run.

        Raises:
            RuntimeError: a task of a thread pool calls it with `wait`, and would wait for itself. The pool accepts no
                more tasks then, and ends later.
        """
        if self._is_forked():
            return
        if not self._engine.closed and not cancel_futures:
            self._take_inputs()
        closed(self._engine)
        self._engine.close(cancel_futures)
        if not self._engine.ended:
            ENDING[self._engine] = self._end_limits
        if wait:
            self._check_own_thread()
            self._engine.join()
            join([*self._runners, *self._collector.threads])
            if self._isolates:
                _logs.drain()
            ENDING.pop(self._engine, None)

    def _take_inputs(self) -> None:
        """Submits the inputs that maps have not read yet."""
        for known in list(self._maps):
            results = known()
            taken = None if results is None else results._submit_all()
            if taken is not None:
                warnings.warn(
                    f"{self._name} is shut down while a map has inputs left: {taken} were taken, and those after them "
                    "are not run. Consume the map inside of the `with` block, close() it, or pass a list.",
                    RuntimeWarning,
                    stacklevel=_outside(),
                )
        while self._unread:
            self._unread.pop()._run_out()

    @_core.Finalizer
    def __del__(self) -> None:
        """Submits the inputs of the pool's maps, as `shutdown` does."""
        engine = vars(self).get("_engine")
        if engine is not None and not engine.closed and not self._is_forked() and "_kept" in vars(self):
            try:
                self._take_inputs()
            except (KeyboardInterrupt, SystemExit) as error:  # A finalizer cannot raise.
                _core.raise_later(error)

    def terminate(self, wait: bool = True) -> None:
        """Ends the pool now.

        It cancels the tasks that wait, fails those that run with `PoolTerminated`, and kills the worker processes. In a
        thread pool a running call goes on, and `terminate` does not wait for it.

        Args:
            wait: return when the worker processes are gone.
        """
        if self._is_forked():
            return
        self._engine.terminate()
        self._wait_for_end(None if wait and self._isolates else 0.0)

    def terminate_workers(self) -> None:
        """Accepts no more tasks, cancels those that wait, and sends ``SIGTERM`` to every worker process.

        Like `concurrent.futures.ProcessPoolExecutor.terminate_workers` of Python 3.14, it returns without waiting. A
        task that handles the signal may finish; other running tasks fail with `PoolTerminated`. On a thread pool, which
        has no worker processes, it is `terminate`.
        """
        self._signal_workers(signal.SIGTERM)

    def kill_workers(self) -> None:
        """Accepts no more tasks, cancels those that wait, and kills every worker process.

        Like `concurrent.futures.ProcessPoolExecutor.kill_workers` of Python 3.14, it returns without waiting. Running
        tasks fail with `PoolTerminated`. On a thread pool, which has no worker processes, it is `terminate`.
        """
        self._signal_workers(signal.SIGKILL)

    def _signal_workers(self, number: int) -> None:
        if not self._isolates:
            self.terminate(wait=False)
        elif not self._is_forked():
            self._engine.signal_workers(number)
            self._wait_for_end(0.0)

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leaves the pool as a plain ``with`` does, without blocking the event loop.

        Cancel safety: a cancellation ends the pool as an exception in the block does; the wait then goes on.
        """
        import asyncio

        left = in_a_thread(f"{self._name}-leaving", lambda: self.__exit__(kind, value, traceback))
        try:
            await asyncio.shield(left)
        except asyncio.CancelledError:
            await asyncio.shield(in_a_thread(f"{self._name}-ending", self._end))
            raise

    @property
    def _max_workers(self) -> int:
        """The number of tasks that run at once, under the name by which dask reads it from executors."""
        return self._lanes

    def _is_forked(self) -> bool:
        """Whether this process is a forked child of the one that made the pool and has its workers."""
        return os.getpid() != self._owner

    def _leave(self, failed: bool) -> None:
        """Leaves the `with` block: shuts the pool down, or ends it if the block has failed."""
        if failed:
            self._end()
        else:
            self.shutdown(wait=True)

    def _cut_short(self) -> None:
        """Ends the pool if leaving its block was interrupted before that; the compiled `__exit__` calls this."""
        if not self._is_ending and threading.current_thread() not in self._runners:
            self._end()

    def _end(self) -> None:
        """Cancels the tasks that wait, and ends those that run after the grace, or at a second interrupt."""
        if self._is_forked():
            return
        self._is_ending = True
        self._engine.end(self._grace)
        if threading.current_thread() in self._runners:
            self._wait_for_end(0.0)
            return
        try:
            # A call in a thread cannot be ended: after the grace the pool stops waiting for it.
            self._wait_for_end(None if self._isolates else self._grace)
        except BaseException:
            self.terminate(wait=False)
            raise

    def _wait_for_end(self, seconds: float | None) -> None:
        """Waits at most `seconds` for the pool's end; threads that still run then are not joined at exit either."""
        closed(self._engine)
        ended = self._engine.join(seconds)
        ENDING.pop(self._engine, None)
        if ended:
            join([*self._runners, *self._collector.threads])
        elif self._isolates:
            ENDING[self._engine] = self._end_limits
        else:
            THREADS.difference_update(self._runners)

    def _check_own_thread(self) -> None:
        if not self._engine.ended and threading.current_thread() in self._runners:
            raise RuntimeError(
                "cannot join current thread: a task of this pool would wait for its own end. Use "
                "shutdown(wait=False) there."
            )

    def __repr__(self) -> str:
        if "_engine" not in vars(self):
            return object.__repr__(self)
        state = "closed" if self._engine.closed else "open"
        return f"<ropewalk.Pool {self._name} kind={self._kind} workers={self._workers} {state}>"

    def _start_threads(
        self, initializer: Callable[..., object] | None, initargs: tuple[Any, ...], blas: int | None
    ) -> None:
        for number in range(self._workers):
            thread = threading.Thread(
                target=_serve,
                args=(self._engine, initializer, initargs, blas),
                name=f"{self._name}-thread-{number}",
                daemon=True,
            )
            start(thread)
            self._runners.append(thread)


def _outside() -> int:
    """Returns the `stacklevel` with which the caller's warning names the innermost line outside of this package."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("ropewalk."):
        level += 1
        frame = frame.f_back
    return level


class _Collector:
    """Starts the thread that publishes finished futures; the engine calls `start` for the first observed future."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.threads: list[threading.Thread] = []

    def start(self, handle: _core.PoolHandle) -> None:
        thread = threading.Thread(target=handle.collect, name=f"{self._name}-collector", daemon=True)
        start(thread)
        self.threads.append(thread)


def _serve(
    engine: _core.PoolHandle,
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
    blas: int | None,
) -> None:
    """Runs a thread of a thread pool, from its initializer to its end."""
    if initializer is not None:
        try:
            initializer(*initargs)
        except BaseException:
            concurrent.futures._base.LOGGER.critical("Exception in initializer:", exc_info=True)
            engine.break_down("a thread initializer failed")
            return
    if blas is not None:
        from ropewalk.pool.wire._blas import limit_threads

        limit_threads(blas)
    engine.serve()
