"""The threads of a store that help a caller with what can be done side by side."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue

#: Threads at most. More than there are processors, as executors of threads have it: what gains under a global
#: interpreter lock are functions that wait for something else.
_MOST = min(32, (os.cpu_count() or 1) + 4)


class Call:
    """A call for help. Once it was withdrawn it does nothing, and refers to nothing."""

    __slots__ = ("__weakref__", "_function", "_waiting")

    def __init__(self, function: Callable[[], None], waiting: weakref.WeakSet[Call] | None = None) -> None:
        self._function: Callable[[], None] | None = function
        self._waiting = waiting
        if waiting is not None:
            waiting.add(self)

    def __call__(self) -> None:
        """Helps; called by a thread that has time."""
        if self._waiting is not None:
            self._waiting.discard(self)
        function = self._function
        if function is not None:
            function()

    def withdraw(self) -> None:
        """Makes it empty."""
        self._function = None


class _Line:
    """The calls that no thread has begun: one wake-up for each, which a thread takes first."""

    __slots__ = ("_calls", "_lock", "_wakeups")

    def __init__(self) -> None:
        # A finalizer may come in between, and call.
        self._lock = threading.RLock()
        self._calls: deque[Call] = deque()
        self._wakeups: SimpleQueue[bool] = SimpleQueue()

    def put(self, call: Call, times: int) -> None:
        for _ in range(times):
            self._calls.append(call)
            self._wakeups.put(True)

    def end(self) -> None:
        """Ends the threads, once they have begun what is there."""
        self._wakeups.put(False)

    def next(self) -> Call | None:
        """Waits for a call; `None` says that the thread is to end."""
        while self._wakeups.get():
            with self._lock:
                if self._calls:
                    return self._calls.popleft()
        # For the next one.
        self._wakeups.put(False)
        return None

    def remove(self, call: Call) -> int:
        """Takes out what is there of a call, and returns how often it was."""
        gone = 0
        with self._lock:
            while call in self._calls:
                self._calls.remove(call)
                gone += 1
        for _ in range(gone):
            try:
                goes_on = self._wakeups.get_nowait()
            except Empty:
                # A thread has it, and finds no call.
                return gone
            if not goes_on:
                self._wakeups.put(False)
        return gone


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
        self._line = _Line()
        #: The calls that an executor has in its queue. One that has no time keeps them, though they are empty.
        self._waiting: weakref.WeakSet[Call] = weakref.WeakSet()
        self._threads: list[threading.Thread] = []
        #: Calls that have not ended.
        self._open = 0
        self._is_closed = False
        self._numbers = itertools.count(1)
        # A store that nobody has closed ends them when it is collected: the threads hold the line alone.
        weakref.finalize(self, self._line.end).atexit = False

    def call(self, call: Call, times: int) -> None:
        """Makes a call in so many threads, or in fewer if there are not as many; it must not raise."""
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
                    args=(self._line, weakref.WeakMethod(self._ended)),
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
                # The line would keep the calls.
                self._open -= times
                return
            self._line.put(call, times)

    def withdraw(self, call: Call) -> None:
        """Takes back what no thread has begun of a call, so that nothing waits for threads that have no time."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._open -= self._line.remove(call)

    def asked(self, function: Callable[[], None]) -> Call:
        """Makes a call for an executor."""
        return Call(function, self._waiting)

    def have_no_time(self) -> bool:
        """Whether an executor still has as many calls in its queue as this class has threads."""
        return len(self._waiting) >= _MOST

    def close(self) -> None:
        """Ends the threads, once they have done what they have begun."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            self._is_closed = True
            threads = list(self._threads)
        self._line.end()
        # One of them that closes the store would wait for itself, or for another that does the same.
        if threading.current_thread() not in threads:
            for thread in threads:
                thread.join()

    def _ended(self) -> None:
        with self._lock:
            self._open -= 1


def _work(line: _Line, ended: weakref.WeakMethod[Callable[[], None]]) -> None:
    pid = os.getpid()
    while True:
        call = line.next()
        if call is None:
            return
        call()
        if os.getpid() != pid:
            # A job has forked, and the child has no caller that it could help. To return would end the process, too,
            # but by way of exit handlers of C libraries, which may wait for threads that are not there.
            os._exit(0)
        del call
        report = ended()
        if report is not None:
            report()
        del report
