"""Suspends fork handlers of the standard library that workers do not need.

The standard library repairs, in each forked process, state that other threads of the parent may have held at the fork.
A zygote has one thread, so there is nothing to repair. But the handlers of `threading` and `logging` alone write to a
hundred pages that workers would otherwise share. The zygote removes these handlers from the interpreter's lists before
it forks, and a worker puts them back before it runs other code, because a task may fork too. Handlers of other
libraries are always called.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from types import FunctionType
from typing import Any

#: The interpreter's lists that were shortened: each with its former items, and the number of items left in it.
_shortened: list[tuple[list[Any], list[Any], int]] = []


def suspend(seeded: list[Any]) -> None:
    """Removes the handlers that workers do not need.

    The handler that seeds `random`'s generator is one of them if the generator is in `seeded`, because the worker seeds
    it. Nothing changes if there is or was another thread, or if this Python keeps its handlers elsewhere.
    """
    if not _is_alone():
        return
    for handlers in _lists():
        left = [handler for handler in handlers if not _is_idle(handler, seeded)]
        _shortened.append((handlers, list(handlers), len(left)))
        handlers[:] = left


def restore() -> None:
    """Puts the handlers back, before those that were registered since."""
    for handlers, before, left in _shortened:
        handlers[:left] = before
    _shortened.clear()


def _is_alone() -> bool:
    state = vars(threading)
    known = [state.get("_active"), state.get("_dangling"), state.get("_limbo")]
    try:
        counts = [len(each) for each in known]  # type: ignore[arg-type]
        return counts == [1, 1, 0] and len(os.listdir("/proc/self/task")) == 1
    except (TypeError, OSError):
        return False


def _is_idle(handler: Any, seeded: list[Any]) -> bool:
    if type(handler) is FunctionType:
        # `logging` has one of each kind, and they belong together: the first takes a lock that the others release.
        return handler.__module__ in ("threading", "logging", "ropewalk.pool.wire._logs")
    generator = getattr(handler, "__self__", None)
    standard = sys.modules.get("random")
    inner = getattr(standard, "_inst", None)
    return inner is not None and generator is inner and any(each is inner for each in seeded)


def _lists() -> list[list[Any]]:
    """Finds the interpreter's lists of handlers by registering probes; returns none if it cannot find all three."""

    def before() -> None:
        pass

    def parent() -> None:
        pass

    def child() -> None:
        pass

    os.register_at_fork(before=before, after_in_parent=parent, after_in_child=child)
    probes = (before, parent, child)
    # One search of the heap for all three, because a search is slow.
    lists: list[list[Any]] = [each for each in gc.get_referrers(*probes) if type(each) is list and each]
    found: list[list[Any]] = []
    for probe in probes:
        mine = [each for each in lists if each[-1] is probe]
        if len(mine) != 1:
            return []
        found += mine
    for handlers in found:
        handlers.pop()
    return found
