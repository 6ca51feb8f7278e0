"""`TaskMethods`, what a pool and its views share, and `PoolOptions`, such a view."""

from __future__ import annotations

import concurrent.futures
import operator
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
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
    POOL_METHODS,
    UNSET,
    TaskSettings,
    Unset,
    no_attribute,
    refuse_unknown,
)
from ropewalk.result import Err, Ok

if TYPE_CHECKING:
    from ropewalk.pool.parent._future import Future
    from ropewalk.pool.parent._pool import Pool
    from ropewalk.pool.parent._statistics import PoolStatistics

A = TypeVar("A")
B = TypeVar("B")
F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")


_MAP_ARGUMENTS = ("timeout", "chunksize", "buffersize", "results", "progress")


def _known_length(iterables: tuple[Iterable[Any], ...]) -> int | None:
    """How many inputs there are; `None` if one of the iterables does not know its length."""
    try:
        return min(len(iterable) for iterable in iterables)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):  # A `range` may be longer than any length can say.
        return None


class MapSettings(TypedDict, total=False):
    """The settings of `map` and `map_unordered` that leave the type of what they give as it is."""

    timeout: float | None
    chunksize: int | None
    buffersize: int | None
    progress: bool


def _typed_as(_like: F) -> Callable[[Callable[..., Any]], F]:
    """Gives a method the signatures of another for type checkers; it stays as it is."""
    return lambda method: cast("F", method)


class TaskMethods(concurrent.futures.Executor):
    """Runs functions over inputs, with settings of its own for the tasks."""

    def _view(self) -> tuple[Pool, TaskSettings]:
        """The pool, and the settings of tasks that are submitted here."""
        raise NotImplementedError

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            raise no_attribute(self, name, POOL_METHODS)

    async def __aenter__(self) -> Self:
        """The pool, or the view, itself."""
        return self

    # The standard library's does not look at what the function takes.
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
        **unknown: Never,
    ) -> MapIterator[Any]:
        """Results of `fn` over the inputs, in their order; for ``for`` and for ``async for``.

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
            progress: draw a progress bar on standard error, or in the notebook. Nothing is drawn where standard error
                is neither.

        Raises:
            TypeError, ValueError: for arguments that make no sense.
            PoolClosed: after `shutdown`.
        """
        if unknown:
            refuse_unknown(_MAP_ARGUMENTS, unknown, "map")
        return self._map(fn, iterables, True, timeout, chunksize, buffersize, results, progress)

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
        **unknown: Never,
    ) -> MapIterator[Any]:
        """Results of `fn` over the inputs, in the order in which they are done; else as `map`."""
        if unknown:
            refuse_unknown(_MAP_ARGUMENTS, unknown, "map_unordered")
        return self._map(fn, iterables, False, timeout, chunksize, buffersize, results, progress)

    def submit_nowait(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submits a call as `submit` does, but never waits for room: in a full queue it raises `QueueFull` at once."""
        pool, settings = self._view()
        return pool._submit_nowait(fn, args, kwargs, settings)

    async def submit_async(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submits a call as `submit` does, and awaits room in a full queue without blocking the event loop.

        The function and its arguments are pickled when there is room. Waiting calls of one loop are served in their
        order. What is returned is the future of the result, as `submit` returns it.

        Cancel safety: a wait that is cancelled has submitted nothing.
        """
        pool, settings = self._view()
        if pool._waits_for_room:
            return await pool._submit_in_turn(fn, args, kwargs, settings)
        return cast("Future[T]", self.submit(fn, *args, **kwargs))

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs one task and waits for its result in asyncio; in a full queue it waits for room as `submit_async` does.

        Cancel safety: cancelling the await cancels the task; one that is running in a worker process is ended. An await
        that is cancelled while it waits for room has submitted nothing.
        """
        pool, _ = self._view()
        # A coroutine less where nothing has to be waited for.
        waits = pool._waits_for_room
        future = await self.submit_async(fn, *args, **kwargs) if waits else self.submit(fn, *args, **kwargs)
        return await pool._await(cast("Future[T]", future))

    def options(
        self,
        *,
        task_timeout: float | Unset | None = UNSET,
        retries: int | Unset = UNSET,
        priority: int | Unset = UNSET,
        writable: bool | Unset = UNSET,
        deadline: float | Unset | None = UNSET,
        **unknown: Never,
    ) -> PoolOptions:
        """A view of the pool whose tasks have other settings than those that are submitted here.

        Args:
            task_timeout: seconds that a run of the task may take. It counts from the moment at which the worker begins
                the call: not while the task waits, nor while the worker imports the function's module and unpickles the
                arguments. A task that overruns it fails with `TaskTimeout`; in a worker process it is ended, with its
                worker, in a thread the call goes on. Each retry has the whole of it.
            retries: how often a task may be run again after it raised, or after its worker died. Giving it declares
                the task idempotent: it may have run in part before.
            priority: tasks of a higher priority go first; 0 is usual, and equal ones go in order.
            writable: whether a task in a worker process may write to the arrays and other buffers that it is given.
                They are read-only by default, because other tasks may be looking at the same memory. With ``True``
                each task writes to a copy of its own, made page by page as it writes. Shared arrays, and the arguments
                of a thread pool's tasks, are the caller's own memory in any case.
            deadline: seconds from the submission by which the task must be done, waiting, all its runs and the ways
                there and back included. A task that is late fails with `TaskTimeout`, whether it has started or not.

        Raises:
            TypeError, ValueError: for settings that make no sense.
        """
        if unknown:
            refuse_unknown(TaskSettings._fields, unknown, "options")
        pool, settings = self._view()
        changed = settings.changed(
            task_timeout=task_timeout,
            retries=retries,
            priority=priority,
            writable=writable,
            deadline=deadline,
        )
        return PoolOptions(pool, changed)

    def _map(
        self,
        fn: Callable[..., Any],
        iterables: tuple[Iterable[Any], ...],
        ordered: bool,
        timeout: float | None,
        chunksize: int | None,
        buffersize: int | None,
        results: bool,
        progress: bool,
    ) -> MapIterator[Any]:
        if not callable(fn):
            raise TypeError(f"map needs a callable, not {fn!r}")
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
        wait = checked_wait("timeout", timeout)
        pairs = (Ok, Err) if checked_switch("results", results) else None
        kind = cast(
            "type[MapIterator[Any]]", MapWithProgress if checked_switch("progress", progress) else MapIterator
        )
        pool, options = self._view()
        if pool._engine.closed:
            # The error that a submission would raise, before any input is taken.
            pool.submit(fn)
        length = _known_length(iterables)
        source: Iterator[Any] = iter(iterables[0]) if len(iterables) == 1 else zip(*iterables, strict=False)
        settings = {
            "star": len(iterables) != 1,
            "ordered": ordered,
            "timeout": wait,
            "chunksize": chunksize,
            "buffersize": buffersize,
            "length": length,
            "unread": pool._unread,
            "lanes": pool._workers * (pool._threads if pool._kind == "process" else 1),
            "task_timeout": options.task_timeout,
            "retries": options.retries,
            "priority": options.priority,
            "writable": options.writable,
            "deadline": options.deadline,
            "results": pairs,
        }
        made = kind(pool, fn, source, settings)
        # Without callbacks of weak references: an interrupt that comes meanwhile would be raised in one, and lost.
        pool._maps[:] = [known for known in pool._maps if known() is not None]
        pool._maps.append(weakref.ref(made))
        return made


# A call with the wrong arguments names the method as programs know it.
for _name in ("map", "map_unordered", "run", "submit_nowait", "submit_async", "options"):
    vars(TaskMethods)[_name].__qualname__ = f"Pool.{_name}"


class PoolOptions(TaskMethods):
    """A view of a pool with other settings for its tasks; made by `Pool.options`.

    It is an executor like the pool itself, so it goes wherever a pool goes, ``loop.run_in_executor`` for instance.

    Examples:
        >>> import ropewalk
        >>> with ropewalk.Pool(2, kind="thread") as pool:
        ...     patient = pool.options(task_timeout=60, retries=2)
        ...     print(list(patient.map(abs, [-1, 2])))
        [1, 2]
    """

    __module__ = "ropewalk"

    def __init__(self, pool: Pool, settings: TaskSettings) -> None:
        """Not to be called: `Pool.options` does, with settings that it has checked."""
        self._pool = pool
        self._settings = settings

    @property
    def pool(self) -> Pool:
        """The pool that runs the tasks."""
        return self._pool

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submits a call with these settings; else as `Pool.submit`."""
        return self._pool._submit(fn, args, kwargs, self._settings)

    def _view(self) -> tuple[Pool, TaskSettings]:
        return self._pool, self._settings

    @property
    def kind(self) -> Literal["process", "thread"]:
        """As `Pool.kind`."""
        return self._pool.kind

    def explain(self) -> str:
        """As `Pool.explain`."""
        return self._pool.explain()

    def statistics(self) -> PoolStatistics:
        """As `Pool.statistics`: the counters of the whole pool."""
        return self._pool.statistics()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shuts the pool down, as `Pool.shutdown`."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leaves the pool, as ``with`` over the pool itself does."""
        self._pool.__exit__(kind, value, traceback)

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leaves the pool, as ``async with`` over the pool itself does."""
        await self._pool.__aexit__(kind, value, traceback)

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self._settings._asdict().items())
        return f"<ropewalk.PoolOptions of {self._pool._name}: {settings}>"
