"""`Stream`: the items of a generator task, for ``for`` and for ``async for``."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ropewalk import _core
from ropewalk.pool.parent._map import arrival

if TYPE_CHECKING:
    import asyncio
    from typing import Generic, Self

    from ropewalk.pool.parent._future import Future

T_co = TypeVar("T_co", covariant=True)

if TYPE_CHECKING:

    class _Base(_core.StreamBase, Generic[T_co]): ...

else:
    # Without `Generic` among the bases, so that a `for` loop calls the compiled method directly.
    class _Base(_core.StreamBase):
        __class_getitem__ = classmethod(type(list[int]))


class Stream(_Base[T_co]):
    """The items of a generator task, in order; only `Pool.stream` makes one.

    It is an iterator and an asynchronous iterator, and a context manager that closes it. What the task raises is raised
    after the items before it, `WorkerCrashed` included. What the generator returns is the `value` of the
    `StopIteration`, and of the stream; before its end `value` raises `StreamUnfinished`.

    Examples:
        >>> import ropewalk
        >>> def count(n):
        ...     yield from range(n)
        ...     return "done"
        >>> with ropewalk.Pool(1, kind="thread") as pool:
        ...     stream = pool.stream(count, 3)
        ...     print(list(stream), stream.value)
        [0, 1, 2] done
    """

    _waiters: list[asyncio.Future[None]] | None = None
    #: Kept, because a pool that nothing refers to ends, and its streams with it.
    _pool: _core.PoolBase | None = None

    if TYPE_CHECKING:

        def __iter__(self) -> Self: ...
        def __next__(self) -> T_co: ...

    if not TYPE_CHECKING:

        def _start(self, pool, *call):
            self._pool = pool
            return super()._start(pool, *call)

    @property
    def future(self) -> Future[Any]:
        """The future of the task: its result is what the generator returns.

        It reports `Future.progress`, and ends a task that does not stop by itself: ``cancel(running=True)``.
        """
        future: Future[Any] = self._future
        return future

    def __enter__(self) -> Self:
        """Returns the stream itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the stream."""
        self.close()

    # --- asyncio ----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        """Returns the stream itself."""
        return self

    async def __anext__(self) -> T_co:
        """Awaits the next item without blocking the event loop.

        Cancel safety: the next call returns the item that a cancelled one did not.
        """
        while True:
            try:
                found = self._next_nowait()
            except StopIteration:
                raise StopAsyncIteration from None
            except StopAsyncIteration as error:
                raise RuntimeError("the task of the stream raised StopAsyncIteration") from error
            if found is not None:
                item: T_co = found[0]
                return item
            signal = self._signal()
            if signal is None:
                continue
            waiters = self._waiters
            if waiters is None:
                waiters = self._waiters = []
            try:
                await arrival(waiters, [signal], None)
            except BaseException:
                # A caller may keep the exception, whose traceback refers to this frame; it must not keep the stream.
                del self, signal
                raise

    async def aclose(self) -> None:
        """Closes the stream as `close` does; `contextlib.aclosing` calls it by this name."""
        self.close()

    async def __aenter__(self) -> Self:
        """Returns the stream itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the stream."""
        self.close()

    def __repr__(self) -> str:
        state = " ended" if self.future.done() else ""
        return f"<ropewalk.Stream of task {self.future._id}{state}>"
