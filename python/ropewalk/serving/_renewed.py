"""Files that are read again when they change: those of clients and of certificates."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable

#: Seconds between two looks at the files.
_EVERY = 1.0


def _seen(path: str) -> object:
    """Returns what changes with a file, also with one that a link leads to; `None` if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class Renewal:
    """Looks at files, and calls a function when one has changed."""

    def __init__(self, paths: Iterable[str], renew: Callable[[], object]) -> None:
        """Remembers what the files are like now, which is before they are read for the first time."""
        self._paths = tuple(paths)
        self._renew = renew
        self._before = self._look()
        self._ended = threading.Event()

    def _look(self) -> list[object]:
        return [_seen(path) for path in self._paths]

    def watch(self) -> None:
        """Looks until `end`."""
        while not self._ended.wait(_EVERY):
            self.look()

    def look(self) -> bool:
        """Looks once; true if a file has changed, and the function was called."""
        now = self._look()
        if now == self._before:
            return False
        # Before the function reads them: a change meanwhile is seen the next time.
        self._before = now
        self._renew()
        return True

    def end(self) -> None:
        """Ends `watch`."""
        self._ended.set()
