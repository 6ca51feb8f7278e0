"""Changes of a state as they are committed: what `Store.changes` yields."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from ropewalk._errors import HistoryGone, NoSuchPath
from ropewalk._load import state as _native
from ropewalk.state._kinds import text_in
from ropewalk.state._paths import EACH, Key, Path, Step, path_at, path_from, root_of, steps_of, text_of
from ropewalk.state._replay import MISSING, is_map, is_vector
from ropewalk.state._shape import name_of, shape_of

if TYPE_CHECKING:
    from typing import Self

    from ropewalk.state._store import Store
    from ropewalk.state._transaction import Meta

T = TypeVar("T")


class Changed(NamedTuple, Generic[T]):
    """A place that a version has changed."""

    version: int
    #: The text of the path, with keys: ``accounts['ann'].balance``.
    path: str
    #: What was there; `MISSING` if nothing was.
    old: T
    #: What is there; `MISSING` if nothing is.
    new: T
    meta: Meta


class Watchers:
    """The subscribers of a store, each an event of an event loop.

    A collection of garbage may end a coroutine that waits, and so remove its event, in the middle of any step here. So
    there is no lock, and each step is one operation of a dict.
    """

    def __init__(self) -> None:
        #: The subscribers; a store without any does not call `wake`.
        self.events: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def add(self, event: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
        """Adds a subscriber."""
        self.events[event] = loop

    def remove(self, event: asyncio.Event) -> None:
        """Removes a subscriber."""
        self.events.pop(event, None)

    def wake(self) -> None:
        """Wakes every subscriber: there is a new version, or the store was closed."""
        for event, loop in self.events.copy().items():
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                # The loop was closed, and the subscriber with it.
                self.remove(event)


class Changes(AsyncIterator[Changed[T]]):
    """What `Store.changes` returns: it yields changes to `async for`, or to `anext`.

    It remembers the last version that was seen, so that nothing goes by unseen between two steps.
    """

    def __init__(self, store: Store[Any], path: Path[T] | str | None, since: int | None) -> None:
        self._store = store
        self._steps = _steps_for(store, path)
        #: The last version of which everything was yielded.
        self._last = store._durable()[0] if since is None else store._kept(since).number
        self._found: Iterator[Changed[T]] = iter(())
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Changed[T]:
        """Waits for the next change.

        Raises:
            HistoryGone: versions behind the last one that was seen are kept no longer.
            StopAsyncIteration: the store was closed, or this was.
        """
        watchers = self._store._watchers
        event: asyncio.Event | None = None
        try:
            while not self._is_closed:
                # Before the look: what was committed before the end is seen.
                is_last = self._store.closed
                for change in self._found:
                    return change
                if self._last < self._store._durable()[0]:
                    self._found = self._newer()
                elif is_last:
                    break
                elif event is None:
                    event = asyncio.Event()
                    watchers.add(event, asyncio.get_running_loop())
                else:
                    await event.wait()
                    event.clear()
            raise StopAsyncIteration
        finally:
            if event is not None:
                watchers.remove(event)

    def _newer(self) -> Iterator[Changed[T]]:
        durable = self._store._durable()[0]
        kept = [one for one in self._store._versions(self._last) if one[0] <= durable]
        if not kept or kept[0][0] != self._last:
            raise HistoryGone(
                f"the subscriber is behind: version {self._last}, which it has seen, is kept no longer. Keep more "
                f"versions with Store(history=...), or take less time for each change"
            )
        for before, version in itertools.pairwise(kept):
            for where, old, new in matching(before[1], version[1], self._steps):
                text = text_in(before[1] if new is MISSING else version[1], where)
                yield Changed(version[0], text, old, new, version[2])
            self._last = version[0]

    async def aclose(self) -> None:
        """Ends it: a loop over it ends with its next step."""
        self._is_closed = True
        self._store._watchers.wake()

    def __repr__(self) -> str:
        where = text_of(self._steps) or "the whole state"
        return f"<changes of {where} since version {self._last} of {self._store!r}>"


def _steps_for(store: Store[Any], path: Path[Any] | str | None) -> tuple[Step, ...]:
    if path is None:
        return ()
    shape = store._shape
    root = shape if shape.of_policy else store._kind
    if isinstance(path, str):
        return steps_of(path_at(root, path))
    if not isinstance(cast("object", path), Path):
        raise TypeError(f"changes takes a path, such as P.accounts, or its text, and not {path!r}")
    own = shape_of(root_of(path))
    if own is not shape and (own.record is None or not issubclass(store._kind, own.record)):
        raise NoSuchPath(f"{path!r} is of another state: that of the store is of {name_of(shape.annotation)}")
    # The state may be of a subclass, whose field of that name may be another one.
    return steps_of(path_from(root, steps_of(path)))


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
