"""`MapIterator`: the results of a `map`, for ``for`` and for ``async for``, with an optional progress bar."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ropewalk import _core

if TYPE_CHECKING:
    import asyncio
    from typing import Generic, Self

    from rich.console import RenderableType
    from rich.progress import Progress

T_co = TypeVar("T_co", covariant=True)

#: Seconds between two drawings of a progress bar.
_DRAW_EVERY = 0.1

if TYPE_CHECKING:

    class _Base(_core.MapIterator, Generic[T_co]): ...

else:
    # Without `Generic` among the bases, so that a `for` loop calls the compiled method directly.
    class _Base(_core.MapIterator):
        __class_getitem__ = classmethod(type(list[int]))


class MapIterator(_Base[T_co]):
    """The results of `Pool.map` or `Pool.map_unordered`; only those two make one.

    It is an iterator and an asynchronous iterator: in a coroutine, ``async for`` waits for each result without
    blocking the event loop. After an exception the iteration can go on with the next input's result. `len` is the
    number of results still to come, if the inputs know their length.

    Examples:
        >>> import ropewalk
        >>> with ropewalk.Pool(2, kind="thread") as pool:
        ...     squares = pool.map(pow, range(4), [2] * 4)
        ...     print(len(squares), list(squares))
        4 [0, 1, 4, 9]
    """

    _waiters: list[asyncio.Future[None]] | None = None

    def __len__(self) -> int:
        """Returns the number of results still to come.

        Raises:
            TypeError: the inputs do not know their length.
        """
        left = self._left()
        if left is None:
            raise TypeError("the inputs of this map do not know their length")
        return left

    def __bool__(self) -> bool:
        """Returns True, as for any iterator; without this method the truth would depend on `len`."""
        return True

    def __length_hint__(self) -> int:
        """Returns `len` if it is known; progress bars read it through `operator.length_hint`."""
        left = self._left()
        return NotImplemented if left is None else left

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[T_co]: ...  # type: ignore[override]
        def __next__(self) -> T_co: ...

    else:

        def __getitem__(self, index: object) -> None:
            """Raises, and names the remedy; type checkers do not see this method."""
            raise TypeError("the results of a map have no index: use list(pool.map(...))")

    # --- asyncio ----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        """Returns the iterator itself."""
        return self

    async def __anext__(self) -> T_co:
        """Awaits the next result without blocking the event loop.

        Cancel safety: the next call returns the result that a cancelled one did not. If no call follows, the tasks that
        run for this map are ended when the iterator is closed, or when nothing refers to it any more.

        Raises:
            RuntimeError: a task raised `StopIteration` or `StopAsyncIteration`, which is the ``__cause__``.
        """
        while (waiting := self._pending()) is not None:
            waiters = self._waiters
            if waiters is None:
                waiters = self._waiters = []
            try:
                await arrival(waiters, *waiting)
            except BaseException:
                self._desert()
                # A caller may keep the exception, whose traceback refers to this frame; it must not keep the map.
                del self
                raise
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None
        except StopAsyncIteration as error:
            raise RuntimeError("a task of the map raised StopAsyncIteration") from error

    async def aclose(self) -> None:
        """Closes the iterator as `close` does; `contextlib.aclosing` calls it by this name."""
        self.close()

    def __repr__(self) -> str:
        left = self._left()
        return f"<ropewalk.MapIterator{'' if left is None else f' of {left} results to come'}>"


async def arrival(waiters: list[asyncio.Future[None]], futures: list[Any], seconds: float | None) -> None:
    """Waits until a task of the map is done, among those that `_pending` returns or returned for an earlier waiter."""
    import asyncio

    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    waiters.append(waiter)
    # The callback does not keep the map alive.
    wake = partial(_core.mailbox_of(loop).post, waiters, _resolve)
    try:
        for future in futures:
            future.add_done_callback(wake)
        # After the timeout the iterator's own `__next__` raises the error.
        await asyncio.wait((waiter,), timeout=seconds)
    finally:
        if waiter in waiters:
            waiters.remove(waiter)


def _resolve(waiters: list[asyncio.Future[None]], _future: object) -> None:
    """Wakes every coroutine that waits for a map."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


class MapWithProgress(MapIterator[T_co]):
    """A `MapIterator` that draws a progress bar."""

    _bar: _Bar | None = None

    def _begun(self) -> _Bar:
        bar = self._bar
        if bar is None:
            bar = self._bar = _Bar(self._left(), weakref.ref(self))
        return bar

    async def __anext__(self) -> T_co:
        self._begun()
        return await super().__anext__()

    def __next__(self) -> T_co:
        bar = self._begun()
        try:
            value = super().__next__()
        except StopIteration:
            bar.close()
            raise
        except BaseException as error:
            if isinstance(error, Exception):
                bar.step()  # A failed input is done, too.
            bar.pause()
            raise
        bar.step()
        return value

    def close(self) -> None:
        """Cancels the tasks that have not started, ends the iteration, and leaves the bar as it is."""
        super().close()
        if self._bar is not None:
            self._bar.close()

    @_core.Finalizer
    def __del__(self) -> None:
        if self._bar is not None:
            self._bar.close()


class _Bar:
    """A progress bar in a terminal or a notebook; it draws nothing where standard error is neither.

    Between two results it moves with what the running tasks report (`CurrentTask.progress`).
    """

    def __init__(self, total: int | None, results: Callable[[], MapIterator[Any] | None]) -> None:
        from rich.console import Console

        self._results = results
        self._done = 0
        self._drawn = 0.0
        self._paused = False
        self._standing = 0
        self._progress: Progress | None = None
        console = Console(stderr=True)
        if console.is_jupyter or (console.is_terminal and not console.is_dumb_terminal):
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TimeElapsedColumn,
                TimeRemainingColumn as Remaining,
            )

            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), Remaining())
            look = self._look

            class Moving(Progress):
                """Asks before each drawing: rich's own thread draws ten times a second."""

                def get_renderables(self) -> Iterable[RenderableType]:
                    look()
                    return super().get_renderables()

            self._progress = Moving(*columns, console=console)
            self._task = self._progress.add_task("", total=total)
            self._progress.start()

    def _look(self) -> None:
        """Shows the inputs that are done, and the parts that running tasks have reported of theirs."""
        progress, results = self._progress, self._results()
        if progress is not None and progress.tasks and results is not None:
            progress.update(self._task, completed=self._done + results._under_way())

    def step(self) -> None:
        """Counts one more input as done."""
        self._done += 1
        if self._progress is not None:
            now = time.monotonic()
            if now - self._drawn >= _DRAW_EVERY:
                self._drawn = now
                self._look()
                if self._paused:
                    self._paused = False
                    self._progress.start()

    def pause(self) -> None:
        """Stops drawing, so that nothing is drawn between the lines of a traceback."""
        if self._progress is not None and not self._paused:
            self._paused = True
            self._standing = self._done
            self._drawn = time.monotonic()
            self._progress.update(self._task, completed=self._done)
            self._progress.stop()

    def close(self) -> None:
        """Draws the last state and leaves it on the screen."""
        progress = self._progress
        if progress is not None:
            progress.update(self._task, completed=self._done)
            if self._paused and self._done > self._standing:
                progress.start()
            progress.stop()
            self._progress = None
