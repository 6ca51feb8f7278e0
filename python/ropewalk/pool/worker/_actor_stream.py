"""`Items`: the generator of a stream in an actor of a Ray cluster, between its thread and the calls of the actor.

An actor runs one task at a time, so the generator has a thread of its own: an item leaves as soon as it is made, also
while the next one takes long. The parent calls `Items.pull` again and again. Each call says how many items and bytes it
may have, and takes what there is; the generator waits when it has made that much.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

from ropewalk.pool.wire import _streams
from ropewalk.pool.worker._actor_task import Progress

#: Seconds for which a call waits for an item: in this time the parent learns that the reader has left.
_PATIENCE = 0.1

#: The end of a stream: whether it returned, whether it may be run again, whether it stopped because its reader has left
#: or it was asked to; the parts of the value's pickle, or of the exception's; and how far it has said that it is.
End = tuple[bool, bool, bool, list[Any], Progress | None]
#: What a call of the parent gets: the end, if it has come; the nanoseconds inside the generator so far; how many parts
#: each new item has; and the parts.
Pulled = tuple[End | None, int, list[int], list[Any]]


def cost_of(parts: Sequence[Any]) -> int:
    """Returns what an item uses of the credit for bytes; the same on both sides."""
    return sum(memoryview(part).nbytes for part in parts)


class Items:
    """See the module."""

    def __init__(
        self,
        call: Callable[[], Any],
        encode: Callable[[Any], list[Any]],
        failed: Callable[[BaseException], tuple[bool, bool, list[Any]]],
        ended: Callable[[], Progress | None],
    ) -> None:
        """Starts the thread.

        Args:
            call: calls the function of the stream.
            encode: pickles an item, or what the generator returns, into parts that the generator cannot change.
            failed: says of an exception whether the stream may be run again after it, and whether it stopped because it
                was asked to; and pickles it.
            ended: called by the thread when the generator has ended; returns how far it has said that it is.
        """
        self._call = call
        self._encode = encode
        self._failed = failed
        self._ended = ended
        #: Guards all below. No code of the program's runs while it is held.
        self._changed = threading.Condition()
        self._items = self._bytes = 0
        self._stops = False
        self._counts: list[int] = []
        self._parts: list[Any] = []
        self._unpulled = 0
        self._busy = 0
        self._end: End | None = None
        threading.Thread(target=self._run, name="ropewalk-stream", daemon=True).start()

    def pull(self, items: int, size: int, stop: bool) -> Pulled:
        """Takes what the generator has made; waits a while for it.

        Args:
            items: how many items the reader allows from this call on.
            size: how many bytes. The last item may go beyond.
            stop: closes the generator, at its next item at the latest.
        """
        with self._changed:
            self._items = items - len(self._counts)
            self._bytes = size - self._unpulled
            self._stops = self._stops or stop
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._end or self._counts, _PATIENCE)
            counts, self._counts = self._counts, []
            parts, self._parts = self._parts, []
            self._unpulled = 0
            return self._end, self._busy, counts, parts

    def _run(self) -> None:
        end: End
        try:
            value, closed = self._drive()
            end = (True, False, closed, self._encode(value), self._ended())
        except BaseException as error:
            again, stopped, parts = self._failed(error)
            end = (False, again, stopped, parts, self._ended())
        with self._changed:
            self._end = end
            self._changed.notify_all()

    def _drive(self) -> tuple[Any, bool]:
        """Runs the generator; returns what it returned, and whether it was closed before its end."""
        started = time.perf_counter_ns()
        items = _streams.iterate(self._call())
        self._busy += time.perf_counter_ns() - started
        while self._may_go_on():
            started = time.perf_counter_ns()
            try:
                item = next(items)
            except StopIteration as end:
                return end.value, False
            finally:
                self._busy += time.perf_counter_ns() - started
            try:
                parts = self._encode(item)
            except BaseException:
                with suppress(BaseException):
                    _close(items)
                raise
            cost = cost_of(parts)
            with self._changed:
                self._counts.append(len(parts))
                self._parts += parts
                self._unpulled += cost
                self._items -= 1
                self._bytes -= cost
                self._changed.notify_all()
            del item, parts
        _close(items)
        return None, True

    def _may_go_on(self) -> bool:
        """Waits until the reader allows another item; False if the stream is to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._stops or (self._items > 0 and self._bytes > 0))
            return not self._stops


def _close(items: Iterator[Any]) -> None:
    """Closes a generator; another iterator has nothing to close."""
    if hasattr(items, "throw"):
        cast("Generator[Any, Any, Any]", items).close()
