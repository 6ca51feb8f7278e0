"""Private parts of asyncio's loops, as far as a loop of ours has them: tools and asyncio's own transports read them."""

from __future__ import annotations

import selectors
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, overload
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

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"ropewalk.Loop has no selector, and so no {name}(): it waits in compiled code. Add descriptors by "
            "loop.add_reader() and loop.add_writer()."
        )


class Pending(Sequence[Any]):
    """What is to run, or waits for its time: a view, where asyncio's loops have a deque and a heap.

    The queue itself is compiled. So the view has no methods that change it.
    """

    __slots__ = ("_loop", "_timers")

    def __init__(self, loop: Loop, timers: bool) -> None:
        self._loop = loop
        self._timers = timers

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._loop._pending(self._timers)[index]

    def __len__(self) -> int:
        return len(self._loop._pending(self._timers))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loop._pending(self._timers))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {list(self)!r}>"

    def clear(self) -> None:
        """Do nothing: asyncio calls it when the loop is closed, and ours drops its queue itself."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"the queue of ropewalk.Loop is compiled and has no {name}(); it can be read. Schedule by "
            "loop.call_soon(), call_later() and create_task(), and cancel their handles."
        )
