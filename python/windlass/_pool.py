"""`Pool`: the standard library's executor over worker processes or threads."""

from __future__ import annotations

import atexit
import concurrent.futures
import itertools
import json
import operator
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, ParamSpec, TypeVar, overload

from windlass import _core
from windlass._core import private_bytes, usable_cores
from windlass._future import Future, LoopMail
from windlass._results import Err, Ok
from windlass._statistics import PoolStatistics, WorkerStatistics

P = ParamSpec("P")
T = TypeVar("T")
Kind = Literal["auto", "process", "thread"]

_NUMBERS = itertools.count()
#: Pools that have not been shut down: their accepted tasks are finished before the interpreter leaves.
_OPEN: weakref.WeakSet[Pool] = weakref.WeakSet()
#: Engines whose pool is gone or shut down without waiting, but whose workers may be at work.
_ENDING: set[_core.PoolHandle] = set()
#: Threads of pools: they must be gone before the interpreter is, for they come back into it from compiled code.
_THREADS: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
#: Lanes of one worker travel in one packet of descriptors.
_MOST_THREADS = 200


class _Unset:
    """The default of options that may be `None`."""

    def __repr__(self) -> str:
        return "unset"


_UNSET = _Unset()


def _checked_count(name: str, value: object, least: int) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be {least} or more, not {number}")
    return number


def _checked_timeout(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"timeout must be a number of seconds or None, not {value!r}")
    if not value >= 0:
        raise ValueError(f"timeout must be 0 or more seconds, not {value!r}")
    return float(value)


def choose_kind(kind: str) -> tuple[Literal["process", "thread"], str]:
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    if kind == "process":
        return "process", "processes, as asked for"
    if kind == "thread":
        note = "" if not gil else ", which share one GIL: pure Python code will not run in parallel"
        return "thread", f"threads, as asked for{note}"
    if kind != "auto":
        raise ValueError(f"kind must be 'auto', 'process' or 'thread', not {kind!r}")
    if not gil:
        return "thread", "threads, because this interpreter runs without a GIL"
    if sys.version_info >= (3, 13) and "t" in getattr(sys, "abiflags", ""):
        return "process", (
            "processes, because the GIL of this free-threaded interpreter is enabled: an imported extension does not "
            "declare itself safe without it, or PYTHON_GIL=1 is set"
        )
    return (
        "process",
        "processes, because this interpreter has a GIL, which lets one thread run Python code at a time",
    )


class PoolOptions:
    """A view of a pool with other settings for its tasks; made by `Pool.options`."""

    def __init__(self, pool: Pool, timeout: float | None, retries: int, priority: int) -> None:
        self._pool = pool
        self._timeout = timeout
        self._retries = retries
        self._priority = priority

    def options(
        self,
        *,
        timeout: float | _Unset | None = _UNSET,
        retries: int | _Unset = _UNSET,
        priority: int | _Unset = _UNSET,
    ) -> PoolOptions:
        """A view with some of these settings changed again; see `Pool.options`."""
        return PoolOptions(
            self._pool,
            self._timeout if isinstance(timeout, _Unset) else _checked_timeout(timeout),
            self._retries if isinstance(retries, _Unset) else _checked_count("retries", retries, 0),
            self._priority
            if isinstance(priority, _Unset)
            else _checked_count("priority", priority, -(2**31)),
        )

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As `Pool.submit`."""
        future: Future[T] = self._pool._submit(fn, args, kwargs, self._timeout, self._retries, self._priority)
        return future

    @overload
    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[False] = ...,
    ) -> Iterator[T]: ...
    @overload
    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[True],
    ) -> Iterator[Ok[T] | Err[Exception]]: ...
    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
        results: bool = False,
    ) -> Iterator[Any]:
        """As `Pool.map`."""
        return self._pool._map(fn, iterables, True, timeout, chunksize, buffersize, results, self)

    @overload
    def map_unordered(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[False] = ...,
    ) -> Iterator[T]: ...
    @overload
    def map_unordered(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[True],
    ) -> Iterator[Ok[T] | Err[Exception]]: ...
    def map_unordered(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
        results: bool = False,
    ) -> Iterator[Any]:
        """As `Pool.map_unordered`."""
        return self._pool._map(fn, iterables, False, timeout, chunksize, buffersize, results, self)

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """As `Pool.run`."""
        return await self._pool._await(self.submit(fn, *args, **kwargs))


class Pool(_core.PoolBase, concurrent.futures.Executor):
    """Runs functions on many cores: an `concurrent.futures.Executor`.

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
        max_queue: tasks that may wait; `None` for no limit.
        on_full: what `submit` does then: ``"block"`` waits for room, ``"reject"`` raises `QueueFull`.
        on_crash: ``"replace"`` fails the task that ran and starts another worker; ``"break"`` fails every pending task
            and breaks the pool, as the standard library does.
        timeout: seconds that a task may take, waiting and running together; see `options`.
        retries: how often a task may be run again; see `options`.
        priority: see `options`.
        blas_threads: threads of BLAS and OpenMP in each worker process; by default the usable cores shared out among
            all the threads that run tasks, 1 at least.
        name: what the pool is called in its threads' names.
        max_workers: the standard library's name for `workers`.

    Raises:
        ValueError, TypeError: for settings that make no sense.
        PoolError: when the machine has no descriptors or memory left for a pool.
    """

    _kind: Literal["process", "thread"]
    _reason: str
    _name: str
    _workers: int
    _threads: int
    _blas_threads: int
    _preload: tuple[str, ...]
    _defaults: PoolOptions
    _engine: _core.PoolHandle
    _maps: weakref.WeakSet[_core.MapIterator]
    _mail: weakref.WeakKeyDictionary[Any, LoopMail]
    _runners: list[threading.Thread]
    _owner: int
    _collector: _Collector

    def __new__(
        cls,
        workers: int | None = None,
        *,
        kind: Kind = "auto",
        threads: int = 1,
        initializer: Callable[..., object] | None = None,
        initargs: Sequence[Any] = (),
        preload: Iterable[str] = (),
        max_queue: int | None = None,
        on_full: Literal["block", "reject"] = "block",
        on_crash: Literal["replace", "break"] = "replace",
        timeout: float | None = None,
        retries: int = 0,
        priority: int = 0,
        blas_threads: int | None = None,
        name: str | None = None,
        max_workers: int | None = None,
    ) -> Pool:
        """Checks the settings, and starts the workers."""
        if max_workers is not None:
            if workers is not None:
                raise TypeError("give workers or max_workers, which are the same, not both")
            if max_workers <= 0:
                raise ValueError("max_workers must be greater than 0")
            workers = max_workers
        cores = usable_cores()
        count = cores if workers is None else _checked_count("workers", workers, 1)
        threads = _checked_count("threads", threads, 1)
        if threads > _MOST_THREADS:
            raise ValueError(f"threads must be {_MOST_THREADS} or fewer in one process, not {threads}")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if on_full not in ("block", "reject"):
            raise ValueError(f"on_full must be 'block' or 'reject', not {on_full!r}")
        if on_crash not in ("replace", "break"):
            raise ValueError(f"on_crash must be 'replace' or 'break', not {on_crash!r}")
        if isinstance(preload, str):
            raise TypeError(f"preload must be a list of module names, not the string {preload!r}")
        chosen, reason = choose_kind(kind)
        name = name or f"windlass-{next(_NUMBERS)}"
        blas = (
            max(1, cores // (count * threads))
            if blas_threads is None
            else _checked_count("blas_threads", blas_threads, 1)
        )
        spawn = None
        modules = tuple(preload)
        if chosen == "process":
            spawn = _spawn_settings(modules, initializer, tuple(initargs), threads, blas, name)
        collector = _Collector(name)
        settings = {
            "name": name,
            "workers": count,
            "threads": threads if chosen == "process" else 1,
            "max_queue": None if max_queue is None else _checked_count("max_queue", max_queue, 1),
            "reject": on_full == "reject",
            "break_on_crash": on_crash == "break",
            "timeout": _checked_timeout(timeout),
            "retries": _checked_count("retries", retries, 0),
            "priority": _checked_count("priority", priority, -(2**31)),
            "future": Future,
            "start_collector": collector.start,
            "spawn": spawn,
        }
        self = super().__new__(cls, settings)
        assert isinstance(self, Pool)
        self._kind = chosen
        self._reason = reason
        self._name = name
        self._workers = count
        self._threads = threads
        self._blas_threads = blas
        self._preload = modules
        self._defaults = PoolOptions(self, _checked_timeout(timeout), retries, priority)
        self._defaults._pool = weakref.proxy(self)
        self._engine = self._handle()
        self._maps = weakref.WeakSet()
        self._mail = weakref.WeakKeyDictionary()
        self._runners = []
        self._owner = os.getpid()
        self._collector = collector
        if chosen == "thread":
            blas_limit = blas_threads if blas_threads is not None else None
            self._start_threads(initializer, tuple(initargs), blas_limit)
        _ENDING.difference_update([engine for engine in _ENDING if engine.ended])
        _OPEN.add(self)
        weakref.finalize(self, _abandon, self._engine, self._owner).atexit = False
        return self

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        """Everything is done by ``__new__``."""

    # --- tasks ------------------------------------------------------------------------------------------------------

    # `submit` itself is inherited: PoolBase.submit is the hot path.

    def options(
        self,
        *,
        timeout: float | _Unset | None = _UNSET,
        retries: int | _Unset = _UNSET,
        priority: int | _Unset = _UNSET,
    ) -> PoolOptions:
        """A view of this pool whose tasks have other settings than the pool's own.

        Args:
            timeout: seconds that a task may take, waiting and running together. A task that overruns it fails with
                `TaskTimeout`; if it is running in a worker process, it is ended.
            retries: how often a task may be run again after it raised, or after its worker died. Giving it declares
                the task idempotent: it may have run in part before.
            priority: tasks of a higher priority go first; 0 is usual, and equal ones go in order.
        """
        base = self._defaults
        return PoolOptions(self, base._timeout, base._retries, base._priority).options(
            timeout=timeout, retries=retries, priority=priority
        )

    @overload
    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[False] = ...,
    ) -> Iterator[T]: ...
    @overload
    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[True],
    ) -> Iterator[Ok[T] | Err[Exception]]: ...
    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
        results: bool = False,
    ) -> Iterator[Any]:
        """Results of `fn` over the inputs, in their order.

        Inputs are taken as results are, a bounded number ahead, so they may be without end. An input that fails raises
        when its turn comes; the iterator can be asked on for the next.

        Args:
            fn: called with one element of each iterable.
            iterables: the shortest one ends the map.
            timeout: seconds from now in which a result must have come, else `TimeoutError`.
            chunksize: inputs sent to a worker process at once; by default it is learned from how long they take.
            buffersize: tasks that may be ahead of the results taken; each is one input, or `chunksize` of them.
            results: yield a `Result` for each input, `Ok` of what `fn` returned or `Err` of the exception, so that one
                bad input never ends the map. What is no input's fault still raises: the iterables, the time limit of
                the map, a pool that is shut down. If a worker dies, every input of its chunk comes as an
                `Err`; ``chunksize=1`` confines that to one.
        """
        return self._map(fn, iterables, True, timeout, chunksize, buffersize, results, self._defaults)

    @overload
    def map_unordered(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[False] = ...,
    ) -> Iterator[T]: ...
    @overload
    def map_unordered(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[True],
    ) -> Iterator[Ok[T] | Err[Exception]]: ...
    def map_unordered(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
        results: bool = False,
    ) -> Iterator[Any]:
        """As `map`, but results come as they are done."""
        return self._map(fn, iterables, False, timeout, chunksize, buffersize, results, self._defaults)

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs one task and waits for it in asyncio.

        Cancel safety: cancelling the await cancels the task; one that is running in a worker process is ended.
        """
        future: Future[T] = self.submit(fn, *args, **kwargs)
        return await self._await(future)

    async def _await(self, future: Future[T]) -> T:
        import asyncio

        if not future.done():
            loop = asyncio.get_running_loop()
            mail = self._mail.get(loop)
            if mail is None:
                mail = self._mail.setdefault(loop, LoopMail(loop))
            waiter: asyncio.Future[None] = loop.create_future()
            future.add_done_callback(mail.post(waiter))
            try:
                await waiter
            except asyncio.CancelledError:
                future.cancel(running=True)
                raise
        result: T = future.result()
        return result

    def _map(
        self,
        fn: Callable[..., T],
        iterables: tuple[Iterable[Any], ...],
        ordered: bool,
        timeout: float | None,
        chunksize: int | None,
        buffersize: int | None,
        results: bool,
        options: PoolOptions,
    ) -> Iterator[Any]:
        if not callable(fn):
            raise TypeError(f"map needs a callable, not {fn!r}")
        if chunksize is not None:
            chunksize = _checked_count("chunksize", chunksize, 1)
        if buffersize is not None:
            try:
                buffersize = operator.index(buffersize)
            except TypeError:
                raise TypeError("buffersize must be an integer or None") from None
            if buffersize < 1:
                raise ValueError("buffersize must be None or > 0")
        if self._engine.closed:
            # The error that a submission would raise, before any input is taken.
            self.submit(fn)
        lengths = [len(i) for i in iterables if hasattr(i, "__len__")]  # type: ignore[arg-type]
        known = lengths and len(lengths) == len(iterables)
        source: Iterator[Any] = iter(iterables[0]) if len(iterables) == 1 else zip(*iterables, strict=False)
        settings = {
            "star": len(iterables) != 1,
            "ordered": ordered,
            "timeout": timeout,
            "chunksize": chunksize,
            "buffersize": buffersize,
            "length": min(lengths) if known else None,
            "lanes": self._workers * (self._threads if self._kind == "process" else 1),
            "task_timeout": options._timeout,
            "retries": options._retries,
            "priority": options._priority,
            "results": (Ok, Err) if results else None,
        }
        made = _core.MapIterator(self, fn, source, settings)
        self._maps.add(made)
        return made

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

        A `map` over inputs of known length that is still being iterated has all its inputs submitted first.
        """
        if os.getpid() != self._owner:
            return  # A forked child: the workers are its parent's.
        if not self._engine.closed and not cancel_futures:
            for results in list(self._maps):
                results._submit_all()
        _OPEN.discard(self)
        self._engine.close(cancel_futures)
        if not self._engine.ended:
            _ENDING.add(self._engine)
        if wait:
            self._engine.join()
            _join([*self._runners, *self._collector.threads])
            _ENDING.discard(self._engine)

    def __enter__(self) -> Pool:
        """The pool itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Shuts the pool down and waits."""
        self.shutdown(wait=True)

    def __repr__(self) -> str:
        state = "closed" if self._engine.closed else "open"
        return f"<windlass.Pool {self._name} kind={self._kind} workers={self._workers} {state}>"

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
            self._runners.append(thread)
            _THREADS.add(thread)
            thread.start()


class _Collector:
    """Starts the thread that publishes finished futures, at the first one that somebody wants to be told about."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.threads: list[threading.Thread] = []

    def start(self, handle: _core.PoolHandle) -> None:
        thread = threading.Thread(target=handle.collect, name=f"{self._name}-collector", daemon=True)
        self.threads.append(thread)
        _THREADS.add(thread)
        thread.start()


def _join(threads: Iterable[threading.Thread]) -> None:
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join()


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
        from windlass._blas import limit_threads

        limit_threads(blas)
    engine.serve()


def _abandon(engine: _core.PoolHandle, owner: int) -> None:
    """The pool object is gone: what it accepted is finished, then its workers leave."""
    if os.getpid() == owner and not engine.ended:
        engine.close(False)
        if not engine.ended:
            _ENDING.add(engine)


def _at_exit() -> None:
    """Finishes what was accepted, as the standard library does, before the interpreter goes."""
    for pool in list(_OPEN):
        if pool._owner == os.getpid():
            pool.shutdown(wait=True)
    for engine in list(_ENDING):
        engine.join()
    _join(list(_THREADS))


def _register_exit() -> None:
    # Before the threads are joined, like the standard library's own executors: tasks may still start threads.
    register: Callable[[Callable[[], None]], object] | None = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(_at_exit)
    else:
        atexit.register(_at_exit)


_register_exit()


def _forked() -> None:
    _THREADS.clear()
    _OPEN.clear()
    _ENDING.clear()


os.register_at_fork(after_in_child=_forked)


def _spawn_settings(
    preload: tuple[str, ...],
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
    threads: int,
    blas: int,
    name: str,
) -> tuple[str, list[str], list[tuple[str, str | None]], bytes]:
    """How to start the zygote, and what each worker reads first."""
    from subprocess import _args_from_interpreter_flags  # type: ignore[attr-defined]

    from windlass import _serialize

    start: dict[str, Any] = {}
    if initializer is not None:
        start["function"] = _serialize.encode_function(initializer)[0]
        start["arguments"] = _serialize.encode_object(initargs, None)
    spec = pickle.dumps(
        {
            "sys_path": sys.path,
            "cwd": _cwd(),
            "env": dict(os.environ),
            "authkey": _authkey(),
            "initializer": start.get("function"),
            "initargs": start.get("arguments"),
            "threads": threads,
            "blas_threads": blas,
            "preload": bool(preload),
            "name": name,
        },
        protocol=5,
    )
    argument = json.dumps(
        {"path": sys.path, "preload": list(preload), "parent": os.getpid(), "cloudpickle": True}
    )
    code = "from windlass._zygote import main; main()"
    return (
        sys.executable,
        [*_args_from_interpreter_flags(), "-c", code, argument],
        [("PYTHONPATH", _package_path())],
        spec,
    )


def _authkey() -> bytes | None:
    multiprocessing = sys.modules.get("multiprocessing.process")
    return None if multiprocessing is None else bytes(multiprocessing.current_process().authkey)


def _cwd() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _package_path() -> str:
    """A PYTHONPATH with which the zygote finds this very package."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    before = os.environ.get("PYTHONPATH")
    return f"{home}{os.pathsep}{before}" if before else home


def preload_complaints(pool: Pool) -> list[str]:
    """What the zygote of a process pool said about its preloads, each as ``module: text``; known once a task ran."""
    return pool._engine.complaints() if pool.kind == "process" else []
