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
    OPEN,
    THREADS,
    Patience,
    abandon,
    forget_ended,
    in_a_thread,
    join,
    start,
)
from ropewalk.pool.parent._future import Future
from ropewalk.pool.parent._map import MapIterator
from ropewalk.pool.parent._options import (
    Kind,
    TaskSettings,
    choose_kind,
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
#: Lanes of one worker travel in one packet of descriptors.
_MOST_THREADS = 200


class Pool(_core.PoolBase, TaskMethods):
    """Runs functions on many cores: a `concurrent.futures.Executor`.

    Worker processes come from a *zygote*, a small process that has imported what they need and forks them on request;
    they start in about a millisecond each, and the pool of a finished program leaves nothing behind. Arguments and
    results are pickled (functions by reference where they can be imported, else by cloudpickle); large buffers, those
    of NumPy arrays for instance, lie in shared memory and arrive read-only.

    Args:
        workers: worker processes, or threads of a thread pool; by default one for each usable core.
        kind: ``"process"``, ``"thread"``, or ``"auto"``: threads on a free-threaded build, else processes. `kind` and
            `explain` of the pool tell what really runs.
        threads: threads that run tasks in each worker process.
        initializer: called with `initargs` in each worker before its first task. If it raises, the pool is broken.
        preload: modules that the zygote imports, so that no worker has to.
        capacity: tasks that may wait; `None` for no limit.
        overflow: what `submit` does with one more: ``"block"`` waits for room, ``"error"`` raises `QueueFull`.
        on_crash: ``"replace"`` fails the task that ran and starts another worker; ``"break"`` fails every pending task
            and breaks the pool, as the standard library does.
        task_timeout: seconds that each run of a task may take; see `options`.
        retries: how often a task may be run again; see `options`.
        priority: see `options`.
        writable: whether tasks may write to the arrays that they are given; see `options`.
        grace: seconds that the tasks which run are given when the pool must end early: an exception leaves its ``with``
            block, or Ctrl-C comes. Then they are ended. Tasks that run beside one that is ended in a worker with
            several threads have the same grace.
        deadline: seconds from its submission by which a task must be done; see `options`.
        blas_threads: threads of BLAS and OpenMP in each worker process; by default the usable cores shared out among
            all the threads that run tasks, 1 at least.
        name: what the pool is called in its threads' names.
        log: hand the workers' log records to this process's logging, as far as no handler is configured in the worker.
        max_workers: the standard library's name for `workers`.

    Raises:
        ValueError, TypeError: for settings that make no sense.
        LimitReached: when the machine has no descriptors, processes or memory left for a pool.
        Unsupported: when the system has no pidfds, which process pools need.
    """

    __module__ = "ropewalk"

    _kind: Literal["process", "thread"]
    _reason: str
    _name: str
    _workers: int
    _threads: int
    _blas_threads: int
    #: Tasks that run at once, under the name that the standard library's executors have for it: dask looks there.
    _preload: tuple[str, ...]
    _stamps: dict[str, tuple[str, int, int]]
    _settings: TaskSettings
    _engine: _core.PoolHandle
    _maps: list[weakref.ref[MapIterator[Any]]]
    #: Maps of unknown length that were dropped before anybody looked at a result: their inputs are run all the same.
    _unread: list[_core.MapIterator]
    #: For each event loop the lock of the one coroutine that waits for room in the queue; the others wait for the lock.
    _turns: weakref.WeakKeyDictionary[Any, asyncio.Lock]
    _runners: list[threading.Thread]
    _is_ending: bool
    _owner: int
    _grace: float
    _patience: Patience
    _collector: _Collector
    #: What new workers have only for as long as it is here.
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
        """Checks the settings, and starts the workers."""
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
            "refuse": overflow == "error",
            "break_on_crash": on_crash == "break",
            **defaults._asdict(),
            "depth": depth(),
            "grace": checked_seconds("grace", grace),
            "future": Future,
            "start_collector": collector.start,
            "spawn": None,
        }
        # Threads take nothing over, and a round of theirs asks nothing of `sys.modules`: see `_surroundings.depth`.
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
        self._blas_threads = blas
        self._preload = modules
        self._stamps = stamps(modules) if chosen == "process" else {}
        self._settings = defaults
        self._engine = self._handle()
        self._maps = []
        self._unread = []
        self._turns = weakref.WeakKeyDictionary()
        self._runners = []
        #: Whether an exception has ended it, or left its block.
        self._is_ending = False
        self._owner = os.getpid()
        self._grace = checked_seconds("grace", grace)
        self._patience = Patience(self._grace, None if chosen == "process" else self._grace)
        self._collector = collector
        self._kept = [] if handing is None else handing.kept
        # Before any thread starts: it lives until the engine is closed, and what follows may raise.
        ending = weakref.finalize(self, abandon, self._engine, self._owner, self._kept, self._patience)
        ending.atexit = False
        if chosen == "thread":
            blas_limit = blas_threads if blas_threads is not None else None
            try:
                self._start_threads(initializer, tuple(initargs), blas_limit)
            except BaseException:
                self._engine.terminate()
                raise
        forget_ended()
        OPEN.add(self)

    # --- tasks ------------------------------------------------------------------------------------------------------

    # `submit` itself is inherited: PoolBase.submit is the hot path.

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            if name in Pool.__annotations__:
                raise AttributeError("Pool.__init__() was not called", name=name, obj=self)
            super().__getattr__(name)

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
        """Is done when the future is, in the running loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        future.add_done_callback(partial(_core.mailbox_of(loop).post, waiter, None))
        return waiter

    async def _submit_in_turn(
        self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any], options: TaskSettings
    ) -> Future[T]:
        """As `_submit`; in a full queue it waits for room without blocking the loop."""
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
        """What really runs the tasks: ``"process"`` or ``"thread"``."""
        return self._kind

    def explain(self) -> str:
        """What was chosen for this pool, and why, in words."""
        cores = usable_cores()
        unit = "worker process" if self._kind == "process" else "thread"
        lines = [
            f"{self._name} runs {self._reason}.",
            f"{self._workers} {unit}{'' if self._workers == 1 else 'es' if self._kind == 'process' else 's'} on "
            f"{cores} usable core{'' if cores == 1 else 's'}.",
        ]
        if self._kind == "process":
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
        """A snapshot of the pool's counters."""
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
        """Takes no more tasks, and ends the workers when those accepted are done.

        Args:
            wait: return when the workers are gone.
            cancel_futures: cancel the tasks that have not started.

        A `map` over inputs of known length has all its inputs submitted first, and so has one over a generator or
        another iterator whose results nobody has asked for. Both unless it was given a `buffersize`.

        Warns:
            RuntimeWarning: if a map was iterated in part, and has inputs of unknown length left: they are not run.

        Raises:
            RuntimeError: if a task of a thread pool calls it and is to wait for itself. The pool takes no more tasks
                then, and ends without being waited for.
        """
        if self._is_forked():
            return
        if not self._engine.closed and not cancel_futures:
            self._take_inputs()
        OPEN.discard(self)
        self._engine.close(cancel_futures)
        if not self._engine.ended:
            ENDING[self._engine] = self._patience
        if wait:
            self._check_own_thread()
            self._engine.join()
            join([*self._runners, *self._collector.threads])
            if self._kind == "process":
                _logs.drain()
            ENDING.pop(self._engine, None)

    def _take_inputs(self) -> None:
        """Submits what maps have not taken yet."""
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

    def __del__(self) -> None:
        """A pool that is dropped runs what its maps were given, as one that is shut down."""
        engine = getattr(self, "_engine", None)
        if engine is not None and not engine.closed and not self._is_forked() and hasattr(self, "_kept"):
            try:
                self._take_inputs()
            except (KeyboardInterrupt, SystemExit) as error:  # Nothing can be raised here.
                _core.raise_later(error)

    def terminate(self, wait: bool = True) -> None:
        """Ends everything now.

        Tasks that wait are cancelled, those that run fail with `PoolTerminated`, and worker processes are killed. In a
        thread pool a call that runs goes on, and nobody waits for it.

        Args:
            wait: return when the worker processes are gone.
        """
        if self._is_forked():
            return
        self._engine.terminate()
        self._forsake(0.0 if wait and self._kind == "thread" else None if wait else 0.0)

    def terminate_workers(self) -> None:
        """Takes no more tasks, cancels those that wait, and asks every worker process to end, by ``SIGTERM``.

        As `concurrent.futures.ProcessPoolExecutor.terminate_workers` of Python 3.14: it returns without waiting, and a
        task that handles the signal may finish. Tasks that do not, fail with `PoolTerminated`. A thread pool has no
        worker processes: there it is `terminate`.
        """
        self._signal_workers(signal.SIGTERM)

    def kill_workers(self) -> None:
        """Takes no more tasks, cancels those that wait, and kills every worker process.

        As `concurrent.futures.ProcessPoolExecutor.kill_workers` of Python 3.14: it returns without waiting. The tasks
        that ran fail with `PoolTerminated`. A thread pool has no worker processes: there it is `terminate`.
        """
        self._signal_workers(signal.SIGKILL)

    def _signal_workers(self, number: int) -> None:
        if self._kind == "thread":
            self.terminate(wait=False)
        elif not self._is_forked():
            self._engine.signal_workers(number)
            self._forsake(0.0)

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Does what leaving a plain ``with`` does, and meanwhile the event loop goes on.

        Cancel safety: a cancelled wait ends the pool as an exception in the block does, and then goes on.
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
        """How many tasks run at once, under the name by which dask asks executors for it."""
        return self._workers * (self._threads if self._kind == "process" else 1)

    def _is_forked(self) -> bool:
        """Whether this is a forked child: the workers are its parent's."""
        return os.getpid() != self._owner

    def _leave(self, failed: bool) -> None:
        """What leaving the `with` block does, with or without an exception."""
        if failed:
            self._end()
        else:
            self.shutdown(wait=True)

    def _cut_short(self) -> None:
        """Ends the pool after all, if leaving it has failed before that."""
        if not self._is_ending and threading.current_thread() not in self._runners:
            self._end()

    def _end(self) -> None:
        """Cancels what waits, gives what runs the pool's grace, and ends it; a second interrupt ends it at once."""
        if self._is_forked():
            return
        self._is_ending = True
        self._engine.end(self._grace)
        if threading.current_thread() in self._runners:
            self._forsake(0.0)
            return
        try:
            # A call in a thread cannot be ended: after the grace nobody waits for it.
            self._forsake(None if self._kind == "process" else self._grace)
        except BaseException:
            self.terminate(wait=False)
            raise

    def _forsake(self, seconds: float | None) -> None:
        """Waits for the end of a pool that was made to end; whatever is left then is left alone, at exit too."""
        OPEN.discard(self)
        ended = self._engine.join(seconds)
        ENDING.pop(self._engine, None)
        if ended:
            join([*self._runners, *self._collector.threads])
        elif self._kind == "process":
            ENDING[self._engine] = self._patience
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
    """The `stacklevel` with which the caller's warning names the line outside of this package that led to it."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("ropewalk."):
        level += 1
        frame = frame.f_back
    return level


class _Collector:
    """Starts the thread that publishes finished futures, at the first one that somebody wants to be told about."""

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
    """The life of a thread of a thread pool."""
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
