"""Waits for the disk on behalf of coroutines: one thread, and one wake-up of a loop for all that wait together."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.state._store import Store

_Waiting = tuple[tuple[int, int], asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Syncer:
    """The commits that coroutines of a store wait for."""

    def __init__(self, store: Store[Any]) -> None:
        # The thread must not keep the store alive: nothing else may end a store that nobody has closed.
        self._store = weakref.ref(store, lambda _: self._end())
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    async def settled(self, done: tuple[int, int]) -> None:
        """Awaits that a commit is on the disk.

        Raises:
            JournalError: it is not.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._changed:
            is_closed = self._is_closed
            if not is_closed:
                self._waiting.append((done, loop, future))
                if self._thread is None:
                    thread = threading.Thread(target=self._work, name="ropewalk-store", daemon=True)
                    thread.start()
                    self._thread = thread
                self._changed.notify()
        if is_closed:
            # The store was closed since the commit, which has written it, or has failed to.
            _wait_for(self._store(), done)
            return
        await future

    def close(self) -> None:
        """Ends the thread, once nothing waits."""
        self._end()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _end(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                batch = list(self._waiting)
                self._waiting.clear()
            # The newest one takes all others along.
            outcomes: dict[tuple[int, int], BaseException | None] = {}
            store = self._store()
            for done in sorted({done for done, _, _ in batch}, reverse=True):
                try:
                    _wait_for(store, done)
                except BaseException as error:
                    outcomes[done] = error
                else:
                    outcomes[done] = None
            if store is not None and store._log is not None:
                store._log.wrote(store)
            del store
            loops: dict[
                asyncio.AbstractEventLoop, list[tuple[asyncio.Future[None], BaseException | None]]
            ] = {}
            for done, loop, future in batch:
                loops.setdefault(loop, []).append((future, outcomes[done]))
            for loop, settled in loops.items():
                try:
                    loop.call_soon_threadsafe(_settle, settled)
                except RuntimeError:
                    # The loop was closed, and its coroutines with it.
                    continue


def _wait_for(store: Store[Any] | None, done: tuple[int, int]) -> None:
    # A coroutine that waits has the store; without one nothing needs the commit.
    if store is not None:
        store._wait(*done)


def _settle(settled: list[tuple[asyncio.Future[None], BaseException | None]]) -> None:
    for future, error in settled:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
