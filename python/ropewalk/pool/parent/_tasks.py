"""`TaskMethods`, the methods that a pool and its views share, and `PoolOptions`, such a view."""

from __future__ import annotations

import concurrent.futures
import operator
import os
import sys
import weakref
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    Never,
    ParamSpec,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from ropewalk._checked import checked_count, checked_switch, checked_wait
from ropewalk.pool.parent._map import MapIterator, MapWithProgress
from ropewalk.pool.parent._options import (
    OPTIONS,
    POOL_METHODS,
    UNSET,
    RealKind,
    TaskSettings,
    Unset,
    no_attribute,
    refuse_unknown,
)

if TYPE_CHECKING:
    from ropewalk._retry import Retry
    from ropewalk.pool.parent._future import Future
    from ropewalk.pool.parent._pool import Pool
    from ropewalk.pool.parent._records import QuarantinedTask, TaskRecord
    from ropewalk.pool.parent._statistics import PoolStatistics
    from ropewalk.pool.parent._stream import Stream
    from ropewalk.result import Err, Ok

A = TypeVar("A")
B = TypeVar("B")
F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")


_MAP_ARGUMENTS = ("timeout", "chunksize", "buffersize", "results", "progress", "journal")


def _known_length(iterables: tuple[Iterable[Any], ...]) -> int | None:
    """Returns the number of inputs; `None` if one of the iterables does not know its length."""
    try:
        return min(len(iterable) for iterable in iterables)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):  # A `range` may be longer than `len` can return.
        return None


class MapRequest(NamedTuple):
    """The arguments of `map` that are not the function and the iterables, as they were given."""

    ordered: bool
    timeout: float | None
    chunksize: int | None
    buffersize: int | None
    results: bool
    progress: bool
    journal: str | os.PathLike[str] | None


class MapSettings(TypedDict, total=False):
    """The settings of `map` and `map_unordered` that do not change the type of the results."""

    timeout: float | None
    chunksize: int | None
    buffersize: int | None
    progress: bool
    journal: str | os.PathLike[str] | None


def _path_of(journal: str | bytes | os.PathLike[str]) -> str:
    """Returns the path of a map's journal, without symbolic links.

    Raises:
        TypeError: it is no path.
    """
    try:
        path = os.fspath(journal)
    except TypeError:
        raise TypeError(f"journal must be the path of a file or None, not {journal!r}") from None
    return os.path.realpath(os.fsdecode(path))


def _typed_as(_like: F) -> Callable[[Callable[..., Any]], F]:
    """Gives a method the signatures of another for type checkers, and changes nothing at run time."""
    return lambda method: cast("F", method)


class TaskMethods(concurrent.futures.Executor):
    """The methods that submit tasks, shared by `Pool` and `PoolOptions`."""

    def _view(self) -> tuple[Pool, TaskSettings]:
        """Returns the pool, and the settings of tasks that are submitted through this object."""
        raise NotImplementedError

    def _may_drop(self) -> bool:
        """Whether a task that is submitted may take the place of another one."""
        return self._view()[0]._drops

    #: `submit` as it is here: no other method calls the override of a subclass.
    _submit_plainly: Callable[..., Future[Any]]

    async def __aenter__(self) -> Self:
        """Returns the pool or view itself. The coroutine functions that it exposes run on this event loop."""
        import asyncio

        self._view()[0]._calls.use_loop(asyncio.get_running_loop())
        return self

    # The standard library's declaration does not check the function's parameters.
    @overload  # type: ignore[override]
    def map(
        self,
        fn: Callable[[A], T],
        inputs: Iterable[A],
        /,
        *,
        results: Literal[False] = ...,
        **settings: Unpack[MapSettings],
    ) -> MapIterator[T]: ...
    @overload
    def map(
        self,
        fn: Callable[[A], T],
        inputs: Iterable[A],
        /,
        *,
        results: Literal[True],
        **settings: Unpack[MapSettings],
    ) -> MapIterator[Ok[T] | Err[Exception]]: ...
    @overload
    def map(
        self,
        fn: Callable[[A, B], T],
        first: Iterable[A],
        second: Iterable[B],
        /,
        *,
        results: Literal[False] = ...,
        **settings: Unpack[MapSettings],
    ) -> MapIterator[T]: ...
    @overload
    def map(
        self,
        fn: Callable[[A, B], T],
        first: Iterable[A],
        second: Iterable[B],
        /,
        *,
        results: Literal[True],
        **settings: Unpack[MapSettings],
    ) -> MapIterator[Ok[T] | Err[Exception]]: ...
    @overload
    def map(
        self,
        fn: Callable[..., T],
        first: Iterable[Any],
        second: Iterable[Any],
        third: Iterable[Any],
        /,
        *iterables: Iterable[Any],
        results: Literal[False] = ...,
        **settings: Unpack[MapSettings],
    ) -> MapIterator[T]: ...
    @overload
    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        results: bool,
        **settings: Unpack[MapSettings],
    ) -> MapIterator[Any]: ...
    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
        results: bool = False,
        progress: bool = False,
        journal: str | os.PathLike[str] | None = None,
        **unknown: Never,
    ) -> MapIterator[Any]:
        """Runs `fn` on each input, and returns an iterator over the results in order, for ``for`` and ``async for``.

        The iterator reads the inputs a bounded number ahead of the results, so the inputs may be endless. An input that
        fails raises when its turn comes; after that the iterator goes on with the next.

        Args:
            fn: called with one element of each iterable.
            iterables: the shortest one ends the map.
            timeout: seconds from now within which each result must arrive; after them the iterator raises
                `TimeoutError`.
            chunksize: inputs sent to a worker process at once; by default learned from how long they take.
            buffersize: tasks that may be ahead of the results read; each is one input, or `chunksize` of them.
            results: yield a `Result` for each input, `Ok` of the returned value or `Err` of the exception, so that no
                input ends the map. Errors that no input has caused still raise: those of the iterables, the map's
                timeout, a pool that is shut down. If a worker dies, the inputs of its chunk that it had begun
                and not yet reported come as `Err`; with a `chunksize` of yours, all inputs of the chunk.
                ``chunksize=1`` confines the loss to one input, and `retries` run them again.
            progress: draw a progress bar, if standard error is a terminal or in a notebook.
            journal: the path of a file in which each result is recorded. Inputs whose results it has from an earlier
                run do not run again, whatever has ended that run: their results come from the file. An input is known
                by the function's name and its own value. Inputs that failed run again. Results must be picklable; each
                input is a task of its own.

        Raises:
            TypeError, ValueError: an argument is invalid.
            PoolClosed: the pool was shut down.
            JournalError: the journal cannot be opened, or a result cannot be recorded; see `Journal`.
        """
        if unknown:
            refuse_unknown(_MAP_ARGUMENTS, unknown, "map")
        request = MapRequest(True, timeout, chunksize, buffersize, results, progress, journal)
        return self._map(fn, iterables, request)

    @_typed_as(map)
    def map_unordered(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
        results: bool = False,
        progress: bool = False,
        journal: str | os.PathLike[str] | None = None,
        **unknown: Never,
    ) -> MapIterator[Any]:
        """Runs `fn` on each input as `map` does, and returns an iterator over the results in order of completion."""
        if unknown:
            refuse_unknown(_MAP_ARGUMENTS, unknown, "map_unordered")
        request = MapRequest(False, timeout, chunksize, buffersize, results, progress, journal)
        return self._map(fn, iterables, request)

    def submit_nowait(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submits a call as `submit` does, but never waits.

        Raises:
            QueueFull: the queue is full, and the pool drops no task for this one.
            PoolClosed: the pool was shut down.
        """
        pool, settings = self._view()
        return pool._submit_nowait(fn, args, kwargs, settings)

    async def submit_async(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submits a call as `submit` does, and awaits room in a full queue without blocking the event loop.

        It returns the same future as `submit`. It pickles the function and its arguments when the queue has room.
        Waiting calls of one loop are served in their order.

        Cancel safety: a wait that is cancelled has submitted nothing.
        """
        pool, settings = self._view()
        if pool._waits_for_room:
            return await pool._submit_in_turn(fn, args, kwargs, settings)
        return self._submit_plainly(fn, *args, **kwargs)

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs one task and awaits its result; in a full queue it first awaits room, as `submit_async` does.

        Cancel safety: cancelling the await cancels the task, and ends it if it runs in a worker process. An await that
        is cancelled while it waits for room has submitted nothing.
        """
        pool, settings = self._view()
        # Without another coroutine if the queue has room.
        if pool._waits_for_room:
            future = await pool._submit_in_turn(fn, args, kwargs, settings)
        else:
            future = self._submit_plainly(fn, *args, **kwargs)
        return await pool._await(future)

    @overload
    def stream(self, fn: Callable[P, Iterable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Stream[T]: ...
    @overload
    def stream(
        self, fn: Callable[P, AsyncIterable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Stream[T]: ...
    def stream(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Stream[Any]:
        """Runs a generator function as a task, and returns an iterator over its items, for ``for`` and ``async for``.

        Each item can be read as soon as the task has yielded it. The task is at most ``buffersize`` items (see
        `options`) or 16 MiB ahead of the reader; then it waits. A reader that leaves, by ``break``, `Stream.close`, or
        because nothing refers to the stream any more, stops the task: the generator is closed, and runs its
        ``finally``. So does the end of the pool.

        A stream that has delivered an item is not run again, whatever its ``retries``.

        Args:
            fn: a generator function, synchronous or asynchronous, or one that returns an iterable.
            args: its arguments by position.
            kwargs: its arguments by name.

        Raises:
            PoolClosed, PoolBroken, QueueFull: as `submit`.

        Examples:
            >>> import ropewalk
            >>> with ropewalk.Pool(1, kind="thread") as pool:
            ...     print([square for square in pool.stream(map, lambda n: n * n, range(4))])
            [0, 1, 4, 9]
        """
        pool, settings = self._view()
        if not callable(fn):
            raise TypeError(f"stream needs a callable, not {fn!r}")
        # Its module is loaded with the first stream.
        from ropewalk.pool.parent._stream import Stream

        stream: Stream[Any] = Stream()
        stream._start(pool, fn, args, kwargs, settings, True)
        return stream

    @overload
    async def stream_async(
        self, fn: Callable[P, Iterable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Stream[T]: ...
    @overload
    async def stream_async(
        self, fn: Callable[P, AsyncIterable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Stream[T]: ...
    async def stream_async(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Stream[Any]:
        """Starts a stream as `stream` does, and awaits room in a full queue without blocking the event loop.

        ``async for item in await pool.stream_async(f)`` reads it.

        Cancel safety: a wait that is cancelled has submitted nothing.
        """
        pool, settings = self._view()
        if not callable(fn) or not pool._waits_for_room:
            return self.stream(fn, *args, **kwargs)
        from ropewalk.pool.parent._stream import Stream

        stream: Stream[Any] = Stream()
        await pool._in_turn(lambda: stream._start(pool, fn, args, kwargs, settings, False) or None)
        return stream

    def options(
        self,
        *,
        task_timeout: float | Unset | None = UNSET,
        retries: int | Retry | Unset = UNSET,
        priority: int | Unset = UNSET,
        writable: bool | Unset = UNSET,
        deadline: float | Unset | None = UNSET,
        client: str | Unset | None = UNSET,
        share: int | Unset = UNSET,
        buffersize: int | Unset = UNSET,
        hang_timeout: float | Unset | None = UNSET,
        **unknown: Never,
    ) -> PoolOptions:
        """Returns a view of the pool that submits tasks with other settings.

        Args:
            task_timeout: seconds that each run of the task may take, counted from the start of the call. The time in
                the queue does not count, nor the time in which the worker imports the function's module and unpickles
                the arguments. A task that overruns it fails with `TaskTimeout`. In a worker process the task is ended
                together with its worker; in a thread the call goes on. Each retry has the whole time.
            retries: how often the task may be run again after it raised or its worker died, or a `Retry`, which says
                when and after which exceptions, too. A task with retries must be idempotent, because an earlier run may
                have done part of it.
            priority: tasks of a higher priority run first, those of equal priority in order of submission; 0 is usual.
            writable: whether a task in a worker process may write to the arrays and other buffers in its arguments.
                They are read-only by default, because other tasks may read the same memory. With ``True`` each task
                writes to a private copy, which the kernel makes page by page. Shared arrays, and the arguments of a
                thread pool's tasks, are the caller's own memory in either case.
            deadline: seconds from the submission by which the task must be done. It includes the time in the queue, all
                runs, and the transfer of arguments and result. A late task fails with `TaskTimeout`, whether it has
                started or not.
            client: the name of the client whose tasks these are. Clients that wait take turns, so that none that
                submits many tasks holds up the others; tasks without a client are one client's.
            share: how many tasks of the client go in one turn, 1 unless given.
            buffersize: items of a `stream` that may wait to be read; 1024 by default.
            hang_timeout: seconds that the task may run without a sign of life. Signs of life are the beginning of the
                call, the next input of a batch, and `CurrentTask.heartbeat` and `progress`. A task that hangs fails
                with `TaskHung`, which has its stack, or is run again if it has `retries`. In a worker process the task
                is ended together with its worker; in a thread the call goes on, and is not run again.

        Raises:
            TypeError, ValueError: a setting is invalid.
        """
        if unknown:
            refuse_unknown(OPTIONS, unknown, "options")
        pool, settings = self._view()
        changed = settings.changed(
            task_timeout=task_timeout,
            retries=retries,
            priority=priority,
            writable=writable,
            deadline=deadline,
            client=client,
            share=share,
            buffersize=buffersize,
            hang_timeout=hang_timeout,
        )
        if changed.hang_timeout is not None:
            pool._watch.start()
        return PoolOptions(pool, changed)

    def _runs(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Returns what the tasks of a map call for this function."""
        return fn

    def _map(
        self, fn: Callable[..., Any], iterables: tuple[Iterable[Any], ...], request: MapRequest
    ) -> MapIterator[Any]:
        if not callable(fn):
            raise TypeError(f"map needs a callable, not {fn!r}")
        chunksize, buffersize, journal = request.chunksize, request.buffersize, request.journal
        if chunksize is not None:
            chunksize = checked_count("chunksize", chunksize, 1)
        if buffersize is not None:
            try:
                buffersize = operator.index(buffersize)
            except TypeError:
                raise TypeError("buffersize must be an integer or None") from None
            if buffersize < 1:
                raise ValueError("buffersize must be None or > 0")
            buffersize = min(buffersize, sys.maxsize)
        wait = checked_wait("timeout", request.timeout)
        pairs: tuple[type[Ok[Any]], type[Err[Any]]] | None = None
        if checked_switch("results", request.results):
            from ropewalk.result import Err, Ok

            pairs = Ok, Err
        progress = checked_switch("progress", request.progress)
        path = None if journal is None else _path_of(journal)
        if path is not None and chunksize is not None:
            raise ValueError("chunksize is not for a map with a journal: each of its inputs is a task")
        pool, options = self._view()
        if pool._engine.closed:
            # It raises the error of a submission, before `map` reads an input.
            pool._submit_plainly(fn)
        length = _known_length(iterables)
        source: Iterator[Any] = iter(iterables[0]) if len(iterables) == 1 else zip(*iterables, strict=False)
        settings = {
            # First, because the map's own `buffersize` is another than that of a stream.
            **options._asdict(),
            "star": len(iterables) != 1,
            "ordered": request.ordered,
            "timeout": wait,
            "chunksize": chunksize,
            "buffersize": buffersize,
            "length": length,
            "unread": pool._unread,
            "lanes": pool._lanes,
            "results": pairs,
        }
        made: MapIterator[Any]
        if path is None:
            made = (MapWithProgress if progress else MapIterator)(pool, self._runs(fn), source, settings)
        else:
            # Its module is loaded with the first such map.
            from ropewalk.pool.parent._journaled import journaled_map

            made = journaled_map(pool, (fn, self._runs(fn)), source, path, settings, options, progress)
        # Without callbacks of weak references: an interrupt could be raised in such a callback, and be lost.
        pool._maps[:] = [known for known in pool._maps if known() is not None]
        pool._maps.append(weakref.ref(made))
        return made


# The error for wrong arguments then names the public method.
for _name in (
    "map",
    "map_unordered",
    "run",
    "submit_nowait",
    "submit_async",
    "stream",
    "stream_async",
    "options",
):
    vars(TaskMethods)[_name].__qualname__ = f"Pool.{_name}"


class PoolOptions(TaskMethods):
    """A view of a pool with other settings for its tasks; only `Pool.options` makes one.

    It is an executor like the pool itself, and is accepted wherever a pool is, ``loop.run_in_executor`` for instance.

    Examples:
        >>> import ropewalk
        >>> with ropewalk.Pool(2, kind="thread") as pool:
        ...     patient = pool.options(task_timeout=60, retries=2)
        ...     print(list(patient.map(abs, [-1, 2])))
        [1, 2]
    """

    def __init__(self, pool: Pool, settings: TaskSettings) -> None:
        """For `Pool.options` alone, which has checked the settings."""
        self._pool = pool
        self._settings = settings

    @property
    def pool(self) -> Pool:
        """The pool that runs the tasks."""
        return self._pool

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submits a call as `Pool.submit` does, with these settings."""
        return self._pool._submit(fn, args, kwargs, self._settings)

    _submit_plainly = submit

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            raise no_attribute(self, name, POOL_METHODS)

    def _view(self) -> tuple[Pool, TaskSettings]:
        return self._pool, self._settings

    @property
    def kind(self) -> RealKind:
        """The kind that runs the tasks, as in `Pool.kind`."""
        return self._pool.kind

    def explain(self) -> str:
        """Explains the pool, as `Pool.explain` does."""
        return self._pool.explain()

    def statistics(self) -> PoolStatistics:
        """Returns the counters of the whole pool, as `Pool.statistics` does."""
        return self._pool.statistics()

    def records(self) -> tuple[TaskRecord, ...]:
        """Returns the records of the whole pool's last tasks, as `Pool.records` does."""
        return self._pool.records()

    def quarantine(self) -> tuple[QuarantinedTask, ...]:
        """Returns the last tasks of the whole pool that failed with `PoisonTask`, as `Pool.quarantine` does."""
        return self._pool.quarantine()

    def shutdown(
        self, wait: bool = True, *, cancel_futures: bool = False, timeout: float | None = None
    ) -> None:
        """Shuts the whole pool down, as `Pool.shutdown` does: a view has no end of its own."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures, timeout=timeout)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leaves the whole pool, as ``with`` over the pool itself does; without a block the pool goes on."""
        self._pool.__exit__(kind, value, traceback)

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leaves the whole pool, as ``async with`` over the pool itself does; without a block the pool goes on."""
        await self._pool.__aexit__(kind, value, traceback)

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self._settings._asdict().items())
        return f"<ropewalk.PoolOptions of {self._pool._name}: {settings}>"
