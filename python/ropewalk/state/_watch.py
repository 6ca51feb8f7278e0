"""Changes of a state as they are committed: what `Store.changes` yields."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ropewalk._errors import HistoryGone
from ropewalk._load import state as _native
from ropewalk.state._kinds import text_in
from ropewalk.state._paths import EACH, Key, Path, Step, path_at, steps_of
from ropewalk.state._replay import MISSING, is_map, is_vector

if TYPE_CHECKING:
    from ropewalk.state._store import Store
    from ropewalk.state._transaction import Meta


class Changed(NamedTuple):
    """A place that a version has changed."""

    version: int
    #: The text of the path, with keys: ``accounts['ann'].balance``.
    path: str
    #: What was there; `MISSING` if nothing was.
    old: Any
    #: What is there; `MISSING` if nothing is.
    new: Any
    meta: Meta


class Watchers:
    """The subscribers of a store, each an event of an event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The subscribers; a store without any does not call `wake`.
        self.events: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def add(self, event: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
        """Adds a subscriber."""
        with self._lock:
            self.events[event] = loop

    def remove(self, event: asyncio.Event) -> None:
        """Removes a subscriber."""
        with self._lock:
            self.events.pop(event, None)

    def wake(self) -> None:
        """Wakes every subscriber: there is a new version, or the store was closed."""
        with self._lock:
            events = list(self.events.items())
        for event, loop in events:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                # The loop was closed, and the subscriber with it.
                self.remove(event)


async def changes(store: Store[Any], path: Path[Any] | str | None) -> AsyncIterator[Changed]:
    """Yields what is committed from now on at a path, in the order of versions."""
    steps: tuple[Step, ...] = ()
    if path is not None:
        steps = steps_of(path_at(store._kind, path) if isinstance(path, str) else path)
    event = asyncio.Event()
    store._watchers.add(event, asyncio.get_running_loop())
    try:
        last = store._durable()[0]
        while True:
            event.clear()
            durable = store._durable()[0]
            while last < durable:
                kept = [one for one in store._versions(last) if one[0] <= durable]
                if not kept or kept[0][0] != last:
                    raise HistoryGone(
                        f"the subscriber is behind: version {last}, which it has seen, is kept no longer. Keep more "
                        f"versions with Store(history=...), or take less time for each change"
                    )
                for before, version in itertools.pairwise(kept):
                    for where, old, new in matching(before[1], version[1], steps):
                        text = text_in(before[1] if new is MISSING else version[1], where)
                        yield Changed(version[0], text, old, new, version[2])
                    last = version[0]
            if store.closed:
                return
            await event.wait()
    finally:
        store._watchers.remove(event)


def matching(
    old: Any, new: Any, steps: tuple[Step, ...], where: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Yields the places at a path that are other objects in two states, with both."""
    if old is new:
        return
    if not steps:
        # Numbers and texts may be made anew with the same value.
        if not (type(old) is type(new) and type(new) in (int, str, float, bytes) and old == new):
            yield where, old, new
        return
    step, rest = steps[0], steps[1:]
    if step is EACH:
        for key, before, after in _items(old, new):
            yield from matching(before, after, rest, (*where, key))
        return
    name = step.value if isinstance(step, Key) else step
    yield from matching(_below(old, step), _below(new, step), rest, (*where, name))


def _below(at: Any, step: Step) -> Any:
    try:
        return at[step.value] if isinstance(step, Key) else getattr(at, str(step))
    except (LookupError, AttributeError, TypeError):
        return MISSING


def _items(old: Any, new: Any) -> Iterator[tuple[Any, Any, Any]]:
    if is_map(old) and is_map(new):
        yield from _native.diff_maps(old, new)
    elif is_vector(old) and is_vector(new):
        yield from _native.diff_vectors(old, new)
    else:
        for key, value in _every(old):
            yield key, value, MISSING
        for key, value in _every(new):
            yield key, MISSING, value


def _every(at: Any) -> Iterator[tuple[Any, Any]]:
    if is_map(at):
        yield from at.items()
    elif is_vector(at):
        yield from enumerate(at)
