"""Spares workers the handlers, called around a fork, that have nothing to mend in them.

The standard library mends, in each forked process, what other threads of the parent may have held at the fork. A
zygote has one thread, so there is nothing to mend; yet the handlers of `threading` and `logging` alone write to a
hundred pages that workers would else share. They are taken out of the interpreter's lists while the zygote forks, and
are back in place before a worker runs anybody's code: a task may fork, too. Handlers of anybody else are always called.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from types import FunctionType
from typing import Any

#: The interpreter's lists that were shortened: each with what it had, and how much of that was left in it.
_shortened: list[tuple[list[Any], list[Any], int]] = []


def waive(seeded: list[Any]) -> None:
    """Takes the handlers out. Of `random`'s generators, those in `seeded` are seeded by the worker itself.

    Nothing is changed where there is, or has been, another thread; nor in a Python that keeps its handlers elsewhere.
    """
    if not _is_alone():
        return
    for handlers in _lists():
        left = [handler for handler in handlers if not _is_idle(handler, seeded)]
        _shortened.append((handlers, list(handlers), len(left)))
        handlers[:] = left


def restore() -> None:
    """Puts them back, before those that were registered since."""
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
        # `logging` has one of each kind, which go together: the first takes a lock that the others let go.
        return handler.__module__ in ("threading", "logging", "ropewalk.pool.wire._logs")
    generator = getattr(handler, "__self__", None)
    standard = sys.modules.get("random")
    inner = getattr(standard, "_inst", None)
    return inner is not None and generator is inner and any(each is inner for each in seeded)


def _lists() -> list[list[Any]]:
    """The interpreter's own lists of handlers, found by what is put into them; empty if they are not to be found."""

    def before() -> None:
        pass

    def parent() -> None:
        pass

    def child() -> None:
        pass

    os.register_at_fork(before=before, after_in_parent=parent, after_in_child=child)
    probes = (before, parent, child)
    # One look through the heap for all three.
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
