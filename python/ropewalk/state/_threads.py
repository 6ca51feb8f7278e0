"""The threads of a store that help a caller with what can be done side by side."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

_Calls: TypeAlias = "SimpleQueue[Callable[[], None] | None]"

#: Threads at most. More than there are processors, as executors of threads have it: what gains under a global
#: interpreter lock are functions that wait for something else.
_MOST = min(32, (os.cpu_count() or 1) + 4)


class Threads:
    """Threads that are started when they are first needed, and end with their store.

    They only help. Whatever they are called for does not depend on them: the caller does all of it that no thread has
    begun. So nothing hangs where no thread can be started, or where a fork has left them behind.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        # A finalizer may come in between, and call.
        self._lock = threading.RLock()
        self._calls: _Calls = SimpleQueue()
        self._threads: list[threading.Thread] = []
        #: Calls that have not ended.
        self._open = 0
        self._is_closed = False
        self._numbers = itertools.count(1)
        # A store that nobody has closed ends them when it is collected: the threads hold the queue alone.
        weakref.finalize(self, self._calls.put, None).atexit = False

    def call(self, function: Callable[[], None], times: int) -> None:
        """Calls a function in so many threads, or in fewer if there are not as many; it must not raise."""
        if self._pid != os.getpid():
            # A forked child has none of them, and perhaps a lock that one of them has held.
            self._reset()
        with self._lock:
            if self._is_closed:
                return
            self._open += times
            while len(self._threads) < min(self._open, _MOST):
                thread = threading.Thread(
                    target=_work,
                    args=(self._calls, weakref.WeakMethod(self._ended)),
                    name=f"{self._name}-{next(self._numbers)}",
                    daemon=True,
                )
                try:
                    thread.start()
                except RuntimeError:
                    # The system has no more of them, or the interpreter is ending.
                    break
                self._threads.append(thread)
            if not self._threads:
                # The queue would keep the calls for ever.
                self._open -= times
                return
            for _ in range(times):
                self._calls.put(function)

    def close(self) -> None:
        """Ends the threads, once they have done what they have begun."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            self._is_closed = True
            threads = list(self._threads)
        self._calls.put(None)
        # One of them that closes the store would wait for itself, or for another that does the same.
        if threading.current_thread() not in threads:
            for thread in threads:
                thread.join()

    def _ended(self) -> None:
        with self._lock:
            self._open -= 1


def _work(calls: _Calls, ended: weakref.WeakMethod[Callable[[], None]]) -> None:
    while True:
        call = calls.get()
        if call is None:
            # For the next one.
            calls.put(None)
            return
        call()
        del call
        report = ended()
        if report is not None:
            report()
        del report
