"""The part of a selector that asyncio's own transports use: the events that the loop waits for on a descriptor."""

from __future__ import annotations

import selectors
from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    from ropewalk.loop._loop import Loop


class Polled:
    """A read-only stand-in for the selector of asyncio's loops."""

    __slots__ = ("_loop",)

    def __init__(self, loop: Loop) -> None:
        self._loop = ref(loop)

    def get_key(self, fileobj: int) -> selectors.SelectorKey:
        """Return a selector key with the events that the loop waits for on a descriptor.

        Raises:
            KeyError: the loop does not wait for the descriptor.
        """
        loop = self._loop()
        read, write = loop._is_polled(fileobj) if loop is not None else (False, False)
        if not (read or write):
            raise KeyError(fileobj)
        events = (selectors.EVENT_READ if read else 0) | (selectors.EVENT_WRITE if write else 0)
        return selectors.SelectorKey(fileobj, fileobj, events, None)

    def close(self) -> None:
        """Do nothing, because the descriptors belong to the loop."""
