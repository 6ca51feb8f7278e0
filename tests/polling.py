"""Waits for a condition, with a deadline, instead of sleeping."""

from __future__ import annotations

import gc
import sysconfig
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def until(condition: Callable[[], T], seconds: float = 30) -> T:
    """The condition's first true value; fails if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not so after {seconds} s: {condition}")
        time.sleep(0.002)
    return value


def is_gone(known: weakref.ref[Any]) -> bool:
    """Whether nothing refers to the object any more, without the help of the collector.

    Without a global lock a count that another thread lowers is settled by the thread that made the object, when it runs
    Python again, or by the collector. There an idle worker keeps its errors until one of them comes.
    """
    if _FREE_THREADED:
        gc.collect()
    return known() is None


def is_alive(pid: int) -> bool:
    """Whether the process runs: one that is dead and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    """The process's children that run."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [child for child in found if is_alive(child)]


def descendants(pid: int) -> list[int]:
    """All that the process has started, and what those have started."""
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found
