"""`MapIterator`: what `map` gives, for ``for`` and for ``async for``, with a progress bar if asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ropewalk import _core

if TYPE_CHECKING:
    import asyncio
    from typing import Generic, Self

    from rich.progress import Progress

T_co = TypeVar("T_co", covariant=True)

#: Seconds between two drawings of a progress bar.
_DRAW_EVERY = 0.1

if TYPE_CHECKING:

    class _Base(_core.MapIterator, Generic[T_co]): ...

else:
    # Without `Generic` among the bases: what a `for` loop calls for each result is the compiled method itself.
    class _Base(_core.MapIterator):
        __class_getitem__ = classmethod(type(list[int]))


class MapIterator(_Base[T_co]):
    """The results of `Pool.map` or `Pool.map_unordered`; made by those two.

    It is an iterator and an asynchronous iterator: in a coroutine, ``async for`` waits for each result without
    blocking the event loop. After an exception it can be asked on: the next input's result is next. `len` is how many
    results are still to come, where the inputs know their length.

    Examples:
        >>> import ropewalk
        >>> with ropewalk.Pool(2, kind="thread") as pool:
        ...     squares = pool.map(pow, range(4), [2] * 4)
        ...     print(len(squares), list(squares))
        4 [0, 1, 4, 9]
    """

    __module__ = "ropewalk"

    _waiters: list[asyncio.Future[None]] | None = None

    def __len__(self) -> int:
        """How many results are still to come.

        Raises:
            TypeError: when the inputs do not know their length.
        """
        left = self._left()
        if left is None:
            raise TypeError("the inputs of this map do not know their length")
        return left

    def __bool__(self) -> bool:
        """True: an iterator is, and asking must not depend on whether the length is known."""
        return True

    def __length_hint__(self) -> int:
        """What `operator.length_hint`, and so progress bars, make of `len`."""
        left = self._left()
        return NotImplemented if left is None else left

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[T_co]: ...  # type: ignore[override]
        def __next__(self) -> T_co: ...

    # --- asyncio ----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        """The iterator itself."""
        return self

    async def __anext__(self) -> T_co:
        """The next result, waited for without blocking the event loop.

        Cancel safety: a result that was not returned is the next call's. If nobody calls again, the tasks that run for
        this map are ended when the iterator is closed, or when nothing refers to it any more.

        Raises:
            RuntimeError: for a task that raised `StopIteration` or `StopAsyncIteration`, which is its ``__cause__``.
        """
        while (waiting := self._pending()) is not None:
            waiters = self._waiters
            if waiters is None:
                waiters = self._waiters = []
            try:
                await _arrival(waiters, *waiting)
            except BaseException:
                self._desert()
                # The exception's traceback refers to this frame, and may be kept: it shall not keep the map.
                del self
                raise
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None
        except StopAsyncIteration as error:
            raise RuntimeError("a task of the map raised StopAsyncIteration") from error

    async def aclose(self) -> None:
        """As `close`, under the name that `contextlib.aclosing` looks for."""
        self.close()

    def __repr__(self) -> str:
        left = self._left()
        return f"<ropewalk.MapIterator{'' if left is None else f' of {left} results to come'}>"


async def _arrival(waiters: list[asyncio.Future[None]], futures: list[Any], seconds: float | None) -> None:
    """Waits until one of the tasks is done that `_pending` has named, now or before."""
    import asyncio

    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    waiters.append(waiter)
    # It does not keep the map itself alive.
    told = partial(_core.mailbox_of(loop).post, waiters, _resolve)
    try:
        for future in futures:
            future.add_done_callback(told)
        # At the end of the time the iterator itself raises what there is to raise.
        await asyncio.wait((waiter,), timeout=seconds)
    finally:
        if waiter in waiters:
            waiters.remove(waiter)


def _resolve(waiters: list[asyncio.Future[None]], _future: object) -> None:
    """Wakes everybody who waits for a map."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


class MapWithProgress(MapIterator[T_co]):
    """A `MapIterator` that draws how far it is."""

    _bar: _Bar | None = None

    def __next__(self) -> T_co:
        bar = self._bar
        if bar is None:
            bar = self._bar = _Bar(self._left())
        try:
            value = super().__next__()
        except StopIteration:
            bar.close()
            raise
        except BaseException as error:
            if isinstance(error, Exception):
                bar.step()  # An input that failed is done, too.
            bar.pause()
            raise
        bar.step()
        return value

    def close(self) -> None:
        """Cancels what has not started, ends the iteration, and leaves the bar as it is."""
        super().close()
        if self._bar is not None:
            self._bar.close()

    def __del__(self) -> None:
        if self._bar is not None:
            self._bar.close()


class _Bar:
    """A bar on standard error or in a notebook; nothing where there is neither."""

    def __init__(self, total: int | None) -> None:
        from rich.console import Console

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
            self._progress = Progress(*columns, console=console)
            self._task = self._progress.add_task("", total=total)
            self._progress.start()

    def step(self) -> None:
        """One more input is done."""
        self._done += 1
        if self._progress is not None:
            now = time.monotonic()
            if now - self._drawn >= _DRAW_EVERY:
                self._drawn = now
                self._progress.update(self._task, completed=self._done)
                if self._paused:
                    self._paused = False
                    self._progress.start()

    def pause(self) -> None:
        """Leaves the bar as it stands, so that nothing is drawn between the lines of a traceback."""
        if self._progress is not None and not self._paused:
            self._paused = True
            self._standing = self._done
            self._drawn = time.monotonic()
            self._progress.update(self._task, completed=self._done)
            self._progress.stop()

    def close(self) -> None:
        """Draws the last state and leaves it standing."""
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.update(self._task, completed=self._done)
            if self._paused and self._done > self._standing:
                progress.start()
            progress.stop()
