"""What this package takes from gevent, which is optional and has no types that a checker without it could know."""

from __future__ import annotations

import importlib
import time
from typing import Any

#: gevent's event: `set`, `wait(timeout)`.
Event: Any = importlib.import_module("gevent.event").Event
_gevent: Any = importlib.import_module("gevent")
READ, WRITE = 1, 2


def watch(descriptor: int, events: int, call: Any) -> Any:
    """Call this in the loop while the descriptor is ready, until the watcher's ``stop``."""
    watcher = _gevent.get_hub().loop.io(descriptor, events)
    watcher.start(call)
    return watcher


def pause() -> None:
    """Let others run for a moment."""
    _gevent.sleep(0.001)


def in_thread(function: Any, *arguments: Any) -> Any:
    """Call this in a thread of the hub's, and let others run meanwhile."""
    return _gevent.get_hub().threadpool.apply(function, arguments)


def deadline(milliseconds: float | None) -> float | None:
    """When a wait ends; `None` for never."""
    if milliseconds is None or milliseconds < 0:
        return None
    return time.monotonic() + milliseconds / 1000


def left(end: float | None) -> float | None:
    """The seconds until then, at least none."""
    return None if end is None else max(0.0, end - time.monotonic())
