"""The end of a pool: the methods of `Pool` that close it, and that end what it runs."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ropewalk._checked import checked_limit
from ropewalk.pool.parent._exit import ENDING, THREADS, EndLimits, Runner, closed, in_a_thread, join
from ropewalk.pool.parent._options import outside
from ropewalk.pool.wire import _logs

if TYPE_CHECKING:
    import weakref

    from ropewalk import _core
    from ropewalk.pool.parent._calls import Calls
    from ropewalk.pool.parent._fallback import Fallback
    from ropewalk.pool.parent._health import Watch
    from ropewalk.pool.parent._map import MapIterator
    from ropewalk.pool.parent._threads import Collector


class ClosingMethods:
    """The methods of `Pool` that end it."""

    _engine: _core.PoolHandle
    _isolates: bool
    _name: str
    _grace: float
    _end_limits: EndLimits
    _is_ending: bool
    _maps: list[weakref.ref[MapIterator[Any]]]
    _unread: list[_core.MapIterator]
    _runners: list[threading.Thread]
    _collector: Collector
    _watch: Watch
    _calls: Calls
    _fallback: Fallback | None
    _deaf_to: frozenset[int]

    def _is_forked(self) -> bool:
        raise NotImplementedError

    # The compiled one calls `_leave` and `_cut_short`.
    if TYPE_CHECKING:

        def __exit__(
            self,
            kind: type[BaseException] | None,
            value: BaseException | None,
            traceback: TracebackType | None,
        ) -> None: ...

    def shutdown(
        self, wait: bool = True, *, cancel_futures: bool = False, timeout: float | None = None
    ) -> None:
        """Accepts no more tasks, and ends the workers when the accepted ones are done.

        Before that it submits the remaining inputs of each `map` that has no `buffersize`, if their number is known or
        the program has not read a result.

        Args:
            wait: return when the workers are gone.
            cancel_futures: cancel the tasks that have not started.
            timeout: seconds after which the pool ends what is left, as `terminate` does: it cancels the tasks that
                still wait, and those that still run fail with `PoolTerminated`.

        Warns:
            RuntimeWarning: a map over inputs of unknown length was read in part; its remaining inputs are not run.

        Raises:
            RuntimeError: a task of a thread pool, or a function that a task calls (`expose`), calls it with `wait`, and
                would wait for itself. The pool accepts no more tasks then, and ends later.
        """
        limit = checked_limit("timeout", timeout)
        if self._is_forked():
            return
        if not self._engine.closed and not cancel_futures:
            self._take_inputs()
        closed(self._engine)
        if self._fallback is not None:
            self._fallback.end(
                lambda pool: pool.shutdown(False, cancel_futures=cancel_futures, timeout=limit)
            )
        if limit is None:
            self._engine.close(cancel_futures)
        else:
            self._engine.close_within(cancel_futures, limit)
        if not self._engine.ended:
            ENDING[self._engine] = self._end_limits
        if wait:
            self._check_own_thread()
            if limit is not None and not self._isolates and not self._engine.join(limit):
                # A call in a thread cannot be ended: its future fails, and the pool stops waiting for it.
                self.terminate()
                return
            self._engine.join()
            join(self._threads_of())
            if self._fallback is not None:
                self._fallback.end(lambda pool: pool.shutdown())
            if self._engine.encodes:
                _logs.drain()
            ENDING.pop(self._engine, None)

    def _take_inputs(self) -> None:
        """Submits the inputs that maps have not read yet."""
        for known in list(self._maps):
            results = known()
            taken = None if results is None else results._submit_all()
            if taken is not None:
                warnings.warn(
                    f"{self._name} is shut down while a map has inputs left: {taken} were taken, and those after them "
                    "are not run. Consume the map inside of the `with` block, close() it, or pass a list.",
                    RuntimeWarning,
                    stacklevel=outside(),
                )
        while self._unread:
            self._unread.pop()._run_out()

    def terminate(self, wait: bool = True) -> None:
        """Ends the pool now.

        It cancels the tasks that wait, fails those that run with `PoolTerminated`, and kills the worker processes. In a
        thread pool a running call goes on; in an interpreter its code raises `KeyboardInterrupt` at its next step.
        `terminate` waits for neither.

        Args:
            wait: return when the worker processes are gone.
        """
        if self._is_forked():
            return
        if self._fallback is not None:
            self._fallback.end(lambda pool: pool.terminate(wait))
        self._engine.terminate()
        self._wait_for_end(None if wait and self._isolates else 0.0)

    def terminate_workers(self) -> None:
        """Accepts no more tasks, cancels those that wait, and sends ``SIGTERM`` to every worker process.

        Like `concurrent.futures.ProcessPoolExecutor.terminate_workers` of Python 3.14, it returns without waiting. A
        task that handles the signal may finish; other running tasks fail with `PoolTerminated`. On a thread pool, which
        has no worker processes, it is `terminate`.
        """
        self._signal_workers(signal.SIGTERM)

    def kill_workers(self) -> None:
        """Accepts no more tasks, cancels those that wait, and kills every worker process.

        Like `concurrent.futures.ProcessPoolExecutor.kill_workers` of Python 3.14, it returns without waiting. Running
        tasks fail with `PoolTerminated`. On a thread pool, which has no worker processes, it is `terminate`.
        """
        self._signal_workers(signal.SIGKILL)

    def _signal_workers(self, number: int) -> None:
        if not self._isolates:
            self.terminate(wait=False)
        elif not self._is_forked():
            self._engine.signal_workers(signal.SIGKILL if number in self._deaf_to else number)
            self._wait_for_end(0.0)

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leaves the pool as a plain ``with`` does, without blocking the event loop.

        Cancel safety: a cancellation ends the pool as an exception in the block does; the wait then goes on.
        """
        import asyncio

        left = in_a_thread(f"{self._name}-leaving", lambda: self.__exit__(kind, value, traceback))
        try:
            await asyncio.shield(left)
        except asyncio.CancelledError:
            await asyncio.shield(in_a_thread(f"{self._name}-ending", self._end))
            raise

    def _leave(self, failed: bool) -> None:
        """Leaves the `with` block: shuts the pool down, or ends it if the block has failed."""
        if failed:
            self._end()
        else:
            self.shutdown(wait=True)

    def _cut_short(self) -> None:
        """Ends the pool if leaving its block was interrupted before that; the compiled `__exit__` calls this."""
        if not self._is_ending and threading.current_thread() not in self._runners:
            self._end()

    def _end(self, since: float | None = None) -> None:
        """Cancels the tasks that wait, and ends those that run after the grace, or at a second interrupt.

        Args:
            since: when the grace began, as `time.monotonic` counts, if it did not begin with this call.
        """
        if self._is_forked():
            return
        since = time.monotonic() if since is None else since
        self._is_ending = True
        self._engine.end(max(0.0, since + self._grace - time.monotonic()))
        if self._fallback is not None:
            self._fallback.end(lambda pool: pool._end(since))
        if threading.current_thread() in self._runners:
            self._wait_for_end(0.0)
            return
        try:
            # A call in a thread cannot be ended: after the grace the pool stops waiting for it.
            left = max(0.0, since + self._grace - time.monotonic())
            self._wait_for_end(None if self._isolates else left)
        except BaseException:
            self.terminate(wait=False)
            raise

    def _wait_for_end(self, seconds: float | None) -> None:
        """Waits at most `seconds` for the pool's end; threads that still run then are not joined at exit either.

        It does not wait for threads that are still in their initializer: the pool has ended without them.
        """
        closed(self._engine)
        ended = self._engine.join(seconds)
        ENDING.pop(self._engine, None)
        if ended:
            begin = {each for each in self._runners if isinstance(each, Runner) and not each.serves}
            THREADS.difference_update(begin)
            join(each for each in self._threads_of() if each not in begin)
        elif self._isolates:
            ENDING[self._engine] = self._end_limits
        else:
            THREADS.difference_update(self._runners)

    def _threads_of(self) -> list[threading.Thread]:
        """Returns the threads that end with the pool."""
        return [*self._runners, *self._collector.threads, *self._watch.threads]

    def _check_own_thread(self) -> None:
        if not self._engine.ended and threading.current_thread() in self._runners:
            raise RuntimeError(
                "cannot join current thread: a task of this pool would wait for its own end. Use "
                "shutdown(wait=False) there."
            )
        if not self._engine.ended and self._calls.is_answering():
            raise RuntimeError(
                "this function cannot wait for the end of the pool: the task that has called it waits for its answer. "
                "Use shutdown(wait=False) there."
            )
