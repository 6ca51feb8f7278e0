"""`Pool`: the standard library's executor over worker processes or threads."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Never, TypeVar

from ropewalk import _core
from ropewalk._checked import checked_choice, checked_count, checked_name, checked_seconds, checked_switch
from ropewalk.pool.parent._calls import Calls
from ropewalk.pool.parent._closing import ClosingMethods
from ropewalk.pool.parent._cores import usable_cores
from ropewalk.pool.parent._exit import (
    DRAINING,
    EndLimits,
    Runner,
    abandon_with,
    forget_ended,
    opened,
    start,
)
from ropewalk.pool.parent._future import Future
from ropewalk.pool.parent._health import (
    Watch,
    checked_poison,
    checked_restarts,
    refuse_hang,
)
from ropewalk.pool.parent._life import Life, LifeMethods, checked_size
from ropewalk.pool.parent._map import MapIterator
from ropewalk.pool.parent._options import (
    POOL_METHODS,
    UNSET,
    Bytes,
    Kind,
    RealKind,
    TaskSettings,
    Unset,
    checked_aging,
    checked_capacity,
    choose_kind,
    no_attribute,
    refuse_unknown,
)
from ropewalk.pool.parent._reports import ReportMethods
from ropewalk.pool.parent._spawn import depth, spawn_settings, stamps
from ropewalk.pool.parent._tasks import TaskMethods
from ropewalk.pool.parent._threads import Collector, serve_thread
from ropewalk.pool.wire._handed import Handing

if TYPE_CHECKING:
    import asyncio

    from ropewalk._retry import Retry
    from ropewalk.pool.parent._actors import Actor
    from ropewalk.pool.parent._fallback import Fallback
    from ropewalk.pool.parent._sessions import Mode, Session, SessionTable

C = TypeVar("C")
T = TypeVar("T")

_NUMBERS = itertools.count()
#: The zygote receives the descriptors of all threads of a worker in one packet, which bounds their number.
_MOST_THREADS = 200
#: Some 500 MB.
_MOST_RECORDS = 1_000_000
#: The most worker processes behind a pool of interpreters.
_FALLBACK_WORKERS = 2


class Pool(_core.PoolBase, ClosingMethods, ReportMethods, TaskMethods, LifeMethods):
    """Runs functions on many cores: a `concurrent.futures.Executor`.

    A *zygote*, a small process that has imported what workers need, forks worker processes on request. They start in
    about a millisecond each, and end with the program. Arguments and results are pickled: functions by reference where
    workers can import them, else by cloudpickle. Large buffers, those of NumPy arrays for instance, travel in shared
    memory and arrive read-only.

    Args:
        workers: worker processes, or threads of a thread pool; by default one for each usable core.
        kind: ``"process"``, ``"thread"``, ``"interpreter"`` (Python 3.14), or ``"auto"``: threads where Python runs
            without a GIL, else processes. The pool's `kind` and `explain` report which kind really runs.
        threads: threads that run tasks in each worker process. Where ``"auto"`` chooses threads, the pool has so many
            times its workers. With ``kind="thread"`` it is refused: `workers` is the number of threads there.
        initializer: called with `initargs` in each worker before its first task. If it raises, the pool is broken.
        preload: names of modules that the zygote imports, so that no worker has to.
        capacity: tasks that may wait; `None` for no limit.
        overflow: what `submit` does when the queue is full: ``"block"`` waits for room, ``"error"`` raises `QueueFull`,
            ``"drop_oldest"`` fails the oldest waiting task of the lowest priority with `TaskDropped`.
        on_crash: what the pool does when a worker dies. ``"replace"`` fails the task that ran and starts another
            worker; ``"break"`` fails every pending task and breaks the pool, as the standard library does. Threads do
            not die: with ``kind="thread"`` the second is refused.
        task_timeout: seconds that each run of a task may take; see `options`.
        retries: how often a task may be run again, or a `Retry`; see `options`.
        priority: see `options`.
        writable: whether tasks may write to their array arguments; see `options`.
        grace: seconds that running tasks are given when an exception leaves the ``with`` block, or on Ctrl-C; then the
            pool ends them. If the pool ends one task of a worker with several threads, the worker's other tasks have
            the same grace.
        deadline: seconds from the submission of a task by which it must be done; see `options`.
        aging: seconds after which a waiting task stands with those of the next higher priority, and so on, so that
            none waits for ever behind higher ones; `None` for strict priorities.
        blas_threads: threads of BLAS and OpenMP in each worker process; by default the usable cores divided by the
            number of threads that run tasks, and at least 1.
        hang_timeout: seconds that a task may run without a sign of life; see `options`.
        poison_after: a task that has cost so many workers their life, by crashes or hangs, fails with `PoisonTask`,
            however many retries it has left; `None` for no limit. Threads do not die.
        max_restarts: ``(number, seconds)``: more deaths of workers than so many within such a time break the pool with
            `PoolUnhealthy`. Workers that the pool has ended itself do not count. `None` for no limit.
        records: how many tasks that have ended the pool keeps a record of, for its method `records`; 0 for none.
        cpu_time: measure the CPU time of every call. Without it only calls that take longer than some 20 µs are
            measured, because two readings of that clock take half a microsecond.
        name: the pool's name, which the names of its workers and threads contain.
        log: send the workers' log records to this process's logging, if the worker has no handler for them.
        calls: functions of this program that tasks may call by name; see `expose`.
        max_workers: the standard library's name for `workers`; with `min_workers`, the largest number.
        max_tasks: tasks that a worker process is given; then another takes its place.
        max_tasks_per_child: the standard library's name for it. It is exact: without a `recycle_jitter` there is none.
        max_age: seconds after which another worker takes a worker's place.
        max_rss: bytes of private memory beyond which another worker takes a worker's place.
        recycle_jitter: the part of each of these limits by which a worker's own may be less, from 0 to 1; each worker
            draws its own when it is started. By default 0.1.
        warmup: called in each worker process, or thread, after the initializer and before its first task.
        probe: called after that. A worker in which it raises or returns `False` is not fit for tasks: it counts as one
            that did not start, as when `warmup` raises.
        min_workers: the least number of workers. The pool begins with it, and grows up to `max_workers` while tasks
            wait longer than a millisecond.
        idle_timeout: seconds without a task after which such a pool does without a worker; by default 10.
        address: for ``kind="ray"``: ``"HOST:PORT"`` of the cluster's head, ``"auto"`` for the cluster of this machine,
            or ``"local"`` for a new one on this machine that ends with the pool. By default the program's connection,
            the cluster that the variable ``RAY_ADDRESS`` names, or a local one, in this order.
        ray_options: for ``kind="ray"``: what Ray's ``ActorClass.options`` takes, ``num_cpus``, ``num_gpus``,
            ``resources`` or ``runtime_env`` for instance.
        experimental: accept ``kind="interpreter"`` on Python 3.13, with its leak.
        fallback: for ``kind="interpreter"``: ``"process"`` runs functions in worker processes that an interpreter
            cannot load, because a compiled module refuses; ``None`` fails their tasks.

    Raises:
        ValueError, TypeError: a setting is invalid.
        EncodeError: the initializer or its arguments cannot be sent to a worker.
        LimitReached: the machine has no descriptors, processes or memory left for a pool.
        Unsupported: the system has no pidfds, which process pools need.
        ExtraMissing: ``kind="ray"``, and Ray is not installed.
        ClusterUnreachable: the Ray cluster could not be reached, or a local one could not be started.
    """

    _kind: RealKind
    _reason: str
    _name: str
    _workers: int
    _threads: int
    #: Tasks that run at once.
    _lanes: int
    _drops: bool
    #: Whether workers are processes of their own, which can be ended and take signals.
    _isolates: bool
    _blas_threads: int
    _preload: tuple[str, ...]
    _stamps: dict[str, tuple[str, int, int]]
    _settings: TaskSettings
    _life: Life
    _engine: _core.PoolHandle
    _maps: list[weakref.ref[MapIterator[Any]]]
    #: Maps of unknown length that were dropped before the program read a result: their inputs are run all the same.
    _unread: list[_core.MapIterator]
    #: Made for the first session.
    _sessions: SessionTable | None
    #: A lock for each event loop: its holder waits for room in the queue, other coroutines wait for the lock.
    _turns: weakref.WeakKeyDictionary[Any, asyncio.Lock]
    _runners: list[threading.Thread]
    #: What each thread of a thread pool begins with: the checks, the initializer, its arguments, and BLAS threads.
    _of_threads: tuple[
        Callable[[str, tuple[Any, ...], dict[str, Any]], Any],
        dict[str, Callable[[], object]],
        Callable[..., object] | None,
        tuple[Any, ...],
        int | None,
    ]
    _is_ending: bool
    _owner: int
    _grace: float
    _end_limits: EndLimits
    _collector: Collector
    #: The functions that the pool's tasks may call.
    _calls: Calls
    #: Objects that must stay alive for as long as the pool may start workers.
    _kept: list[object]
    _watch: Watch
    #: What runs functions that interpreters cannot load.
    _fallback: Fallback | None
    #: Signals that its workers ignore.
    _deaf_to: frozenset[int]

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
        overflow: Literal["block", "error", "drop_oldest"] = "block",
        on_crash: Literal["replace", "break"] = "replace",
        task_timeout: float | None = None,
        retries: int | Retry = 0,
        priority: int = 0,
        writable: bool = False,
        grace: float = 2.0,
        deadline: float | None = None,
        hang_timeout: float | None = None,
        poison_after: int | None = 3,
        max_restarts: tuple[int, float] | None = None,
        blas_threads: int | None = None,
        name: str | None = None,
        log: bool = True,
        aging: float | None = None,
        experimental: bool = False,
        records: int = 1000,
        cpu_time: bool = False,
        fallback: Literal["process"] | None = "process",
        max_workers: int | None = None,
        max_tasks: int | None = None,
        max_tasks_per_child: int | None = None,
        max_age: float | None = None,
        max_rss: Bytes | None = None,
        recycle_jitter: float | None = None,
        warmup: Callable[[], object] | None = None,
        probe: Callable[[], object] | None = None,
        min_workers: int | None = None,
        idle_timeout: float | None = None,
        address: str | None = None,
        ray_options: Mapping[str, Any] | None = None,
        calls: Mapping[str, Callable[..., Any]] | None = None,
        **unknown: Never,
    ) -> None:
        """Checks the settings and starts the workers."""
        if unknown:
            refuse_unknown(("workers", *(Pool.__init__.__kwdefaults__ or ())), unknown)
        life = Life.checked(
            max_tasks, max_tasks_per_child, max_age, max_rss, recycle_jitter, min_workers, idle_timeout
        )
        cores = usable_cores()
        count = checked_size(workers, max_workers, life.min_workers, cores)
        threads = checked_count("threads", threads, 1)
        if threads > _MOST_THREADS:
            raise ValueError(f"threads must be {_MOST_THREADS} or fewer in one process, not {threads}")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if isinstance(initargs, (str, bytes, bytearray)) or not hasattr(initargs, "__iter__"):
            raise TypeError(f"initargs must be a tuple of the initializer's arguments, not {initargs!r}")
        checked_choice("overflow", overflow, ("block", "error", "drop_oldest"))
        checked_choice("on_crash", on_crash, ("replace", "break"))
        if isinstance(preload, str):
            raise TypeError(f"preload must be a list of module names, not the string {preload!r}")
        checks = {what: call for what, call in (("warmup", warmup), ("probe", probe)) if call is not None}
        for what, call in checks.items():
            if not callable(call):
                raise TypeError(f"{what} must be a callable without arguments, not {call!r}")
        chosen, reason = choose_kind(kind, checked_switch("experimental", experimental))
        if chosen == "interpreter":
            from ropewalk.pool.parent import _interpreters

            _interpreters.refuse(threads=threads, blas_threads=blas_threads, max_rss=max_rss)
            if fallback is not None:
                checked_choice("fallback", fallback, ("process",))
            refuse_hang(hang_timeout)
        elif chosen == "thread":
            if kind == "thread":
                # Where "auto" chooses threads these are accepted: the program asks for what processes would do.
                life.refuse_threads(reason, threads=threads > 1, on_crash=on_crash == "break")
            else:
                life.refuse_threads(reason)
                count, threads = count * threads, 1
        if chosen == "ray":
            life.refuse_remote()
            from ropewalk.pool.parent._cluster import check_remote

            check_remote(threads, address, ray_options)
            refuse_hang(hang_timeout)
        elif address is not None or ray_options is not None:
            given = "address" if address is not None else "ray_options"
            raise ValueError(f'{given} is for kind="ray", and this pool has kind={kind!r}')
        name = checked_name("name", name) or f"ropewalk-{next(_NUMBERS)}"
        behind = None
        if chosen == "interpreter" and fallback is not None:
            from ropewalk.pool.parent._fallback import Fallback

            behind = Fallback(
                name,
                partial(
                    Pool,
                    min(count, _FALLBACK_WORKERS),
                    kind="process",
                    initializer=initializer,
                    initargs=initargs,
                    preload=preload,
                    grace=grace,
                    name=f"{name}-processes",
                    log=log,
                ),
            )
        self._fallback = behind
        blas = (
            max(1, cores // (count * threads))
            if blas_threads is None
            else checked_count("blas_threads", blas_threads, 1)
        )
        modules = preload = tuple(preload)
        defaults = TaskSettings.checked(
            task_timeout, retries, priority, writable, deadline, hang_timeout=hang_timeout
        )
        collector = Collector(name)
        exposed = Calls(name)
        exposed.expose_all({} if calls is None else calls)
        settings: dict[str, Any] = {
            "name": name,
            "workers": count,
            "threads": threads if chosen == "process" else 1,
            "capacity": checked_capacity(capacity, overflow),
            "overflow": overflow,
            "aging": checked_aging(aging),
            "records": checked_count("records", records, 0, _MOST_RECORDS),
            "cpu_time": checked_switch("cpu_time", cpu_time),
            "break_on_crash": on_crash == "break",
            **defaults._asdict(),
            "life": tuple(life),
            "poison_after": checked_poison(poison_after),
            "max_restarts": checked_restarts(max_restarts),
            "depth": depth(),
            "grace": checked_seconds("grace", grace),
            "future": Future,
            "start_collector": collector.start,
            "spawn": None,
            "actors": chosen == "ray",
            "interpreters": None,
            "fallback": None,
        }
        self._is_checked()
        # Threads already share the program's state. A thread pool must not read `sys.modules` either: see
        # `_surroundings.depth`.
        handing = Handing() if chosen == "process" else None
        fleet = None
        if chosen == "ray":
            from ropewalk.pool.parent._ray import Fleet

            sized = None if workers is None and max_workers is None else count
            begin = initializer, tuple(initargs), checks
            fleet = Fleet(name, sized, modules, begin, blas_threads, address, log)
            count = settings["workers"] = fleet.count
            blas = fleet.blas_threads
        try:
            if handing is not None:
                settings["spawn"] = spawn_settings(
                    modules, initializer, tuple(initargs), threads, blas, name, bool(log), handing, checks
                )
            if chosen == "interpreter":
                from ropewalk.pool.parent import _interpreters

                if behind is not None:
                    settings["fallback"] = behind.choose
                settings["interpreters"] = _interpreters.settings_of(
                    modules, initializer, tuple(initargs), name, bool(log), checks
                )
            self._start(settings)
        except BaseException:
            if fleet is not None:
                fleet.release()
            raise
        finally:
            if handing is not None:
                handing.close()
        self._kind = chosen
        self._reason = reason
        self._name = name
        self._life = life
        self._workers = count
        self._threads = threads
        self._lanes = count * settings["threads"]
        self._blas_threads = blas
        self._preload = modules
        self._memory = {}
        self._stamps = stamps(modules) if chosen == "process" else {}
        self._settings = defaults
        self._drops = overflow == "drop_oldest"
        self._engine = self._handle()
        self._isolates = self._engine.isolates
        self._maps = []
        self._unread = []
        self._sessions = None
        self._turns = weakref.WeakKeyDictionary()
        self._runners = []
        #: Whether an exception has left the `with` block, or ended the pool.
        self._is_ending = False
        self._owner = os.getpid()
        self._grace = checked_seconds("grace", grace)
        self._end_limits = EndLimits(self._grace, None if self._isolates else self._grace)
        self._collector = collector
        self._calls = exposed
        self._kept = [] if handing is None else handing.kept
        # Before any thread starts, because threads live until the engine is closed and the next steps may raise.
        abandon_with(self, self._engine, self._owner, self._kept, self._end_limits)
        if chosen == "thread":
            self._of_threads = (exposed.from_threads(), checks, initializer, tuple(initargs), blas_threads)
            try:
                self._add_threads(count)
            except BaseException:
                self._engine.terminate()
                raise
        if calls:
            exposed.serve(self._engine)
        if fleet is not None:
            try:
                fleet.serve(self._engine, ray_options or {}, self._runners)
            except BaseException:
                self._engine.terminate()
                raise
        self._deaf_to = frozenset(DRAINING)
        self._watch = Watch(name, self._engine)
        if hang_timeout is not None:
            self._watch.start()
        if chosen == "interpreter":
            from ropewalk.pool.parent import _interpreters

            try:
                _interpreters.Crew(self._engine, name, self._runners).start()
            except BaseException:
                self._engine.terminate()
                raise
        forget_ended()
        opened(self._engine)

    def _is_checked(self) -> None:
        """Called when all settings have been checked and nothing has been started: see `check_settings`."""

    def expose(self, name: str, function: Callable[..., Any], /) -> None:
        """Lets the tasks of this pool call a function of this program, by `CurrentTask.call` and this name.

        A thread of the pool's runs the function, with no lock held; several calls may run at once. A coroutine function
        runs on the event loop that entered the pool by ``async with``. In a thread pool the task's own thread runs the
        function. A function that is exposed under a known name takes the place of the one before it.

        A task that calls keeps its worker. A function that waits for another task of the same pool may find that every
        worker waits for such a function; then its wait raises `PoolError`.

        Raises:
            TypeError, ValueError: the name is not a text or empty, or the function cannot be called.
        """
        self._calls.expose(name, function)
        self._calls.serve(self._engine)

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
        return await self._in_turn(lambda: self._try_submit(fn, args, kwargs, options))

    async def _in_turn(self, submit: Callable[[], T | None]) -> T:
        """Awaits room in a full queue, and submits; `submit` returns `None` if there is none after all."""
        import asyncio

        loop = asyncio.get_running_loop()
        turn = self._turns.get(loop)
        if turn is None:
            turn = self._turns.setdefault(loop, asyncio.Lock())
        async with turn:
            while True:
                room = self._room()
                if room is None:
                    submitted = submit()
                    if submitted is not None:
                        return submitted
                    continue
                try:
                    await self._posted(room)
                finally:
                    self._forget_room(room)

    # --- sessions and actors ----------------------------------------------------------------------------------------

    def session(
        self,
        key: str | int,
        init: Callable[..., object] | Unset | None = UNSET,
        args: Iterable[Any] = (),
        *,
        mode: Mode | Unset = UNSET,
        ttl: float | Unset | None = UNSET,
        **unknown: Never,
    ) -> Session:
        """Returns a view of the pool whose tasks find the state of a session in their worker.

        ``init(*args)`` runs in the worker before the session's first task there. What it returns is the state: tasks
        get it from `current_session().state`. A session that has lost its worker gets a new state in another. If
        `init` raises, so does the task that needed the state; the next task tries again.

        Equal keys name one session of the pool, which lives until it is closed. ``session(key)`` without `init` finds
        it, whatever its settings are, and makes none.

        Args:
            key: the session's name, a `str` or an `int`.
            init: makes the state; with ``None`` the state is `None`.
            args: the arguments of `init`.
            mode: what a task does while the session's worker is busy: ``"prefer"``, the default of a new session, goes
                to another worker, where the state is made too; ``"queue"`` waits; ``"fail"`` makes the submission raise
                `SessionBusy`.
            ttl: seconds without a task after which a worker drops the state, and the next task makes it anew; a new
                session has no such limit by default.

        Raises:
            TypeError, ValueError: an argument is invalid, or the session has other settings.
            SessionMissing: there is no session of this key, and no `init`.
            PoolClosed: the pool was shut down.
            EncodeError: `init` or its arguments cannot be pickled.
        """
        from ropewalk.pool.parent._sessions import refuse_unknown_setting, table_of

        if unknown:
            refuse_unknown_setting(unknown)
        return table_of(self).open(self, key, init, args, mode, ttl)

    def actor(self, cls: type[C], /, *args: Any, max_restarts: int = 0, **kwargs: Any) -> Actor[C]:
        """Makes an object in a worker, and returns a handle whose methods are tasks there.

        Args:
            cls: the class; it is called with `args` and `kwargs` in the worker.
            max_restarts: how often the object may be made again, with the same arguments, after its worker has died.
                After that its calls fail with `ActorDied`.

        Raises:
            TypeError, ValueError: an argument is invalid.
            EncodeError: the class or its arguments cannot be pickled.
        """
        from ropewalk.pool.parent._actors import make_actor

        return make_actor(self, cls, args, kwargs, max_restarts)

    # --- the pool itself --------------------------------------------------------------------------------------------

    @property
    def kind(self) -> RealKind:
        """The kind that really runs the tasks: ``"process"``, ``"thread"``, ``"interpreter"`` or ``"ray"``."""
        return self._kind

    @_core.Finalizer
    def __del__(self) -> None:
        """Submits the inputs of the pool's maps, as `shutdown` does."""
        engine = vars(self).get("_engine")
        if engine is not None and "_calls" in vars(self) and not engine.ended:
            # The tasks that it has accepted may call yet.
            self._calls.outlive()
        if engine is not None and not engine.closed and not self._is_forked() and "_kept" in vars(self):
            try:
                self._take_inputs()
            except (KeyboardInterrupt, SystemExit) as error:  # A finalizer cannot raise.
                _core.raise_later(error)

    @property
    def _max_workers(self) -> int:
        """The number of tasks that run at once, under the name by which dask reads it from executors."""
        return self._lanes

    def _is_forked(self) -> bool:
        """Whether this process is a forked child of the one that made the pool and has its workers."""
        return os.getpid() != self._owner

    def __repr__(self) -> str:
        if "_engine" not in vars(self):
            return object.__repr__(self)
        state = "closed" if self._engine.closed else "open"
        return f"<ropewalk.Pool {self._name} kind={self._kind} workers={self._workers} {state}>"

    def _add_threads(self, count: int) -> None:
        # Not by the threads themselves: the program may be importing a module that waits for them.
        from ropewalk._current import HERE
        from ropewalk.pool.wire._fitness import reason

        for number in range(len(self._runners), len(self._runners) + count):
            serve = partial(serve_thread, HERE, reason, self._engine, *self._of_threads)
            thread = Runner(self._engine, serve, f"{self._name}-thread-{number}")
            start(thread)
            self._runners.append(thread)


class _Checked(Exception):
    """Ends the construction of a `_Checking`."""


class _Checking(Pool):
    """A pool that is never started."""

    def _is_checked(self) -> None:
        raise _Checked


def check_settings(settings: Mapping[str, Any]) -> None:
    """Checks the arguments of a pool as `Pool` does, and starts nothing.

    Raises:
        TypeError, ValueError: a setting is invalid.
    """
    try:
        # With a name, so that it takes no number from the pools without one.
        named: dict[str, Any] = {"name": "checked", **settings}
        _Checking(**named)
    except _Checked:
        return
