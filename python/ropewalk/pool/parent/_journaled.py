"""`JournaledMap`: a map whose finished inputs stay finished after the end of the process.

Each input is a task of its own. The collector thread records a result in the moment in which it arrives, whether or not
the program has asked for it; then the kernel has the record, and `kill -9` cannot take it. The iterator yields a result
only when its record is on the disk. The thread that asks for a result makes that so, for all records of that moment.
"""

from __future__ import annotations

import pickle
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Never, TypeVar, cast

from ropewalk import _core
from ropewalk._keys import error_of_input, key_of_function, lay_out, open_calls, parts
from ropewalk.pool.parent._map import MapIterator, MapWithProgress

if TYPE_CHECKING:
    from concurrent.futures import Future as AnyFuture

    from ropewalk._journal import CallLog
    from ropewalk.pool.parent._future import Future
    from ropewalk.pool.parent._options import TaskSettings
    from ropewalk.pool.parent._pool import Pool

T = TypeVar("T")

_PROTOCOL = 5
#: Tasks that may be ahead of the results, for each worker and for all: enough for the time of a sync.
_AHEAD_EACH = 4
_AHEAD = 128
#: Seconds from one sync to the next, at least, while tasks run: each costs the time of several small tasks.
_GATHERED = 0.005
#: So many results that have arrived are enough for a sync.
_ENOUGH = 32
#: So many inputs that have finished are taken from the iterables at once, at most.
_BATCH = 1024


class _Input:
    """An input that was taken from the iterables, and whose result nobody has taken yet."""

    __slots__ = (
        "_gate",
        "_wake",
        "arguments",
        "future",
        "has_arrived",
        "is_awaited",
        "key",
        "problem",
        "record",
    )

    def __init__(self, arguments: tuple[Any, ...], key: bytes) -> None:
        self.arguments: tuple[Any, ...] | None = arguments
        self.key = key
        self.future: Future[Any] | None = None
        #: The number of the result's record; 0 if there is none.
        self.record = 0
        #: Why there is no task, or no record.
        self.problem: Exception | None = None
        #: Whether the result can be taken.
        self.has_arrived = False
        #: Whether an event loop waits for it.
        self.is_awaited = False
        self._gate = threading.Lock()
        self._gate.acquire()
        self._wake: Callable[[_Input], object] | None = None

    def arrive(self) -> None:
        """Wakes the thread and the event loop that wait."""
        self.has_arrived = True
        self._gate.release()
        wake = self._wake
        if wake is not None:
            wake(self)

    def wait(self, seconds: float) -> bool:
        """Waits until the result can be taken; returns whether it can."""
        return self.has_arrived or self._gate.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))

    def add_done_callback(self, wake: Callable[[_Input], object]) -> None:
        """Calls `wake` when the result can be taken, or now; perhaps twice."""
        self._wake = wake
        if self.has_arrived:
            wake(self)


def _record(
    log: CallLog, arrivals: queue.SimpleQueue[_Input] | None, entry: _Input, future: Future[Any]
) -> None:
    """Records the result of a task that has ended. It does not refer to the map, which may be dropped meanwhile."""
    try:
        if not future.cancelled() and future.exception() is None:
            entry.record = log.finish(entry.key, pickle.dumps(future.result(), _PROTOCOL))
    except Exception as error:
        error.add_note("The input has run, and its result has no record in the journal of the map.")
        entry.problem = error
    finally:
        if arrivals is not None:
            arrivals.put(entry)
        entry.arrive()


def _refused(number: int, error: Exception) -> _Input:
    """Returns the entry of an input that has no key."""
    entry = _Input((), b"")
    entry.problem = error_of_input(number, error)
    entry.arrive()
    return entry


def _recorded(pickled: bytes) -> Any:
    try:
        return pickle.loads(pickled)
    except Exception as error:
        error.add_note(
            "The journal of the map has this result from an earlier run, and it cannot be unpickled now. With another "
            "journal the inputs run again."
        )
        raise


class JournaledMap(MapIterator[T]):
    """The results of a map with a journal; `Pool.map` makes it."""

    _log: CallLog | None = None

    def _begin(
        self,
        pool: Pool,
        function: tuple[Callable[..., Any], Callable[..., Any]],
        source: Iterator[Any],
        path: str,
        settings: dict[str, Any],
        options: TaskSettings,
    ) -> None:
        """Opens the journal, and submits the first inputs; the base has none."""
        known_as, self._function = function
        self._pool = pool
        self._options = options
        self._inputs: Iterator[Any] | None = source
        self._star: bool = settings["star"]
        self._pairs: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = settings["results"]
        timeout, buffersize, length = settings["timeout"], settings["buffersize"], settings["length"]
        self._until = None if timeout is None else time.monotonic() + timeout
        self._is_bounded = buffersize is not None
        self._most: int = buffersize or _AHEAD + _AHEAD_EACH * pool._lanes
        self._is_sized = length is not None
        #: How many inputs there are, as far as that is known; when the map has ended, how many were not taken.
        self._length: int | None = length
        self._input_error: Exception | None = None
        #: An input for which the pool's queue had no room.
        self._held: _Input | None = None
        #: With `ordered` all inputs that were taken from the iterables, in their order; else those whose results can be
        #: taken. Of an input that an earlier run has finished this is the pickle of its result.
        self._line: deque[_Input | bytes] = deque()
        #: Results that come before the line.
        self._laid: deque[T] = deque()
        #: Without `ordered`: the inputs that were submitted, and have not arrived.
        self._flying: dict[_Input, None] = {}
        self._arrivals: queue.SimpleQueue[_Input] | None = (
            None if settings["ordered"] else queue.SimpleQueue()
        )
        #: All records up to this number are on the disk.
        self._durable = 0
        self._synced_at = -inf
        self._syncs: ThreadPoolExecutor | None = None
        self._queue_room: Future[None] | None = None
        self._is_begun = False
        self._is_deserted = False
        #: Held by the thread that runs the iterator's code. An `RLock`, because that knows its owner, and is taken
        #: without a step of Python's in which Ctrl-C could leave it taken.
        self._turn = threading.RLock()
        key = key_of_function(known_as)
        self._log = open_calls(path)
        self._calls = key, self._star, parts, _refused
        try:
            self._fill(self._most)
        except BaseException:
            self._end(running=False)
            raise
        if not self._is_bounded:
            # "Run all these", as in the standard library, if nobody takes a result: then the pool keeps the map.
            pool._unread.append(self)

    # --- inputs -----------------------------------------------------------------------------------------------------

    def _fill(self, most: float) -> None:
        """Takes inputs and submits their tasks, as long as the pool's queue has room for them."""
        while self._held is not None or (
            self._inputs is not None and len(self._line) + len(self._flying) < most
        ):
            log = self._log
            if log is None:
                return
            entry = self._held or self._next_input(log, most)
            if entry is None:
                continue
            # It stays if there is no room, or if the pool takes no more tasks.
            self._held = entry
            if not self._submit(entry, log, self._pool._submit_in_room):
                return
            self._held = None
            self._add(entry)

    def _add(self, entry: _Input) -> None:
        if self._arrivals is None or entry.future is None:
            self._line.append(entry)
        else:
            self._flying[entry] = None

    def _submit(self, entry: _Input, log: CallLog, submit: Callable[..., Future[Any] | None]) -> bool:
        """Submits an input's task; returns whether the pool has taken it."""
        entry.future = submit(self._function, entry.arguments, None, self._options)
        if entry.future is None:
            return False
        entry.arguments = None
        entry.future.add_done_callback(partial(_record, log, self._arrivals, entry))
        return True

    def _next_input(self, log: CallLog, most: float) -> _Input | None:
        """Takes inputs from the iterables up to one that has not finished, and returns it.

        The results of those before it are appended to the line, as are inputs without a key. It returns `None` if no
        such input comes, and also if there may be more: this is to be called again then.
        """
        assert self._inputs is not None
        room = int(min(most - len(self._line) - len(self._flying), _BATCH))
        found = log.take(self._inputs, room, self._line, self._calls)
        if self._log is None:
            # The map was closed meanwhile, perhaps by the code of the inputs.
            self._line.clear()
            return None
        if isinstance(found, tuple):
            return _Input(*found)
        if found is not None:
            self._inputs = None
            self._input_error = None if isinstance(found, StopIteration) else found
            self._length = 0 if self._is_sized else None
        return None

    # --- results ----------------------------------------------------------------------------------------------------

    def __next__(self) -> T:
        # No context manager, which would take as long as all the rest; and no look first, for another thread may be
        # faster.
        try:
            return self._laid.popleft()
        except IndexError:
            pass
        self._is_deserted = False
        self._refuse_own_code()
        with self._turn:
            self._mark_begun()
            try:
                # Without a name for the input here: its error would refer to it by this frame.
                return cast("T", self._outcome(self._step() or _ended()))
            except KeyboardInterrupt:
                # As in every map: the interrupted program needs the workers.
                self._end(running=True)
                raise

    def _lay_out(self) -> None:
        """Makes the results ready that earlier runs have recorded, as far as they are next."""
        pairs = self._pairs
        lay_out(self._line, self._laid, pickle.loads, None if pairs is None else pairs[0])

    def _step(self) -> _Input | bytes | None:
        """Waits for the next input whose result can be taken, and takes it; `None` at the end."""
        while True:
            self._fill(self._most)
            entry = self._first()
            if entry is not None:
                self._line.popleft()
                return entry
            if not self._line and not self._flying and self._held is None:
                error, self._input_error = self._input_error, None
                self._end(running=False)
                if error is not None:
                    raise error
                return None
            self._wait()

    def _first(self) -> _Input | bytes | None:
        """Returns the first of the line, if its result can be taken."""
        if self._arrivals is not None:
            while not self._arrivals.empty():
                self._land(self._arrivals.get())
        if not self._line:
            return None
        first = self._line[0]
        return first if isinstance(first, bytes) or first.has_arrived else None

    def _land(self, entry: _Input) -> None:
        """Puts an input into the line that has arrived. Of an iteration that was closed, the rest arrives too."""
        if self._flying.pop(entry, entry) is None:
            self._line.append(entry)

    def _wait(self) -> None:
        left = self._left_seconds()
        first = self._line[0] if self._line else None
        if left > 0:
            if isinstance(first, _Input):
                if first.wait(left):
                    return
            elif self._flying and self._arrivals is not None:
                try:
                    self._land(self._arrivals.get(timeout=None if left == inf else left))
                except queue.Empty:
                    pass
                else:
                    return
            elif self._wait_for_room(None if left == inf else left):
                return
        raise TimeoutError("the map's timeout has passed before its next result was there")

    def _wait_for_room(self, seconds: float | None) -> bool:
        """Waits until the pool's queue has room, of which nothing of this map has any; returns whether it has.

        Raises:
            QueueFull: others have filled the queue, and the pool refuses instead of waiting.
        """
        room = self._pool._room()
        if room is not None:
            try:
                return room._wait(seconds)
            finally:
                self._pool._forget_room(room)
        entry, log = self._held, self._log
        if entry is not None and log is not None and self._submit(entry, log, self._pool._submit_nowait):
            self._held = None
            self._add(entry)
        return True

    def _left_seconds(self) -> float:
        return inf if self._until is None else self._until - time.monotonic()

    def _outcome(self, entry: _Input | bytes) -> Any:
        """Returns a result that can be taken, or raises what the input's task has raised."""
        pairs = self._pairs
        if isinstance(entry, bytes):
            value = _recorded(entry)
            self._lay_out()
            return value if pairs is None else pairs[0](value)
        error: BaseException | None = None
        future = entry.future
        try:
            if entry.problem is not None:
                error = entry.problem
                # A result that was not recorded is no failure of its input.
                belongs = future is None
            else:
                assert future is not None
                error = future.exception()
                belongs = isinstance(error, Exception)
            if error is not None:
                if belongs and pairs is not None:
                    return pairs[1](error)
                if isinstance(error, StopIteration):
                    raise RuntimeError("a task of the map raised StopIteration") from error
                raise error
            assert future is not None
            value = future.result()
            if entry.record > self._durable:
                self._gather()
                self._sync()
            return value if pairs is None else pairs[0](value)
        finally:
            # The traceback refers to this frame: what refers to the error would make a cycle of it.
            del error, future, entry, self

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Cancels the tasks that have not started, ends the iteration, and closes the journal."""
        super().close()
        self._end(running=self._is_deserted or _is_interrupted())

    def _end(self, *, running: bool) -> None:
        log, self._log = self._log, None
        if log is None:
            return
        if self._length is not None:
            self._length = max(0, self._length - log.taken)
        self._inputs, self._held = None, None
        futures = self._futures()
        self._flying.clear()
        self._line.clear()
        self._laid.clear()
        self._leave_pool()
        if self._pool._is_forked():
            return  # The tasks and the journal are the parent's.
        for future in futures:
            future.cancel(running=running)
        if self._queue_room is not None:
            self._pool._forget_room(self._queue_room)
        if self._syncs is not None:
            self._syncs.shutdown(wait=False)
        log.close()

    def _is_inside(self) -> bool:
        """Whether this thread runs the iterator's code, and so that of the inputs."""
        return bool(cast("Any", self._turn)._is_owned())

    def _refuse_own_code(self) -> None:
        if self._is_inside():
            raise ValueError("the map is being iterated by this very thread already")

    def _mark_begun(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._leave_pool()

    def _leave_pool(self) -> None:
        self._pool._unread[:] = [other for other in self._pool._unread if other is not self]

    @_core.Finalizer
    def __del__(self) -> None:
        self._end(running=False)

    # --- what the pool, the bar and event loops ask -----------------------------------------------------------------

    def _submit_all(self) -> int | None:
        if not self._is_bounded and (self._is_sized or not self._is_begun) and not self._is_inside():
            with self._turn:
                self._fill(inf)
                while self._held is not None:
                    self._wait_for_room(None)
                    self._fill(inf)
        log = self._log
        return None if self._inputs is None or log is None else log.taken

    def _run_out(self) -> None:
        with self._turn:
            self._mark_begun()
            while self._step() is not None:
                pass

    def _left(self) -> int | None:
        length, log = self._length, self._log
        if length is None:
            return None
        rest = max(0, length - (0 if log is None else log.taken))
        return rest + len(self._laid) + len(self._line) + len(self._flying) + (self._held is not None)

    def _under_way(self) -> float:
        reports = [future._progress() for future in self._futures() if not future.done()]
        told = (report[0] / report[1] for report in reports if report is not None and report[1])
        return sum(min(max(part, 0.0), 1.0) for part in told)

    def _futures(self) -> list[Future[Any]]:
        """Returns the futures of the tasks whose results nobody has taken."""
        entries = [entry for entry in (*self._line, *self._flying) if isinstance(entry, _Input)]
        return [entry.future for entry in entries if entry.future is not None]

    def _desert(self) -> None:
        self._is_deserted = True

    def _pending(self) -> tuple[list[Any], float | None] | None:
        self._is_deserted = False
        self._refuse_own_code()
        with self._turn:
            self._mark_begun()
            if self._laid:
                return None
            self._fill(self._most)
            news: list[Any] = []
            entry = self._first()
            if entry is not None:
                if isinstance(entry, bytes) or entry.record <= self._durable or entry.problem is not None:
                    return None
                news.append(self._synced())
            elif not self._line and not self._flying and self._held is None:
                return None
            else:
                looked = [
                    entry for entry in (*islice(self._line, 1), *self._flying) if isinstance(entry, _Input)
                ]
                news.extend(flying for flying in looked if not flying.is_awaited)
                for flying in looked:
                    flying.is_awaited = True
                if self._held is not None:
                    room = self._room_again()
                    if room is None and not self._line and not self._flying:
                        # The next look has room, or raises what the pool says.
                        return None
                    news.extend(() if room is None else (room,))
            left = self._left_seconds()
            if left <= 0:
                return None
            return news, None if left == inf else left

    def _room_again(self) -> Future[None] | None:
        """Returns a future that ends when the pool's queue has room; `None` if it has."""
        if self._queue_room is not None and not self._queue_room.done():
            return self._queue_room
        self._queue_room = self._pool._room()
        return self._queue_room

    def _may_gather(self) -> bool:
        """Whether few results have arrived, and others may come before a sync."""
        arrived = sum(isinstance(entry, bytes) or entry.has_arrived for entry in islice(self._line, _ENOUGH))
        return arrived < min(_ENOUGH, len(self._line) + len(self._flying))

    def _synced(self) -> AnyFuture[None]:
        """Puts the records on the disk in a thread, so that the event loop goes on."""
        if self._syncs is None:
            self._syncs = ThreadPoolExecutor(1, "ropewalk-journal")
        return self._syncs.submit(self._sync)

    def _gather(self) -> None:
        """Waits until there are results to share a sync, unless the last one is long ago."""
        early = self._synced_at + _GATHERED
        while time.monotonic() < early and self._may_gather():
            time.sleep(_GATHERED / 5)

    def _sync(self) -> None:
        """Puts all records on the disk."""
        log = self._log
        if log is not None:
            self._durable = log.sync()
            self._synced_at = time.monotonic()


def _ended() -> Never:
    raise StopIteration


def _is_interrupted() -> bool:
    """Whether Ctrl-C or a cancellation is being handled."""
    handled = sys.exc_info()[0]
    if handled is None:
        return False
    asyncio = sys.modules.get("asyncio")
    return issubclass(handled, (KeyboardInterrupt, *(() if asyncio is None else (asyncio.CancelledError,))))


class JournaledMapWithProgress(MapWithProgress[T], JournaledMap[T]):
    """A `JournaledMap` that draws a progress bar."""

    @_core.Finalizer
    def __del__(self) -> None:
        if self._bar is not None:
            self._bar.close()
        JournaledMap.__del__.__get__(self)()


def journaled_map(
    pool: Pool,
    function: tuple[Callable[..., Any], Callable[..., Any]],
    source: Iterator[Any],
    path: str,
    settings: dict[str, Any],
    options: TaskSettings,
    progress: bool,
) -> MapIterator[Any]:
    """Makes the map: `function` is the one that the journal knows, and the one that the tasks call."""
    kind: type[JournaledMap[Any]] = JournaledMapWithProgress[Any] if progress else JournaledMap[Any]
    made = kind(pool, function[1], iter(()), settings)
    made._begin(pool, function, source, path, settings, options)
    return made
