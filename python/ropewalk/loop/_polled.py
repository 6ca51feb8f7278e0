"""What asyncio's own transports ask of a selector: whether a descriptor is waited for."""

from __future__ import annotations

import selectors
from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    from ropewalk.loop._loop import Loop


class Polled:
    """Stands where asyncio's loops have their selector, and only answers questions."""

    __slots__ = ("_loop",)

    def __init__(self, loop: Loop) -> None:
        self._loop = ref(loop)

    def get_key(self, fileobj: int) -> selectors.SelectorKey:
        """What is waited for on a descriptor.

        Raises:
            KeyError: nothing is.
        """
        loop = self._loop()
        read, write = loop._is_polled(fileobj) if loop is not None else (False, False)
        if not (read or write):
            raise KeyError(fileobj)
        events = (selectors.EVENT_READ if read else 0) | (selectors.EVENT_WRITE if write else 0)
        return selectors.SelectorKey(fileobj, fileobj, events, None)

    def close(self) -> None:
        """Nothing: the descriptors are the loop's."""
