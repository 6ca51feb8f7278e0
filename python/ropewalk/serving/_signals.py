"""The signals that a command's server hears: they go through a queue, and interrupt nothing."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from ropewalk.pool.parent import _exit


@contextmanager
def signals(came: queue.SimpleQueue[int | Exception]) -> Generator[threading.Event]:
    """Puts signals into a queue, once the event is set; before, a Ctrl-C interrupts what it meets.

    Workers that are started meanwhile ignore SIGTERM and SIGHUP, which they receive beside us.
    """
    heard = threading.Event()

    def handle(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and not heard.is_set():
            raise KeyboardInterrupt
        came.put(number)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    deaf = {signal.SIGTERM, signal.SIGHUP} - _exit.DRAINING
    _exit.DRAINING.update(deaf)
    try:
        yield heard
    finally:
        _exit.DRAINING.difference_update(deaf)
        for number, handler in before.items():
            signal.signal(number, handler)
