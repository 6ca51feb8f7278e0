"""Hands inputs to the pool in chunks, and takes what became of each.

The length of a chunk follows from how long its inputs take: one if that is milliseconds, hundreds if it is
microseconds. A chunk that is lost with its worker gives back what the worker had not come to.
"""

from __future__ import annotations

import functools
import queue
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ropewalk
from ropewalk.cli import _chunk
from ropewalk.cli._errors import CommandError
from ropewalk.cli._record import Call, Failure, Writer, describe_lost
from ropewalk.pool.wire._serialize import shortened

#: Seconds that a chunk should take.
_AIM = 0.01
_MOST = 1000
_GROWTH = 8


@dataclass(slots=True)
class Item:
    """One input on its way; `attempt` counts from 1."""

    index: int
    value: Any
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of one input: its line, why it failed if it did, and its seconds if it ran."""

    item: Item
    line: bytes
    failure: Failure | None
    seconds: float | None


@dataclass(slots=True, eq=False)
class Chunk:
    """Inputs that were handed over together."""

    items: list[Item]
    slot: Any
    future: ropewalk.Future[_chunk.Answer] | None = None
    #: Inputs whose records were read, and where in the slot the next one is.
    taken: int = 0
    at: int = _chunk.FIRST
    #: What the head of the slot said at the last glance.
    seen: tuple[int, int] = field(default=(0, _chunk.FIRST))


class Dispatch:
    """The chunks of a run. `window` of them are with the pool at most, of `longest` inputs at most."""

    def __init__(
        self,
        pool: ropewalk.Pool,
        runner: _chunk.Runner,
        events: queue.SimpleQueue[Chunk | None],
        window: int,
        longest: int,
    ) -> None:
        self._pool = pool
        self._runner = runner
        self._events = events
        self._window = window
        self._longest = min(longest, _MOST)
        self._length = 1
        self._slots: list[Any] = []
        self._chunks: set[Chunk] = set()
        self._writer = Writer(runner.format, runner.place.name, or_repr=runner.or_repr)
        #: Inputs that came back and go to the pool again, before any new ones.
        self.again: deque[Item] = deque()

    @property
    def in_flight(self) -> int:
        """Inputs that are with the pool, or come back to it."""
        return sum(len(chunk.items) - chunk.taken for chunk in self._chunks) + len(self.again)

    @property
    def idle(self) -> bool:
        """Whether nothing is with the pool."""
        return not self._chunks

    def room(self, left: int | None, lanes: int) -> int:
        """How many inputs the next chunk should have; 0 if enough of them are with the pool.

        `left` is how many there are yet, if that is known: the last ones are shared out among the lanes.
        """
        if len(self._chunks) >= self._window:
            return 0
        fair = self._length if left is None else max(1, left // (2 * lanes))
        return min(self._length, fair, self._longest)

    def hand_over(self, items: list[Item]) -> None:
        """Gives inputs of one attempt to the pool.

        Raises:
            CommandError: the pool takes no more.
        """
        slot = self._slots.pop() if self._slots else self._make_slot()
        _chunk.clear(slot)
        chunk = Chunk(items, slot)
        indices = [item.index for item in items]
        values = [item.value for item in items]
        try:
            future = self._pool.submit(self._runner, slot, indices, values, items[0].attempt)
        except ropewalk.RopewalkError as error:
            raise CommandError(f"the pool takes no more inputs: {error}") from error
        chunk.future = future
        self._chunks.add(chunk)
        future.add_done_callback(functools.partial(self._ended, chunk))

    def _ended(self, chunk: Chunk, _: ropewalk.Future[_chunk.Answer]) -> None:
        self._events.put(chunk)

    def _make_slot(self) -> Any:
        if self._pool.kind == "thread":
            return bytearray(_chunk.SLOT)
        return memoryview(ropewalk.shared.buffer(_chunk.SLOT)).obj

    def drop_waiting(self) -> None:
        """Takes back what has not started."""
        self.again.clear()
        for chunk in list(self._chunks):
            if chunk.future is not None:
                chunk.future.cancel()

    def glance(self) -> Iterator[Ended]:
        """What chunks that are still at work had done by the last glance."""
        for chunk in list(self._chunks):
            # A head that a worker has written just now may be seen before the record that it counts.
            before, chunk.seen = chunk.seen, _chunk.head(chunk.slot)
            yield from self._read(chunk, *before)

    def take(self, chunk: Chunk) -> Iterator[Ended]:
        """What became of a chunk that is no more with the pool, or not yet again."""
        future = chunk.future
        assert future is not None
        self._chunks.discard(chunk)
        error = None
        answer = None
        if not future.cancelled():
            error = future.exception()
            answer = future.result() if error is None else None
        yield from self._read(chunk, *_chunk.head(chunk.slot))
        if answer is not None:
            if answer.overflow and chunk.taken < len(chunk.items):
                yield from self._told(chunk, answer.overflow)
            self._slots.append(chunk.slot)
            self._learn(len(chunk.items), answer)
        elif error is not None and chunk.taken < len(chunk.items):
            # The slot is not used again: a thread that was given up may write there yet.
            yield from self._lost(chunk, error)
        if not future.cancelled():
            self.again.extend(chunk.items[chunk.taken :])

    def _lost(self, chunk: Chunk, error: BaseException) -> Iterator[Ended]:
        item = chunk.items[chunk.taken]
        chunk.taken += 1
        if item.attempt <= self._runner.retries and not isinstance(error, ropewalk.TaskTimeout):
            self.again.append(Item(item.index, item.value, item.attempt + 1))
            return
        failure = describe_lost(error, f"{self._runner.place.name}({shortened(item.value)})")
        record = chunk.future.task if chunk.future is not None else None
        pid = record.worker_pid if record is not None and record.worker_pid else None
        call = Call(item.value, item.index, None, item.attempt, pid)
        yield Ended(item, self._writer.failure(call, failure), failure, None)

    def _read(self, chunk: Chunk, done: int, end: int) -> Iterator[Ended]:
        if done <= chunk.taken or done > len(chunk.items):
            return
        try:
            told = list(_chunk.read(chunk.slot, chunk.at, end))
        except (ValueError, TypeError):
            return  # The function has written there; what it has destroyed counts as lost.
        for item, one in zip(chunk.items[chunk.taken :], told, strict=False):
            yield Ended(item, one.line, one.failure, one.seconds)
        chunk.taken += len(told)
        chunk.at = end

    def _told(self, chunk: Chunk, record: bytes) -> Iterator[Ended]:
        for one in _chunk.read(record, 0, len(record)):
            yield Ended(chunk.items[chunk.taken], one.line, one.failure, one.seconds)
        chunk.taken += 1

    def _learn(self, length: int, answer: _chunk.Answer) -> None:
        if answer.done:
            each = answer.seconds / answer.done
            wanted = int(_AIM / each) if each > 0 else _MOST
            self._length = max(1, min(wanted, max(length, self._length) * _GROWTH, _MOST))
