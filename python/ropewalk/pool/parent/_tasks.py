"""What a pool and its views share: `map`, `map_unordered` and `run`."""

from __future__ import annotations

import concurrent.futures
import operator
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, Never, ParamSpec, TypeVar, cast, overload

from ropewalk.pool.parent._map import MapIterator, MapWithProgress
from ropewalk.pool.parent._options import (
    POOL_METHODS,
    TaskSettings,
    checked_count,
    checked_wait,
    no_attribute,
    refuse_unknown,
)
from ropewalk.result import Err, Ok

if TYPE_CHECKING:
    from ropewalk.pool.parent._future import Future
    from ropewalk.pool.parent._pool import Pool

A = TypeVar("A")
B = TypeVar("B")
P = ParamSpec("P")
T = TypeVar("T")


_MAP_ARGUMENTS = ("timeout", "chunksize", "buffersize", "results", "progress")


def _known_length(iterables: tuple[Iterable[Any], ...]) -> int | None:
    """How many inputs there are; `None` if one of the iterables does not know its length."""
    try:
        return min(len(iterable) for iterable in iterables)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):  # A `range` may be longer than any length can say.
        return None


class TaskMethods(concurrent.futures.Executor):
    """Runs functions over inputs, with settings of its own for the tasks."""

    def _view(self) -> tuple[Pool, TaskSettings]:
        """The pool, and the settings of tasks that are submitted here."""
        raise NotImplementedError

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            raise no_attribute(self, name, POOL_METHODS)

    # The standard library's does not look at what the function takes.
    @overload  # type: ignore[override]
    def map(
        self,
        fn: Callable[[A], T],
        inputs: Iterable[A],
        /,
        *,
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[False] = ...,
        progress: bool = ...,
    ) -> MapIterator[T]: ...
    @overload
    def map(
        self,
        fn: Callable[[A], T],
        inputs: Iterable[A],
        /,
        *,
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[True],
        progress: bool = ...,
    ) -> MapIterator[Ok[T] | Err[Exception]]: ...
    @overload
    def map(
        self,
        fn: Callable[[A, B], T],
        first: Iterable[A],
        second: Iterable[B],
        /,
        *,
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[False] = ...,
        progress: bool = ...,
    ) -> MapIterator[T]: ...
    @overload
    def map(
        self,
        fn: Callable[[A, B], T],
        first: Iterable[A],
        second: Iterable[B],
        /,
        *,
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[True],
        progress: bool = ...,
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
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[False] = ...,
        progress: bool = ...,
    ) -> MapIterator[T]: ...
    @overload
    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: bool,
        progress: bool = ...,
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

    @overload
    def map_unordered(
        self,
        fn: Callable[[A], T],
        inputs: Iterable[A],
        /,
        *,
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[False] = ...,
        progress: bool = ...,
    ) -> MapIterator[T]: ...
    @overload
    def map_unordered(
        self,
        fn: Callable[[A], T],
        inputs: Iterable[A],
        /,
        *,
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[True],
        progress: bool = ...,
    ) -> MapIterator[Ok[T] | Err[Exception]]: ...
    @overload
    def map_unordered(
        self,
        fn: Callable[[A, B], T],
        first: Iterable[A],
        second: Iterable[B],
        /,
        *,
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[False] = ...,
        progress: bool = ...,
    ) -> MapIterator[T]: ...
    @overload
    def map_unordered(
        self,
        fn: Callable[[A, B], T],
        first: Iterable[A],
        second: Iterable[B],
        /,
        *,
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[True],
        progress: bool = ...,
    ) -> MapIterator[Ok[T] | Err[Exception]]: ...
    @overload
    def map_unordered(
        self,
        fn: Callable[..., T],
        first: Iterable[Any],
        second: Iterable[Any],
        third: Iterable[Any],
        /,
        *iterables: Iterable[Any],
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: Literal[False] = ...,
        progress: bool = ...,
    ) -> MapIterator[T]: ...
    @overload
    def map_unordered(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = ...,
        chunksize: int | None = ...,
        buffersize: int | None = ...,
        results: bool,
        progress: bool = ...,
    ) -> MapIterator[Any]: ...
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

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs one task and waits for it in asyncio.

        If the pool was made with ``max_queue``, it waits for room in a full queue without blocking the event loop; the
        function and its arguments are pickled when there is some. Waiting calls of one loop are served in their order.

        Cancel safety: cancelling the await cancels the task; one that is running in a worker process is ended. An await
        that is cancelled while it waits for room has submitted nothing.
        """
        pool, options = self._view()
        if pool._waits_for_room:
            future = await pool._submit_in_loop(fn, args, kwargs, options)
        else:
            future = cast("Future[T]", self.submit(fn, *args, **kwargs))
        return await pool._await(future)

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
            "task_timeout": options.timeout,
            "retries": options.retries,
            "priority": options.priority,
            "writable": options.writable,
            "deadline": options.deadline,
            "results": (Ok, Err) if results else None,
        }
        kind = cast("type[MapIterator[Any]]", MapWithProgress if progress else MapIterator)
        made = kind(pool, fn, source, settings)
        # Without callbacks of weak references: an interrupt that comes meanwhile would be raised in one, and lost.
        pool._maps[:] = [known for known in pool._maps if known() is not None]
        pool._maps.append(weakref.ref(made))
        return made
