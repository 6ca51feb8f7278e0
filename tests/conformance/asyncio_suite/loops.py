"""The loops on which the suite runs, and how each replaces asyncio's own."""

from __future__ import annotations

import asyncio
import asyncio.unix_events
from collections.abc import Callable
from typing import Any


def _asyncio() -> type[Any]:
    return asyncio.SelectorEventLoop


def _uvloop() -> type[Any]:
    import uvloop

    return uvloop.Loop


def _ropewalk() -> type[Any]:
    import ropewalk

    return ropewalk.Loop


#: Ropewalk's loop, and those that it is compared with; a peer is imported only if it is asked for.
LOOPS: dict[str, Callable[[], type[Any]]] = {"asyncio": _asyncio, "uvloop": _uvloop, "ropewalk": _ropewalk}


class Replacement:
    """A loop class in place of asyncio's own, in every way in which the tests get a loop.

    The tests make one by `asyncio.new_event_loop()`, by `asyncio.Runner`, by the default policy, or from a class:
    `asyncio.SelectorEventLoop(selector)`. The last is why this is a class of its own: it takes a selector, and only
    asyncio's own loop makes use of it. It counts what it makes, so that a test that never saw the loop is told apart.
    """

    def __init__(self, name: str) -> None:
        #: How many loops were made so far.
        self.made = 0
        replacement = self
        base = LOOPS[name]()
        takes_a_selector = name == "asyncio"

        class Loop(base):  # type: ignore[misc]
            if not issubclass(base, asyncio.BaseEventLoop):
                # The tests close every loop by a function of theirs that reads this private attribute of asyncio's.
                _default_executor = None

            def __new__(cls, selector: object = None) -> Any:
                return super().__new__(cls)

            def __init__(self, selector: object = None) -> None:
                replacement.made += 1
                super().__init__(*((selector,) if takes_a_selector else ()))

        # Some tests look at a loop's `repr`.
        Loop.__name__, Loop.__qualname__, Loop.__module__ = base.__name__, base.__qualname__, base.__module__
        self._loop = Loop

    def install(self) -> None:
        """Puts it in place, for the rest of this process."""
        for module in (asyncio, asyncio.unix_events):
            for name in ("SelectorEventLoop", "EventLoop"):
                if hasattr(module, name):
                    setattr(module, name, self._loop)
        # A class attribute, so that every default policy has it: the tests make new ones all the time.
        asyncio.unix_events._UnixDefaultEventLoopPolicy._loop_factory = self._loop
