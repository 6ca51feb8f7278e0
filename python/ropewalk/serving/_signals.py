"""The signals that a command's server hears: they end a wait of the main thread, and interrupt nothing."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType

from ropewalk.pool.parent import _exit

#: What a byte in the pipe says that is no signal: something was put into the queue.
_PUT = 0
_NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Arrivals:
    """What the main thread waits for: signals, and what other threads put.

    It waits for a byte in a pipe, which the interpreter writes at once when a signal comes. A lock or a queue would
    not do: Python handles signals between two steps of the main thread, and one that comes just before the main thread
    begins to wait, or that the kernel gives to another thread, does not end such a wait.
    """

    def __init__(self) -> None:
        """Opens the pipe."""
        self._read, self._write = os.pipe()
        # The interpreter must not wait for room.
        os.set_blocking(self._write, False)
        self._put: deque[int | Exception] = deque()
        #: What was read and not returned yet; the main thread's alone.
        self._found: deque[int | Exception] = deque()
        #: Held for writing and for closing: the number of a closed descriptor may be another's. No signal's handler
        #: takes it.
        self._writing = threading.Lock()
        self._is_closed = False

    def fileno(self) -> int:
        """Where the interpreter writes the numbers of signals."""
        return self._write

    def put(self, what: int | Exception) -> None:
        """Ends a wait with this; what comes after `close` is dropped."""
        self._put.append(what)
        with self._writing:
            if not self._is_closed:
                # A pipe that is full ends the wait, too.
                with suppress(BlockingIOError):
                    os.write(self._write, bytes([_PUT]))

    def get(self) -> int | Exception:
        """Waits, and returns what has come next: the number of a signal, or what was put."""
        while not self._found:
            read = os.read(self._read, 4096)
            self._found += (number for number in read if number in _NUMBERS)
            while self._put:
                self._found.append(self._put.popleft())
        return self._found.popleft()

    def close(self) -> None:
        """Closes the pipe."""
        with self._writing:
            self._is_closed = True
            os.close(self._read)
            os.close(self._write)


@contextmanager
def signals() -> Generator[tuple[Arrivals, threading.Event]]:
    """Gives what signals arrive at, and an event: before it is set, a Ctrl-C interrupts what it meets.

    Workers that are started meanwhile ignore SIGTERM and SIGHUP, which they receive beside us.
    """
    heard = threading.Event()

    def handle(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and not heard.is_set():
            raise KeyboardInterrupt

    arrivals = Arrivals()
    wakeup = signal.set_wakeup_fd(arrivals.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, handle) for number in _NUMBERS}
    deaf = {signal.SIGTERM, signal.SIGHUP} - _exit.DRAINING
    _exit.DRAINING.update(deaf)
    try:
        yield arrivals, heard
    finally:
        _exit.DRAINING.difference_update(deaf)
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        arrivals.close()
