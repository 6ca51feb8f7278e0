"""`Store`: a state that transactions change, and its versions."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, cast, overload

from ropewalk._checked import checked_choice, checked_count
from ropewalk._errors import HistoryGone, NotFrozen, StateError
from ropewalk._load import state as _native
from ropewalk.state._array_lengths import with_lengths
from ropewalk.state._array_shapes import entered
from ropewalk.state._effects import Effect, Effects
from ropewalk.state._form import form_of, native_rule
from ropewalk.state._invariants import check_one, checker
from ropewalk.state._jobs import run_all
from ropewalk.state._past import check_transients, gone, step_from, transient_parts
from ropewalk.state._patches import Entry, Operation, entry_of, patch_between
from ropewalk.state._policy import policy_shape, rows_without_place
from ropewalk.state._prepared import Prepared, name_of, prepared_for
from ropewalk.state._records import is_record
from ropewalk.state._remote import Remote, Submitted, closed_error, runs_elsewhere, submitted_to_thread
from ropewalk.state._replay import is_map
from ropewalk.state._shape import Shape, shape_of
from ropewalk.state._signed import signature_for, signed, with_signature
from ropewalk.state._slots import Slots
from ropewalk.state._syncer import Syncer
from ropewalk.state._task import Job, Task
from ropewalk.state._threads import Threads
from ropewalk.state._transaction import Block, Meta, Transaction, entangled, is_changed
from ropewalk.state._turns import LONG_PATIENCE, pause, refused, run_below, run_claimed, run_in_loop
from ropewalk.state._watch import Changes, Watchers
from ropewalk.state._watched import Watcher

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from ropewalk.journal import Sync
    from ropewalk.state._log import Log
    from ropewalk.state._paths import Path

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

#: So often a transaction runs again after a conflict before it claims what it touches.
_RETRIES = 4
_UNDO, _REDO = Meta("undo"), Meta("redo")
#: Versions that a store keeps, unless it was made with another number.
_HISTORY = 1000


class Version(NamedTuple, Generic[S]):
    """A version of a state."""

    number: int
    state: S
    meta: Meta
    #: When it was committed, in seconds since 1970; 0 for the state that the store was opened with.
    at: float


class _Held(threading.local):
    """The claim that a transaction of this thread has."""

    claim = 0
    #: Whether it is that of a block with `exclusive=True`.
    is_exclusive = False


def _shape_for(state: Any, policy: Mapping[Any, Any] | None) -> Shape:
    """Returns the shape of a state that a store is opened with."""
    if isinstance(state, (dict, _native.PMap)):
        return policy_shape(policy or {})
    if not is_record(type(state)):
        # What is no state is refused with a text of its own.
        return policy_shape({})
    if policy is not None:
        raise TypeError("policy is for a mapping as the state; a class has annotations")
    return shape_of(type(state))


def _entered(shape: Shape, state: Any) -> Any:
    try:
        return entered(shape, state)
    except NotFrozen as error:
        if shape.of_policy and (rows := rows_without_place(shape, state)):
            error.add_note(f"the policy names {' and '.join(rows)}, which the state does not have")
        raise


class Store(_native.StoreBase, Generic[S]):
    """A state that many threads read and transactions change; with a journal it survives `kill -9`.

        bank = Store(Bank(...), journal="bank.wal")
        bank.run(transfer, "ann", "bob", 5)
        with bank.transaction(label="fees") as tx:
            tx.draft.accounts["ann"].balance -= 1
        bank.snapshot().accounts["ann"].balance

    ``state`` is a record, such as a frozen dataclass, or a mapping; lists, sets and dicts in it become `PVector`,
    `frozenset` and `PMap`. If the journal has a state, it is taken from there, and ``state`` says its class.

    Transactions are serializable: the outcome is that of the committed ones one after the other, in the order of their
    versions. A transaction works on the snapshot that it began with. At its end everything that it has read is compared
    with the newest state; if something was changed since, `run` runs it again.

    Args:
        state: the first state.
        journal: a file that gets a record for each commit; `None` keeps the state in memory only.
        sync: when a commit is on the disk, as `Journal` says; `run` returns after that.
        seconds: the time of ``sync="group"`` and ``sync="interval"``.
        history: how many versions `at`, `diff` and `undo` can go back to. Old versions share what has not changed.
        retries: how often a transaction runs again after conflicts before it claims what it touches, so that no other
            transaction can be in its way.
        invariants: functions that take a state, called with each new one before it is committed. If it must not be,
            they raise, or return what is neither `None` nor true. `invariant` names the places that one depends on.
        policy: for a mapping as the state: what `policy_shape` takes, zones and types by path.
        pool: where `submit` runs tasks: a `ropewalk.Pool` of any kind, or another executor.

    Raises:
        NotFrozen: a part of the state may change in place.
        WrongType: a part of it is none of what its annotation allows.
        JournalError: the journal cannot be opened, and its subclasses as `Journal` raises them.
        StateError: the journal is one of another state; or a part of a vector's items is transient.
        InvariantBroken: the first state breaks an invariant.
    """

    _log: Log | None
    _kind: type
    _shape: Shape
    _retries: int
    #: Whether an older state takes the place of the newest one as it is.
    _swaps: bool
    #: The rule of a transaction without a contract.
    _whole: _native.Rule
    _tasks: weakref.WeakKeyDictionary[Task[..., Any], Prepared]
    #: What ran last, most often the next one too.
    _last: tuple[Any, Prepared]
    _held: _Held
    _effects: Effects
    _syncer: Syncer
    _watcher: Watcher
    _watchers: Watchers
    #: Whether changes are watched: the subscribers themselves.
    _subscribers: Mapping[Any, Any]
    #: Coroutines that wait for the end of a claim.
    _turns: Watchers
    #: Whether `by` was ever called.
    _signs: bool
    _pool: Executor | None
    _lock: threading.Lock
    _remote: Remote | None
    _threads: Threads
    #: What the contracts of tasks touch.
    _task_slots: weakref.WeakKeyDictionary[Task[..., Any], Slots]

    def __new__(
        cls,
        state: S,
        *,
        journal: str | os.PathLike[str] | None = None,
        sync: Sync = "always",
        seconds: float | None = None,
        history: int = _HISTORY,
        retries: int = _RETRIES,
        invariants: Iterable[Callable[[S], object]] = (),
        pool: Executor | None = None,
        policy: Mapping[Any, Any] | None = None,
    ) -> Self:
        """Opens a store."""
        history = checked_count("history", history, 1)
        retries = checked_count("retries", retries, 0)
        if pool is not None and not isinstance(cast("object", pool), Executor):
            raise TypeError(f"pool must be an executor, or None, not {pool!r}")
        if callable(cast("object", invariants)):
            raise TypeError(
                f"invariants must be a list of functions: write invariants=[{name_of(invariants)}]"
            )
        every = tuple(invariants)
        check = checker(every)
        checked_choice("sync", sync, ("always", "group", "interval"))
        shape = _shape_for(state, policy)
        frozen: Any = _entered(shape, state)
        if not (is_map(frozen) or is_record(type(frozen))):
            raise StateError(
                f"the state of a store must be a record or a mapping, such as a frozen dataclass or a PMap, and not of "
                f"class {type(state).__qualname__}"
            )
        # Before the journal is opened: what is refused here leaves the file as it is.
        if is_map(frozen):
            shape = policy_shape(policy or {})
        elif policy is not None:
            raise TypeError("policy is for a mapping as the state; a class has annotations")
        else:
            shape = shape_of(type(frozen))
        check_transients(shape)
        given = frozen = _native.freeze(frozen, form_of(shape))
        log = None
        version = 0
        if journal is None:
            for one in every:
                check_one(one, frozen)
        else:
            # An interpreter that cannot load the journal still has stores in memory.
            from ropewalk.state._log import Log

            log = Log(journal, sync, seconds, type(cast("object", frozen)))
            try:
                frozen, version = log.recover(frozen, shape)
                frozen = entered(shape, frozen)
                for one in every:
                    check_one(one, frozen)
            except BaseException:
                log.close()
                raise
        try:
            self = super().__new__(
                cls,
                frozen,
                version,
                history,
                with_lengths(shape, check),
                None if log is None else log.encode,
                None if log is None else log.handle,
            )
        except BaseException:
            if log is not None:
                log.close()
            raise
        self._log = log
        self._kind = type(frozen)
        self._shape = shape
        if log is not None:
            log.compare_constants(shape, given, frozen)
        self._retries = retries
        self._swaps = log is None and not transient_parts(self._shape)
        self._whole = native_rule(self._shape, None)
        self._tasks = weakref.WeakKeyDictionary()
        self._last = (object(), Prepared(len, self._whole, Meta(), 0))
        self._held = _Held()
        self._syncer = Syncer(self)
        self._watcher = Watcher()
        self._watchers = Watchers()
        self._subscribers = self._watchers.events
        self._turns = Watchers()
        self._signs = False
        self._pool = pool
        self._lock = threading.Lock()
        self._remote = None
        self._threads = Threads("ropewalk-jobs")
        self._task_slots = weakref.WeakKeyDictionary()
        # At the end: it may deliver at once what an earlier process has left.
        self._effects = Effects(self, log)
        return self

    # --- reading ------------------------------------------------------------------------------------------------------

    if TYPE_CHECKING:

        def snapshot(self) -> S:
            """Returns the state as it is now; it never changes."""
            ...

    def at(self, version: int) -> S:
        """Returns the state of a version.

        Raises:
            HistoryGone: the store does not keep that version any more, or never had it.
        """
        return self._kept(version).state

    def history(self, first: int = 0) -> list[Version[S]]:
        """Returns the versions that are kept, from a number on, the oldest first."""
        return [
            Version(number, state, meta or Meta(), at)
            for number, state, meta, at, _, _ in self._versions(max(first, 0))
        ]

    def diff(self, old: int, new: int) -> list[Operation]:
        """Returns what leads from one version to another, as a JSON patch (RFC 6902) whose values are objects.

        It costs what has changed, not what there is. `diff(new, old)` is the way back.

        Raises:
            HistoryGone: the store does not keep one of them.
        """
        return patch_between(self._kept(old).state, self._kept(new).state)

    def audit(self, first: int = 0) -> Iterator[Entry]:
        """Yields for each version from a number on what it changed and in which name.

        0 stands for all that is kept. The oldest version that is kept has nothing to be compared with, and is left out:
        after a restart the first entry is that of the first commit since.

        Raises:
            HistoryGone: the version ``first``, or the one before it, is not kept, so that entries would be left out.
        """
        if first > 0:
            self._kept(first - 1)
        kept = self._versions(max(first - 1, 0))
        return (entry_of(before[1], version) for before, version in itertools.pairwise(kept))

    @overload
    def changes(self, path: None = None, *, since: int | None = None) -> Changes[S]: ...
    @overload
    def changes(self, path: Path[T], *, since: int | None = None) -> Changes[T]: ...
    @overload
    def changes(self, path: str, *, since: int | None = None) -> Changes[Any]: ...
    def changes(self, path: Path[Any] | str | None = None, *, since: int | None = None) -> Changes[Any]:
        """Yields what is committed at a path from this call on, in the order of versions, until the store is closed.

            async for change in bank.changes(P.accounts[...].balance): ...

        A change is seen once it is on the disk. Without a path each change is one of the whole state. With ``since``
        the changes of the versions behind that one come first, as far as they are kept.

        Raises:
            HistoryGone: the store does not keep version ``since``. In the loop: its body was so slow that versions
                went by unseen.
            NoSuchPath: the state has no such place, or the path is of another state.
            ValueError: a text is no path.
        """
        return Changes(self, path, since)

    def _kept(self, version: int) -> Version[S]:
        kept = self.history(version)
        if not kept or kept[0].number != version:
            every = self.history()
            raise HistoryGone(
                f"the store has no version {version}: it keeps {every[0].number} to {every[-1].number}"
            )
        return kept[0]

    # --- transactions -------------------------------------------------------------------------------------------------

    def run(
        self, task: Task[P, R] | Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Runs a task as a transaction, again after conflicts, and returns what it returns.

        An exception, or a returned `Err`, gives the changes up. A draft in the result becomes the value that it has.
        With a journal the commit is on the disk when this returns.

        Raises:
            ContractViolation: the task touches what its contract does not declare.
            InvariantBroken: the new state breaks an invariant.
            JournalError: the record could not be written; the commit is undone.
            StoreClosed: the store was closed.
        """
        # The steps of `_execute` and `_settle` stand here, because a small task takes less time than their calls.
        last, prepared = self._last
        if last is not task:
            prepared = prepared_for(self, task)
            self._last = task, prepared
        function, rule, meta, _ = prepared
        claim = 0
        if self._has_claims:
            claim = self._held.claim
            if claim:
                self._check_free()
        if self._signs:
            prepared = self._signed(prepared)
            meta = prepared.meta
        outcome = self._attempt(function, rule, meta, claim, args, kwargs)
        result: Any
        result, done = self._again(prepared, args, kwargs) if outcome is None else outcome
        if done is not None and (self._is_due or self._subscribers):
            self._settle(done)
        return result  # type: ignore[no-any-return]

    async def arun(
        self, task: Task[P, R] | Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Runs a task as `run` does, and awaits the disk; the task itself runs in the event loop's thread.

        Commits of coroutines that await at the same time share one sync of the disk. Where another transaction has
        claimed what this one touches, with ``exclusive=True`` for instance, the coroutine waits, and the event loop
        goes on.

        Cancel safety: a coroutine that is cancelled while it waits for others, or for its next attempt, has committed
        nothing. Once the task has committed, which is before the first await if nothing is in its way, a cancellation
        takes nothing back, and effects are delivered in a thread of their own.
        """
        if self._held.claim:
            # Within a transaction of this thread: it commits under that one's claim, and waits for nothing.
            result, done = self._execute(task, args, kwargs)
        else:
            result, done = await run_in_loop(self, self._ready(task), args, kwargs)
        if done is not None:
            if self._log is not None:
                try:
                    await self._syncer.settled(done)
                except asyncio.CancelledError:
                    # The commit goes to the disk all the same, and what follows from it too.
                    self._effects.deliver_behind(done)
                    raise
            if self._subscribers:
                self._watchers.wake()
            if self._has_effects:
                self._effects.deliver()
        return cast("R", result)

    @overload
    def run_all(self, jobs: Iterable[Job[R]]) -> list[R]: ...
    # Checkers find no one result of a list that has jobs of several kinds.
    @overload
    def run_all(self, jobs: Iterable[Job[Any]]) -> list[Any]: ...
    def run_all(self, jobs: Iterable[Job[Any]]) -> list[Any]:
        """Runs many tasks, each as a transaction of its own, and returns their results in order.

        A job is a task, or a tuple of a task and its arguments; `functools.partial(task, name=value)` in the place of a
        task gives arguments by name. All commits share the syncs of the disk.

        Jobs whose contracts are disjoint run side by side, in this thread and in threads of the store, or of its pool;
        if the pool has worker processes, they go there. Jobs that may conflict run in the order given, one after the
        other, and so do all jobs of one task. So none of them meets a conflict with another, and none runs again for
        one. A task without a contract, or without ``strict=True``, may touch everything: with one of these all jobs
        run in this thread. Each part that runs by itself has a copy of the caller's context.

        After an exception no further job begins, and those that have begun end. That of the first job in the order
        given is raised, with a note that says which jobs have ended; those are committed, unless they returned an
        `Err`.

        An interrupt has such a note too, wherever it comes. It waits for the jobs that have begun; a second interrupt
        does not, and then more may be committed than the note says. Two gaps are left: a job that ran again after a
        conflict may have committed just before the interrupt without being in the note, and one that an interrupt
        catches on its way to a worker process may commit later.

        A job that forks leaves the other threads behind: in the child no further job begins, nothing waits, and
        `StateError` is raised.

        Raises:
            PoolClosed, RuntimeError: the store's pool was shut down; the note says if jobs have begun by then.
            TypeError, ContractViolation: a job cannot be run; none has begun.
            JournalError: a record could not be written; the commits that stood on it are undone. A note says which
                jobs are on the disk.
        """
        return run_all(self, jobs)

    def submit(
        self, task: Task[P, R] | Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Submitted[R]:
        """Runs a task on the store's pool, and returns the future of its result, which comes after its commit.

        Coroutines may await it. On a pool of threads it runs as `run` does. A worker process gets those fields of the
        state that the contract declares, the first time whole and then what has changed; its changes come back and are
        committed here. After a conflict it runs again, there; calls of one task that have met conflicts run one after
        the other.

        It pays where a task takes much longer than the way to a worker and back, and where most tasks touch other
        places: what takes less is faster by `run`, and what touches one place runs in turn anyway.

        Raises:
            StateError: the store has no pool.
            StoreClosed: the store was closed.
        """
        if self.closed:
            # Its pool may be closed too, and is not the reason.
            raise closed_error()
        executor = self._pool
        if executor is None:
            raise StateError(
                "the store has no pool to submit to: open it with Store(..., pool=ropewalk.Pool())"
            )
        if not runs_elsewhere(executor):
            return cast("Submitted[R]", submitted_to_thread(self, executor, task, args, kwargs))
        with self._lock:
            if self._remote is None:
                self._remote = Remote(self)
        return cast("Submitted[R]", self._remote.submit(executor, task, args, kwargs))

    def _execute(
        self, task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple[int, int] | None]:
        """Runs a task until it commits; returns its result and the commit, which may not be on the disk yet."""
        prepared = self._ready(task)
        function, rule, meta, _ = prepared
        # A transaction within another one commits under its claim; else it would wait for the outer one, for ever.
        outer = self._held.claim
        if outer:
            self._check_free()
        done = self._attempt(function, rule, meta, outer, args, kwargs)
        return self._again(prepared, args, kwargs) if done is None else done

    def _again(
        self, prepared: Prepared, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple[int, int] | None]:
        """Runs a task until it commits, after a first conflict."""
        function, rule, meta, retries = prepared
        if self._held.claim:
            return run_below(self, prepared, args, kwargs)
        for attempt in range(1, retries + 1):
            time.sleep(pause(attempt))
            done = self._attempt(function, rule, meta, 0, args, kwargs)
            if done is not None:
                return done
        return run_claimed(self, prepared, args, kwargs)

    def _begin_claim(self, rule: _native.Rule, patience: float, label: str | None) -> tuple[int, object]:
        """Waits for a claim, and returns its number and what ends it when it goes."""
        taken = None
        try:
            taken = self._claim(rule, patience)
        finally:
            if taken is None and self._turns.events:
                # It was given up, and a coroutine may have waited for it.
                self._turns.wake()
        if taken is None:
            raise entangled(label)
        return taken

    def _end_claim(self, claim: object) -> None:
        self._release(claim)
        if self._turns.events:
            self._turns.wake()

    def _met_itself(self, path: tuple[Any, ...], meta: Meta, numbers: list[int]) -> None:
        """Called after a conflict at a path with the versions that the same thread has made since the task began.

        Raises:
            Conflict: one of them is the reason. It would be so each time, and each time commit anew.
        """
        for number in numbers:
            kept = self._versions(number - 1)[:2]
            if len(kept) == 2 and kept[0][0] == number - 1 and is_changed(kept[0][1], kept[1][1], path):
                raise refused(meta.label)

    def _check_free(self) -> None:
        if self._held.is_exclusive:
            raise StateError(
                "this thread is in a transaction with exclusive=True, which all others wait for. Use its draft, or end "
                "the block first"
            )

    def _ready(self, task: Any) -> Prepared:
        last, prepared = self._last
        if last is not task:
            prepared = prepared_for(self, task)
            self._last = task, prepared
        return self._signed(prepared) if self._signs else prepared

    def _signed(self, prepared: Prepared) -> Prepared:
        return prepared._replace(meta=with_signature(prepared.meta, signature_for(self)))

    def by(self, who: str | None = None, why: str | None = None) -> AbstractContextManager[None]:
        """A block in which every transaction of this store says in whose name it runs, and why.

            with bank.by("eve", why="refund"):
                bank.run(transfer, "ann", "bob", 5)

        It holds for `run`, `arun`, `run_all`, `submit`, `transaction`, `undo` and `redo`, in this thread or coroutine.
        What is said to one of them itself goes first, and an inner block goes before an outer one.
        """
        self._signs = True
        return signed(self, who, why)

    def transaction(
        self,
        label: str | None = None,
        *,
        who: str | None = None,
        why: str | None = None,
        exclusive: bool = False,
    ) -> Block:
        """A transaction for a `with` block, which commits at its end and is given up by an exception.

        The block runs once: after a conflict it raises. With ``exclusive=True`` no other transaction commits meanwhile,
        so that there is no conflict; all others wait.

        Raises:
            Conflict: something that the block has read was changed meanwhile.
        """
        return Block(self, label, self._block(self._meta(label, who, why), exclusive))

    def _meta(self, label: str | None, who: str | None = None, why: str | None = None) -> Meta:
        meta = Meta(label, who, why)
        return with_signature(meta, signature_for(self)) if self._signs else meta

    @contextmanager
    def _block(self, meta: Meta, exclusive: bool) -> Generator[Transaction, None, None]:
        self._check_free()
        held = self._held
        if exclusive and held.claim:
            raise StateError("a task cannot begin a transaction with exclusive=True: it is in one of its own")
        number, claim = held.claim, None
        if exclusive:
            number, claim = self._begin_claim(self._whole, LONG_PATIENCE, meta.label)
        try:
            if exclusive:
                held.claim, held.is_exclusive = number, True
            native = self._begin(self._whole, meta)
            transaction = Transaction(self, native)
            try:
                yield transaction
                if not native.is_open:
                    return
                done = self._commit(native, number)
                if done is None:
                    raise transaction._conflict()
            finally:
                native.abort()
        finally:
            if claim is not None:
                held.claim, held.is_exclusive = 0, False
                self._end_claim(claim)
        transaction._version = done[0]
        self._settle(done)

    def _settle(self, done: tuple[int, int]) -> None:
        """Waits for the disk, and delivers effects."""
        if self._log is not None:
            self._wait(*done)
            self._log.wrote(self)
        if self._subscribers:
            self._watchers.wake()
        if self._has_effects:
            self._effects.deliver()

    # --- undo ---------------------------------------------------------------------------------------------------------

    def undo(self, why: str | None = None) -> int:
        """Takes the last commit back, and returns the number of the version that it makes; again for the one before.

        It is a commit like others: a new version, with the state of an older one. Transient places keep their values.

        Raises:
            HistoryGone: there is no older version.
        """
        return self._go(True, _UNDO if why is None and not self._signs else self._meta("undo", why=why))

    def redo(self, why: str | None = None) -> int:
        """Takes the last `undo` back, if no other commit came behind it.

        Raises:
            HistoryGone: there is nothing to redo.
        """
        return self._go(False, _REDO if why is None and not self._signs else self._meta("redo", why=why))

    def _go(self, back: bool, meta: Meta) -> int:
        claim = 0
        if self._has_claims:
            claim = self._held.claim
            if claim:
                self._check_free()
        done = self._step(back, meta, claim) if self._swaps else step_from(self, back, meta, claim)
        if done is None:
            raise gone(self._versions(0), back=back)
        if self._is_due or self._subscribers:
            self._settle(done)
        return done[0]

    # --- the end ------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Waits until everything that was committed is on the disk and its effects were delivered once."""
        if self._log is not None:
            self._log.sync()
        self._effects.deliver()

    def effects(self) -> list[Effect]:
        """Returns the effects that were recorded in the journal and not delivered, in their order.

        One whose function, or the class of an argument, the program does not have any more is among them: it is tried
        again like each that fails, in this program and in the next one.
        """
        return self._effects.pending()

    def drop_effects(self, *effects: Effect) -> None:
        """Gives effects up that were not delivered: they are recorded as if they were."""
        self._effects.drop(effects)

    def compact(self) -> None:
        """Replaces the records of the journal by the state as it is; a store does that by itself as the file grows."""
        if self._log is not None:
            self._log.compact(self)

    def close(self) -> None:
        """Ends the store: no transaction begins or commits any more; what was committed goes to the disk."""
        if self._remote is not None:
            self._remote.close()
        self._end()

    def _end(self) -> None:
        self._close()
        self._threads.close()
        self._watchers.wake()
        self._turns.wake()
        self._syncer.close()
        self._effects.close()
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the store. If an exception leaves the block, submitted tasks are cancelled and not waited for."""
        is_cut = kind is not None
        try:
            if not is_cut:
                self.close()
        except BaseException:
            # Ctrl-C while it waited for a task.
            is_cut = True
            raise
        finally:
            if is_cut:
                if self._remote is not None:
                    self._remote.cut()
                self._end()

    def __repr__(self) -> str:
        where = "" if self._log is None else f" in {self._log.path!r}"
        state = "closed" if self.closed else f"version {self.version}"
        return f"<Store of {self._kind.__qualname__}{where}, {state}>"
