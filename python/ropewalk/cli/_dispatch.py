"""Submits inputs to the pool in chunks, and collects the outcome of each input.

The length of a chunk depends on how long inputs take: one if they take milliseconds, hundreds if they take
microseconds. If a chunk is lost with its worker, the inputs that the worker had not begun are submitted again.
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
    """An input that is being processed; `attempt` counts from 1, `key` is its name in a journal."""

    index: int
    value: Any
    attempt: int = 1
    key: bytes = b""


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of one input: its line, the reason if it failed, and its seconds if it ran."""

    item: Item
    line: bytes
    failure: Failure | None
    seconds: float | None


@dataclass(slots=True, eq=False)
class Chunk:
    """Inputs that were submitted together."""

    items: list[Item]
    slot: Any
    future: ropewalk.Future[_chunk.Answer] | None = None
    #: The number of inputs whose records have been read, and the offset of the next record in the slot.
    taken: int = 0
    at: int = _chunk.FIRST
    #: The head of the slot when it was last read.
    seen: tuple[int, int] = field(default=(0, _chunk.FIRST))


class Dispatch:
    """The chunks of a run: at most `window` of them are in the pool, each of at most `longest` inputs."""

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
        #: Inputs that were returned; they are submitted again before new ones.
        self.again: deque[Item] = deque()

    @property
    def in_flight(self) -> int:
        """The number of inputs that are in the pool or will be submitted again."""
        return sum(len(chunk.items) - chunk.taken for chunk in self._chunks) + len(self.again)

    @property
    def idle(self) -> bool:
        """Whether no chunk is in the pool."""
        return not self._chunks

    def room(self, left: int | None, lanes: int) -> int:
        """Returns how many inputs the next chunk should have; 0 if enough of them are in the pool.

        `left` is the number of remaining inputs, if that is known: the last ones are divided among the threads.
        """
        if len(self._chunks) >= self._window:
            return 0
        fair = self._length if left is None else max(1, left // (2 * lanes))
        return min(self._length, fair, self._longest)

    def hand_over(self, items: list[Item]) -> None:
        """Submits inputs of the same attempt to the pool.

        Raises:
            CommandError: the pool accepts no more.
        """
        slot = self._slots.pop() if self._slots else self._make_slot()
        _chunk.clear(slot)
        chunk = Chunk(items, slot)
        indices = [item.index for item in items]
        values = [item.value for item in items]
        try:
            future = self._pool.submit(self._runner, slot, indices, values, items[0].attempt)
        except ropewalk.RopewalkError as error:
            raise CommandError(f"the pool accepts no more inputs: {error}") from error
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
        """Cancels the chunks that have not started."""
        self.again.clear()
        for chunk in list(self._chunks):
            if chunk.future is not None:
                chunk.future.cancel()

    def poll(self) -> Iterator[Ended]:
        """Returns the outcomes that running chunks had recorded when their heads were last read."""
        for chunk in list(self._chunks):
            # This process may see a new head before the record that it counts, so it uses the previous head.
            before, chunk.seen = chunk.seen, _chunk.head(chunk.slot)
            yield from self._read(chunk, *before)

    def take(self, chunk: Chunk) -> Iterator[Ended]:
        """Returns the outcomes of a chunk that has ended in the pool."""
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
                yield from self._outcome(chunk, answer.overflow)
            self._slots.append(chunk.slot)
            self._learn(len(chunk.items), answer)
        elif error is not None and chunk.taken < len(chunk.items):
            # The slot is not used again, because a thread that timed out may still write to it.
            yield from self._lost(chunk, error)
        if not future.cancelled():
            self.again.extend(chunk.items[chunk.taken :])

    def _lost(self, chunk: Chunk, error: BaseException) -> Iterator[Ended]:
        item = chunk.items[chunk.taken]
        chunk.taken += 1
        if item.attempt <= self._runner.retries and not isinstance(error, ropewalk.TaskTimeout):
            self.again.append(Item(item.index, item.value, item.attempt + 1, item.key))
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
            records = list(_chunk.read(chunk.slot, chunk.at, end))
        except (ValueError, TypeError):
            return  # The function has overwritten the slot; the damaged records count as lost.
        for item, one in zip(chunk.items[chunk.taken :], records, strict=False):
            yield Ended(item, one.line, one.failure, one.seconds)
        chunk.taken += len(records)
        chunk.at = end

    def _outcome(self, chunk: Chunk, record: bytes) -> Iterator[Ended]:
        for one in _chunk.read(record, 0, len(record)):
            yield Ended(chunk.items[chunk.taken], one.line, one.failure, one.seconds)
        chunk.taken += 1

    def _learn(self, length: int, answer: _chunk.Answer) -> None:
        if answer.done:
            each = answer.seconds / answer.done
            wanted = int(_AIM / each) if each > 0 else _MOST
            self._length = max(1, min(wanted, max(length, self._length) * _GROWTH, _MOST))
