"""Waits for the disk on behalf of coroutines: one thread, and one wake-up of a loop for all that wait together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from ropewalk.state._store import Store

#: A commit, and what its coroutine awaits.
_Waiting: TypeAlias = "tuple[tuple[int, int], asyncio.Future[None]]"


class _Turn:
    """The commits of one turn of an event loop; its loop's thread alone adds to it, until it is handed over."""

    __slots__ = ("loop", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.waiting: list[_Waiting] = []


class Syncer:
    """The commits that coroutines of a store wait for.

    A loop collects those of one turn, and hands them to the thread at its end: a lock and a wake-up for each commit
    would cost as much as the commit. Each coroutine has a future of its own, so that one that is cancelled leaves the
    others alone.
    """

    def __init__(self, store: Store[Any]) -> None:
        # The thread must not keep the store alive: nothing else may end a store that nobody has closed.
        self._store = weakref.ref(store, lambda _: self._end())
        self._changed = threading.Condition()
        self._turns: deque[_Turn] = deque()
        #: The newest turn. Loops of other threads replace it; each turn that was begun is handed over all the same.
        self._turn: _Turn | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def settled(self, done: tuple[int, int]) -> asyncio.Future[None]:
        """Returns a future that ends when a commit is on the disk, with a `JournalError` if it is not."""
        loop = asyncio.get_running_loop()
        turn = self._turn
        if turn is None or turn.loop is not loop:
            self._turn = turn = _Turn(loop)
            loop.call_soon(self._hand_over, turn)
        future = loop.create_future()
        turn.waiting.append((done, future))
        return future

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

    def _hand_over(self, turn: _Turn) -> None:
        """Called by the loop."""
        if self._turn is turn:
            self._turn = None
        with self._changed:
            is_closed = self._is_closed
            if not is_closed:
                self._turns.append(turn)
                if self._thread is None:
                    thread = threading.Thread(target=self._work, name="ropewalk-store", daemon=True)
                    thread.start()
                    self._thread = thread
                self._changed.notify()
        if is_closed:
            # The store was closed since the commits, which has written them, or has failed to.
            _end_all(turn.waiting, _outcomes(self._store(), [turn]))

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._turns and not self._is_closed:
                    self._changed.wait()
                if not self._turns:
                    return
                turns = list(self._turns)
                self._turns.clear()
            store = self._store()
            failures = _outcomes(store, turns)
            if store is not None and store._log is not None:
                store._log.wrote(store)
            del store
            # A thread that waits for the next turns must keep neither a loop nor an error.
            while turns:
                _report(turns.pop(0), failures)
            del failures


def _outcomes(store: Store[Any] | None, turns: list[_Turn]) -> dict[tuple[int, int], BaseException]:
    """Waits until the commits of turns are on the disk; returns those that are not, with the reason."""
    failures: dict[tuple[int, int], BaseException] = {}
    # A coroutine that waits has the store; without one nothing needs the commits.
    if store is None:
        return failures
    every = {done for turn in turns for done, _ in turn.waiting}
    newest: dict[int, int] = {}
    for version, epoch in every:
        newest[epoch] = max(version, newest.get(epoch, 0))
    is_lost: set[int] = set()
    for epoch, version in newest.items():
        # The newest one takes all others along.
        try:
            store._wait(version, epoch)
        except BaseException as error:
            failures[version, epoch] = error
            is_lost.add(epoch)
    for done in every:
        # Of an epoch in which the disk has failed each has an outcome of its own.
        if done[1] in is_lost and done not in failures:
            try:
                store._wait(*done)
            except BaseException as error:
                failures[done] = error
    return failures


def _report(turn: _Turn, failures: dict[tuple[int, int], BaseException]) -> None:
    # The loop may have been closed, and its coroutines with it.
    with contextlib.suppress(RuntimeError):
        turn.loop.call_soon_threadsafe(_end_all, turn.waiting, failures)


def _end_all(waiting: list[_Waiting], failures: dict[tuple[int, int], BaseException]) -> None:
    for done, future in waiting:
        if future.done():
            continue
        error = failures.get(done) if failures else None
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
