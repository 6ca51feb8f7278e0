"""`Wait`: a future that can run the task which awaits it at once.

A future tells its callbacks in the loop's next turn, and on asyncio's own loop a turn costs more than a message does.
Whoever finishes a `Wait` from a callback of the loop, where no task is running, may as well run the task then and
there.
"""

from __future__ import annotations

from asyncio import Future, Task
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

_set_result = Future[Any].set_result


class Wait(Future[Any]):
    """A future like any other, but for `finish`.

    What a task adds to be woken is kept here and not by the base class. Whatever ends the future otherwise has it
    called in the loop's next turn, as a future does.
    """

    _wake: tuple[Callable[[Any], object], Context] | None = None

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        """As a future's."""
        is_task = isinstance(getattr(fn, "__self__", None), Task)
        if is_task and context is not None and self._wake is None and not self.done():
            self._wake = fn, context
        else:
            super().add_done_callback(fn, context=context)

    def remove_done_callback(self, fn: Callable[[Any], object], /) -> int:
        """As a future's."""
        removed = super().remove_done_callback(fn)
        if self._wake is not None and self._wake[0] == fn:
            self._wake = None
            removed += 1
        return removed

    def finish(self, result: Any) -> None:
        """Set the result and run the task that awaits it. For callbacks of the loop, and while it is not done."""
        _set_result(self, result)
        wake = self._wake
        if wake is not None:
            self._wake = None
            wake[1].run(wake[0], self)

    def set_result(self, result: Any, /) -> None:
        """As a future's."""
        super().set_result(result)
        self._wake_later()

    def set_exception(self, exception: type | BaseException, /) -> None:
        """As a future's."""
        super().set_exception(exception)
        self._wake_later()

    def cancel(self, msg: Any | None = None) -> bool:
        """As a future's."""
        cancelled = super().cancel(msg)
        if cancelled:
            self._wake_later()
        return cancelled

    def _wake_later(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            self.get_loop().call_soon(wake[0], self, context=wake[1])
