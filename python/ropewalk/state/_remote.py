"""Tasks in other processes: what of the state is sent there, and the commit of what comes back."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Generator
from concurrent.futures import Executor, Future
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from ropewalk._errors import EncodeError, ResultEncodeError, StateError, StoreClosed, WorkerCrashed
from ropewalk._load import state as _native
from ropewalk.pool.wire._serialize import refused_argument
from ropewalk.result import Err
from ropewalk.state._codec import dumps
from ropewalk.state._diff import between
from ropewalk.state._paths import steps_of
from ropewalk.state._prepared import named, prepared_for
from ropewalk.state._records import is_dataclass
from ropewalk.state._replay import Change
from ropewalk.state._replica import Done, Part, run_in_worker
from ropewalk.state._shipped import Shipped
from ropewalk.state._signed import Signature, signature_for, with_signature
from ropewalk.state._task import Task, bound

if TYPE_CHECKING:
    from ropewalk.state._store import Store

T = TypeVar("T")

#: A checkpoint is made anew when the changes since have grown to this part of its size, in bytes.
_STALE = 0.25
#: Smaller changes than this are always sent along.
_SMALL = 16 << 10
#: So often a task runs again in a worker after a conflict before it runs in the parent, where it cannot starve.
_RETRIES = 8

#: A note of an error; a worker that was lost is no conflict.
_RUN_AGAIN = (
    "the task {task} changed nothing. Store(..., pool=pool.options(retries=2)) lets the pool run a task again whose "
    "worker is lost; the retries of a task or of a store are for conflicts"
)


class _Checkpoint(NamedTuple):
    version: int
    value: Any
    #: Pickled, in shared memory if the pool can pass that.
    data: Any
    size: int
    #: The memory of its arrays, which the worker maps.
    lent: list[Any]


class _Changes(NamedTuple):
    version: int
    data: bytes
    lent: list[Any]


class _Sent(NamedTuple):
    """A task on its way."""

    task: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    executor: Executor
    #: What the caller has.
    outer: Submitted[Any]
    attempt: int
    #: Of the caller of `submit`.
    signature: Signature | None


def runs_elsewhere(executor: Executor) -> bool:
    """Whether an executor runs its tasks in other processes or interpreters."""
    kind = getattr(executor, "kind", None)
    if isinstance(kind, str):
        return kind != "thread"
    from concurrent.futures import ThreadPoolExecutor

    return not isinstance(executor, ThreadPoolExecutor)


class Submitted(Future[T]):
    """The future of a submitted task, which coroutines may await as well."""

    def __await__(self) -> Generator[Any, None, T]:
        """Waits for the result without blocking the event loop.

        Cancel safety: a cancelled await cancels the task if it has not begun to commit, as `asyncio.wrap_future` does.
        """
        import asyncio

        return asyncio.wrap_future(self).__await__()


def submitted_to_thread(
    store: Store[Any], executor: Executor, task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Submits a task to an executor of threads, and returns a future that coroutines may await."""
    run: Any = store.run
    if store._signs:
        # The executor's thread has a context of its own.
        run = partial(copy_context().run, run)
    if getattr(executor, "kind", None) == "thread":
        return executor.submit(run, task, *args, **kwargs)
    outer: Submitted[Any] = Submitted()

    def call() -> None:
        if not outer.set_running_or_notify_cancel():
            return
        try:
            result = run(task, *args, **kwargs)
        except BaseException as error:
            outer.set_exception(error)
        else:
            outer.set_result(result)

    executor.submit(call).add_done_callback(lambda inner: _cancel(outer) if inner.cancelled() else None)
    return outer


def _cancel(outer: Future[Any]) -> None:
    if outer.cancel():
        outer.set_running_or_notify_cancel()
    elif not outer.done():
        # It has met a conflict, so it counts as running.
        outer.set_exception(closed_error())


def closed_error() -> StoreClosed:
    return StoreClosed("the store is closed; open it again")


class Remote:
    """The tasks of a store that run in other processes."""

    def __init__(self, store: Store[Any]) -> None:
        self._store = store
        self._name = uuid.uuid4().hex
        self._shipped = Shipped(store._kind)
        self._lock = threading.Lock()
        self._checkpoints: dict[tuple[str | None, bool], _Checkpoint] = {}
        self._changes: dict[tuple[str | None, bool], _Changes] = {}
        self._changed = threading.Condition()
        self._came: deque[tuple[_Sent, Any, Future[Done]]] = deque()
        self._open = 0
        #: What executors have, and whose it is.
        self._going: dict[Future[Any], _Sent] = {}
        #: Calls that have met a conflict, by the identity of the task: the first of a line runs, the others wait.
        self._lines: dict[int, deque[_Sent]] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(
        self, executor: Executor, task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Submitted[Any]:
        """Sends a task to a worker, and returns the future of its result, which comes after its commit."""
        task, names = bound(task)
        if not callable(task):
            raise TypeError(
                f"a transaction runs a task or a function, and its arguments follow it; not {task!r}"
            )
        if names:
            kwargs = {**names, **kwargs}
        outer: Submitted[Any] = Submitted()
        self._send(_Sent(task, args, kwargs, executor, outer, 0, signature_for(self._store)))
        return outer

    def close(self) -> None:
        """Waits for the tasks that are on their way, unless one of their effects closes the store."""
        with self._changed:
            is_own = self._thread is threading.current_thread()
            if not is_own:
                self._changed.wait_for(lambda: not self._open)
            thread = self._thread
            self._is_closed = True
            self._changed.notify_all()
        if thread is not None and not is_own:
            thread.join()

    def cut(self) -> None:
        """Cancels the tasks that are on their way, and waits for none; what a worker does is not committed."""
        with self._changed:
            self._is_closed = True
            going = list(self._going.items())
            waiting = [sent for line in self._lines.values() for sent in list(line)[1:]]
            self._going.clear()
            self._lines.clear()
            self._changed.notify_all()
            thread = self._thread
        for inner, sent in going:
            inner.cancel()
            _cancel(sent.outer)
        for sent in waiting:
            _cancel(sent.outer)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    # --- the way there ------------------------------------------------------------------------------------------------

    def _send(self, sent: _Sent) -> None:
        # In one step: the version, the state, and what is sent of it.
        newest = self._store._versions(self._store.version)[-1]
        version, state = newest[0], newest[1]
        parts = [
            self._part(name, version, state if name is None else getattr(state, name), sent.executor)
            for name in self._fields(sent.task, state)
        ]
        with self._changed:
            if self._is_closed:
                raise closed_error()
            self._open += 1
        try:
            inner = self._submitted(sent, parts)
        except BaseException:
            self._ended()
            raise
        with self._changed:
            self._going[inner] = sent
        inner.add_done_callback(lambda inner: self._arrived(sent, state, inner))

    def _submitted(self, sent: _Sent, parts: list[Part]) -> Future[Done]:
        task, args, kwargs = sent.task, sent.args, sent.kwargs
        if not isinstance(getattr(sent.executor, "kind", None), str):
            # One of another library, which pickles functions by their names.
            return sent.executor.submit(run_in_worker, self._store._kind, parts, task, args, kwargs)
        try:
            return sent.executor.submit(self._shipped.of(task), parts, *args, **kwargs)
        except EncodeError as error:
            raise _explained(error, sent) from error.__cause__

    def _fields(self, task: Any, state: Any) -> list[str | None]:
        """The fields of the state that a task may touch; `None` alone is the whole state."""
        kind = cast("Any", type(state))
        if (
            not isinstance(task, Task)
            or task.contract is None
            or task.strict is not True
            or not is_dataclass(kind)
            or kind.__new__ is not object.__new__
        ):
            return [None]
        contract = task.contract.for_shape(self._store._shape)
        names: dict[str | None, None] = {}
        for path in (*contract.reads, *contract.writes):
            steps = () if isinstance(path, str) else steps_of(path)
            if not steps or not isinstance(steps[0], str):
                return [None]
            names[steps[0]] = None
        return list(names)

    def _part(self, name: str | None, version: int, value: Any, executor: Executor) -> Part:
        is_shared = getattr(executor, "kind", None) == "process"
        place = name, is_shared
        with self._lock:
            checkpoint, changes = self._checkpoints.get(place), self._changes.get(place)
        if checkpoint is not None and (changes is None or changes.version != version):
            changed: list[Any] | None = [] if is_shared else None
            found = [_whole(int(one), path, new) for one, path, new in between(checkpoint.value, value)]
            changes = _Changes(version, dumps(found, changed), changed or [])
            if len(changes.data) > max(_SMALL, _STALE * checkpoint.size):
                checkpoint = None
        if checkpoint is None:
            lent: list[Any] | None = [] if is_shared else None
            data: Any = dumps(value, lent)
            size = len(data)
            if is_shared:
                from ropewalk.shared import share

                data = cast("Any", share(data))
            checkpoint = _Checkpoint(version, value, data, size, lent or [])
            changes = _Changes(version, dumps([]), [])
        assert changes is not None
        with self._lock:
            self._checkpoints[place], self._changes[place] = checkpoint, changes
        key = (self._name, name, checkpoint.version)
        return Part(name, key, checkpoint.data, changes.data, version, checkpoint.lent, changes.lent)

    # --- the way back -------------------------------------------------------------------------------------------------

    def _ended(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def _arrived(self, sent: _Sent, state: Any, inner: Future[Done]) -> None:
        """Called by a thread of the executor, which must not wait for a disk."""
        with self._changed:
            is_known = self._going.pop(inner, None) is not None
            if self._is_closed and not is_known:
                # It was cut.
                return
            self._came.append((sent, state, inner))
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="ropewalk-commits", daemon=True)
                thread.start()
                self._thread = thread
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._came or self._is_closed or not self._open)
                if not self._came:
                    # A store that nobody has closed would live as long as the thread. The next arrival starts another.
                    self._thread = None
                    return
                batch = list(self._came)
                self._came.clear()
            settled: list[tuple[Future[Any], Any, tuple[int, int] | None]] = []
            for sent, state, inner in batch:
                try:
                    self._commit(sent, state, inner.result(), settled)
                except BaseException as error:
                    if not sent.outer.cancelled():
                        sent.outer.set_exception(_explained(error, sent))
                    self._step_out(sent)
                    self._ended()
            # All commits of the batch share the sync.
            for outer, result, done in settled:
                try:
                    if done is not None:
                        self._store._settle(done)
                except BaseException as error:
                    outer.set_exception(error)
                else:
                    outer.set_result(result)
                self._ended()

    def _commit(
        self,
        sent: _Sent,
        state: Any,
        came: Done,
        settled: list[tuple[Future[Any], Any, tuple[int, int] | None]],
    ) -> None:
        if sent.attempt == 0 and not sent.outer.set_running_or_notify_cancel():
            self._ended()
            return
        result, done = came.result, None
        if type(cast("object", result)) is not Err:
            done = self._replayed(sent, state, came)
            if done is None and sent.attempt < _RETRIES:
                self._try_again(sent)
                return
            if done is None:
                prepared = prepared_for(self._store, sent.task)
                prepared = prepared._replace(meta=with_signature(prepared.meta, sent.signature))
                result, done = self._store._again(prepared, sent.args, sent.kwargs)
        settled.append((sent.outer, result, done))
        self._step_out(sent)

    def _try_again(self, sent: _Sent) -> None:
        """Sends a task again after a conflict, if no other call of it is being sent again; if so, it waits its turn.

        Many calls that change one place meet each other: were they all sent again at once, one of them would commit
        each time, and all others fail again.
        """
        again = sent._replace(attempt=sent.attempt + 1)
        with self._changed:
            line = self._lines.setdefault(id(sent.task), deque())
            if sent.attempt:
                # It is the first one.
                line[0] = again
            else:
                line.append(again)
                if len(line) > 1:
                    return
        try:
            self._send(again)
        except BaseException:
            self._step_out(again)
            raise
        self._ended()

    def _step_out(self, sent: _Sent) -> None:
        """Lets the next one of the line go, if this one has led it."""
        while sent.attempt:
            with self._changed:
                line = self._lines.get(id(sent.task))
                if not line or line[0] is not sent:
                    return
                line.popleft()
                if not line:
                    del self._lines[id(sent.task)]
                    return
                sent = line[0]
            try:
                self._send(sent)
            except BaseException as error:
                sent.outer.set_exception(error)
            else:
                self._ended()
                return
            self._ended()

    def _replayed(self, sent: _Sent, state: Any, came: Done) -> tuple[int, int] | None:
        """Does again what a task did, if what it has read is still there; `None` if not."""
        _, rule, meta, _ = prepared_for(self._store, sent.task)
        transaction = self._store._begin(rule, with_signature(meta, sent.signature))
        try:
            base = transaction.base
            for path, access in came.reads:
                if not _is_same(path, access, state, base):
                    return None
                _read(transaction, path, access)
            for number, path, value in came.changes:
                _repeat(transaction.root, Change(number), path, value)
            for function, *args in came.effects:
                transaction.on_commit(function, *args)
            return self._store._commit(transaction, 0)
        finally:
            transaction.abort()


def _explained(error: BaseException, sent: _Sent) -> BaseException:
    """Returns the error of a pool as one of the task that the program has sent."""
    name = named(sent.task)
    if isinstance(error, WorkerCrashed):
        error.add_note(_RUN_AGAIN.format(task=name))
    elif isinstance(error, EncodeError) and not isinstance(error, ResultEncodeError):
        # The pool counts the parts of the state as arguments too.
        refused = refused_argument(sent.args, sent.kwargs)
        if refused is not None:
            made = EncodeError(f"cannot send the task {name} to a worker process: {refused}")
            made.__cause__ = error.__cause__
            return made
        error.add_note(f"the task {name} of a store was on its way to a worker process")
    return error


def _whole(number: int, path: tuple[Any, ...], value: Any) -> tuple[int, tuple[Any, ...], Any]:
    """Returns a change as a worker repeats it: of an array, the one that takes the other's place."""
    return (int(Change.SET), path, value[1]) if number == Change.PATCH else (number, path, value)


def _has_keys(at: object) -> bool:
    return type(at) is _native.PMap or isinstance(at, _native.MapDraft)


def _step(at: Any, step: Any) -> Any:
    if isinstance(step, str) and not _has_keys(at):
        return getattr(at, step)
    return at[step]


def _is_same(path: tuple[Any, ...], access: str, old: Any, new: Any) -> bool:
    """Whether what was read at a path of one state is the same in another."""
    for step in path:
        if old is new:
            return True
        there = [True, True]
        found: list[Any] = []
        for index, at in enumerate((old, new)):
            try:
                found.append(_step(at, step))
            except (LookupError, AttributeError):
                there[index] = False
                found.append(None)
        if not all(there):
            return not any(there)
        old, new = found
    return access == "seen" or old is new or (type(old) is int and type(new) is int and old == new)


def _read(transaction: _native.Transaction, path: tuple[Any, ...], access: str) -> None:
    """Reads a place, so that the commit compares it with the newest state."""
    at = transaction.root
    for step in path[:-1]:
        try:
            at = _step(at, step)
        except (LookupError, AttributeError):
            return
    if path:
        step = path[-1]
        if access == "seen":
            _ = step in at  # The look is what counts.
            return
        try:
            at = _step(at, step)
        except (LookupError, AttributeError):
            return
    transaction.value(at)


def _repeat(root: Any, change: Change, path: tuple[Any, ...], value: Any) -> None:
    """Does one change on a draft of the whole state."""
    at = root
    inner = path if change in (Change.APPEND, Change.ADD, Change.DROP) else path[:-1]
    for step in inner:
        at = _step(at, step)
    if change is Change.APPEND:
        at.extend(value)
    elif change is Change.ADD:
        at.add(value)
    elif change is Change.DROP:
        for _ in range(value):
            at.pop()
    elif not path:
        raise StateError("a task cannot replace the whole state")
    elif change is Change.DELETE:
        del at[path[-1]]
    elif isinstance(path[-1], str) and isinstance(at, _native.RecordDraft):
        setattr(at, path[-1], value)
    else:
        at[path[-1]] = value
