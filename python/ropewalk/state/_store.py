"""`Store`: a state that transactions change, and its versions."""

from __future__ import annotations

import functools
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, cast

from ropewalk._checked import checked_count
from ropewalk._errors import Conflict, HistoryGone, StateError
from ropewalk._load import state as _native
from ropewalk.result import Err, Ok
from ropewalk.state._effects import Effects
from ropewalk.state._kinds import text_in
from ropewalk.state._log import Log
from ropewalk.state._merge import merge_into
from ropewalk.state._records import is_record
from ropewalk.state._rule import compile_rule
from ropewalk.state._shape import Shape, shape_of
from ropewalk.state._slots import slots as slots_of
from ropewalk.state._syncer import Syncer
from ropewalk.state._task import Task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from ropewalk.journal import Sync

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")

#: So often a transaction runs again after a conflict before it claims what it touches.
_RETRIES = 4
#: So often a transaction runs again though it has claimed what it touches.
_REFUSED = 2
#: The first pause between two attempts, in seconds; it doubles, and the real one is a random part of it.
_PAUSE = 50e-6
#: Versions that a store keeps, unless it was made with another number.
_HISTORY = 1000


class Meta(NamedTuple):
    """What a version says of the transaction that made it."""

    label: str | None = None
    who: str | None = None
    why: str | None = None
    #: The name of the task, or `None` for a transaction of a `with` block.
    task: str | None = None


class Version(NamedTuple):
    """A version of a state."""

    number: int
    state: Any
    meta: Meta
    #: When it was committed, in seconds since 1970; 0 for the state that the store was opened with.
    at: float


class _Compiled(NamedTuple):
    """A task, ready for the state of a store."""

    rule: _native.Rule
    #: What it reads or writes, and what it writes, as bits; `None` for all.
    touches: int | None
    writes: int | None


class _Held(threading.local):
    """The claim that a transaction of this thread has."""

    claim = 0
    #: Whether it is that of a block with `exclusive=True`.
    is_exclusive = False


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
        invariants: functions that take a state and raise, or return `False`, if it must not be; called with each new
            state before it is committed. `invariant` names the places that one depends on.

    Raises:
        NotFrozen: a part of the state may change in place.
        JournalError: the journal cannot be opened, and its subclasses as `Journal` raises them.
        StateError: the journal is one of another state.
    """

    _log: Log | None
    _shape: Shape

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
    ) -> Self:
        """Opens a store."""
        history = checked_count("history", history, 1)
        retries = checked_count("retries", retries, 0)
        frozen = _native.freeze(state)
        if not (isinstance(frozen, _native.PMap) or is_record(type(frozen))):
            raise StateError(
                f"the state of a store must be a record or a mapping, such as a frozen dataclass or a PMap, and not of "
                f"class {type(state).__qualname__}"
            )
        log = None
        version = 0
        if journal is not None:
            log = Log(journal, sync, seconds)
            try:
                frozen, version = log.recover(frozen)
            except BaseException:
                log.close()
                raise
        try:
            self = super().__new__(
                cls,
                frozen,
                version,
                history,
                None,
                None if log is None else log.encode,
                None if log is None else log.handle,
            )
        except BaseException:
            if log is not None:
                log.close()
            raise
        self._log = log
        self._kind = type(frozen)
        self._shape = shape_of(type(frozen)) if not isinstance(frozen, _native.PMap) else shape_of(Any)
        self._retries = retries
        self._whole = compile_rule(self._shape, None, _native.Rule, _native.Rule.link)
        self._compiled: weakref.WeakKeyDictionary[Task[..., Any], _Compiled] = weakref.WeakKeyDictionary()
        self._held = _Held()
        self._syncer = Syncer(self)
        self._effects = Effects(self, log)
        return self

    # --- reading ------------------------------------------------------------------------------------------------------

    def at(self, version: int) -> S:
        """Returns the state of a version.

        Raises:
            HistoryGone: the store does not keep that version any more, or never had it.
        """
        return cast("S", self._kept(version).state)

    def history(self, first: int = 0) -> list[Version]:
        """Returns the versions that are kept, from a number on, the oldest first."""
        return [
            Version(number, state, meta or Meta(), at)
            for number, state, meta, at, _, _ in self._versions(max(first, 0))
        ]

    def _kept(self, version: int) -> Version:
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
            JournalError: the record could not be written; the commit is undone.
            StoreClosed: the store was closed.
        """
        result, done = self._execute(task, args, kwargs)
        if done is not None:
            self._settle(done)
        return cast("R", result)

    async def arun(
        self, task: Task[P, R] | Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Runs a task as `run` does, and awaits the disk; the task itself runs in the event loop's thread.

        Commits of coroutines that await at the same time share one sync of the disk.
        """
        result, done = self._execute(task, args, kwargs)
        if done is not None and self._log is not None:
            await self._syncer.settled(done)
        self._effects.deliver()
        return cast("R", result)

    def run_all(self, jobs: Iterable[Any]) -> list[Any]:
        """Runs many tasks, each as a transaction of its own, and returns their results in order.

        A job is a task, or a tuple of a task and its arguments. All commits share the syncs of the disk. The first
        exception ends it: jobs before it are committed.
        """
        results: list[Any] = []
        last = None
        try:
            for job in jobs:
                task, *args = job if isinstance(job, tuple) else (job,)
                result, done = self._execute(task, tuple(args), {})
                results.append(result)
                last = done or last
        finally:
            if last is not None:
                self._settle(last)
        return results

    def _execute(
        self, task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple[int, int] | None]:
        """Runs a task until it commits; returns its result and the commit, which may not be on the disk yet."""
        function, meta, compiled, retries = self._prepared(task)
        held = self._held
        self._check_free()
        # A transaction within another one commits under its claim; else it would wait for the outer one, for ever.
        outer = claim = held.claim
        attempt = refused = 0
        try:
            while True:
                transaction = self._begin(compiled.rule, meta)
                try:
                    result = function(transaction.root, *args, **kwargs)
                    if type(result) is Err:
                        error = result.error
                        value = _plain(transaction, error)
                        return (result if value is error else Err(value)), None
                    if isinstance(result, _LATER):
                        raise _refused(meta.label, result)
                    result = _plain(transaction, result)
                    done = self._commit(transaction, compiled.writes, claim)
                finally:
                    transaction.abort()
                if done is not None:
                    return result, done
                attempt += 1
                # No other transaction has changed what this one has claimed, but for a journal that has failed.
                refused += bool(claim and not outer)
                if refused > _REFUSED:
                    raise Conflict(
                        f"{meta.label} has run transactions of the same store, and they have changed what it has read. "
                        f"Run them before or after it"
                    )
                if attempt > retries and not claim:
                    held.claim = claim = self._claim(compiled.touches)
                elif attempt > 1:
                    # A random pause keeps transactions apart that have met; it is no secret.
                    time.sleep(random.random() * _PAUSE * 2 ** min(attempt, 8))  # noqa: S311
        finally:
            if claim and not outer:
                held.claim = 0
                self._release(claim)

    def _check_free(self) -> None:
        if self._held.is_exclusive:
            raise StateError(
                "this thread is in a transaction with exclusive=True, which all others wait for. Use its draft, or end "
                "the block first"
            )

    def _prepared(self, task: Any) -> tuple[Callable[..., Any], Meta, _Compiled, int]:
        if isinstance(task, Task):
            compiled = self._compiled.get(task)
            if compiled is None:
                compiled = self._compiled[task] = self._compile(task)
            meta = Meta(task.label, task=task.label)
            return task.__wrapped__, meta, compiled, self._retries if task.retries is None else task.retries
        if isinstance(task, functools.partial) or not callable(task):
            raise TypeError(
                f"a transaction runs a task or a function, and its arguments follow it; not {task!r}"
            )
        name = getattr(task, "__qualname__", repr(task))
        return task, Meta(name, task=name), _Compiled(self._whole, None, None), self._retries

    def _compile(self, task: Task[..., Any]) -> _Compiled:
        rule = task.rule_for(self._shape)
        # What is not checked may touch everything.
        if task.contract is None or task.strict is not True:
            return _Compiled(rule, None, None)
        reads, writes = slots_of(task.contract, self._shape)
        return _Compiled(rule, reads | writes, writes)

    @contextmanager
    def transaction(
        self,
        label: str | None = None,
        *,
        who: str | None = None,
        why: str | None = None,
        exclusive: bool = False,
    ) -> Iterator[Transaction]:
        """A transaction for a `with` block, which commits at its end and is given up by an exception.

        The block runs once: after a conflict it raises. With ``exclusive=True`` no other transaction commits meanwhile,
        so that there is no conflict; all others wait.

        Raises:
            Conflict: something that the block has read was changed meanwhile.
        """
        self._check_free()
        held = self._held
        if exclusive and held.claim:
            raise StateError("a task cannot begin a transaction with exclusive=True: it is in one of its own")
        claim = held.claim
        if exclusive:
            held.claim = claim = self._claim(None)
            held.is_exclusive = True
        try:
            native = self._begin(self._whole, Meta(label, who, why))
            transaction = Transaction(self, native)
            try:
                yield transaction
                if not native.is_open:
                    return
                done = self._commit(native, None, claim)
                if done is None:
                    raise transaction._conflict()
            finally:
                native.abort()
        finally:
            if exclusive:
                held.claim, held.is_exclusive = 0, False
                self._release(claim)
        transaction._version = done[0]
        self._settle(done)

    def _settle(self, done: tuple[int, int]) -> None:
        """Waits for the disk, and delivers effects."""
        if self._log is not None:
            self._wait(*done)
            self._log.wrote(self)
        self._effects.deliver()

    # --- undo ---------------------------------------------------------------------------------------------------------

    def undo(self, why: str | None = None) -> int:
        """Takes the last commit back, and returns the number of the version that it makes; again for the one before.

        It is a commit like others: a new version, with the state of an older one. Transient places keep their values.

        Raises:
            HistoryGone: there is no older version.
        """
        return self._go(back=True, meta=Meta("undo", why=why))

    def redo(self, why: str | None = None) -> int:
        """Takes the last `undo` back, if no other commit came behind it.

        Raises:
            HistoryGone: there is nothing to redo.
        """
        return self._go(back=False, meta=Meta("redo", why=why))

    def _go(self, *, back: bool, meta: Meta) -> int:
        from ropewalk.state._past import step_from

        self._check_free()
        while True:
            kept = self._versions(0)
            base, state, stands_for = step_from(kept, self._shape, back=back)
            record = None
            if self._log is not None:
                record = self._log.encode_step(base + 1, kept[-1][1], state, meta)
            done = self._replace(base, kept[-1][1], state, meta, record, stands_for)
            if done is not None:
                self._settle(done)
                return done[0]

    # --- the end ------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Waits until everything that was committed is on the disk and its effects were delivered once."""
        if self._log is not None:
            self._log.sync()
        self._effects.deliver()

    def compact(self) -> None:
        """Replaces the records of the journal by the state as it is; a store does that by itself as the file grows."""
        if self._log is not None:
            self._log.compact(self)

    def close(self) -> None:
        """Ends the store: no transaction begins or commits any more; what was committed goes to the disk."""
        self._close()
        self._syncer.close()
        self._effects.close()
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "" if self._log is None else f" in {self._log.path!r}"
        state = "closed" if self.closed else f"version {self.version}"
        return f"<Store of {self._kind.__qualname__}{where}, {state}>"


class Transaction:
    """A transaction of a `with` block; `Store.transaction` makes it."""

    def __init__(self, store: Store[Any], native: _native.Transaction) -> None:
        self._store = store
        self._native = native
        self._version: int | None = None

    @property
    def draft(self) -> Any:
        """The draft of the whole state."""
        return self._native.root

    @property
    def base(self) -> Any:
        """The state that the transaction began with."""
        return self._native.base

    @property
    def version(self) -> int | None:
        """The version that it has made; `None` before its commit."""
        return self._version

    def merge(self, path: Any, values: Any) -> None:
        """Merges a mapping into the state at a path: mappings deep, all else by assignment; `DELETE` deletes.

        ``path`` is a path of `paths`, its text, or `None` for the whole state.

        Raises:
            ContractViolation, NoSuchPath: the place may not be written, or is not there.
        """
        merge_into(self._native.root, path, values, type(self._native.base))

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A block that is undone alone if it raises; the exception goes on. Savepoints nest.

        What was read in the block still counts, because the program has decided by it.
        """
        point = self._native.savepoint()
        try:
            yield
        except BaseException:
            if self._native.is_open:
                self._native.rollback(point)
            raise

    def on_commit(self, function: Callable[..., Any], /, *args: Any) -> None:
        """Calls a function after the commit, as `Draft.on_commit` does."""
        self._native.on_commit(function, *args)

    def value(self, draft: Any) -> Any:
        """Returns the value that a draft has now."""
        return self._native.value(draft)

    def abort(self) -> None:
        """Gives the changes up; the block may go on, without the drafts."""
        self._native.abort()

    def explain(self) -> str:
        """Returns why the transaction was refused: the path, both transactions, the versions; empty if it was not."""
        path = self._native.conflict
        if path is None:
            return ""
        base = self._native.version
        own = self._native.label.label or "a transaction"
        where = text_in(self._native.base, path)
        before = _place(self._native.base, path)
        for version in self._store.history(base + 1):
            if _place(version.state, path) is not before:
                other = version.meta.label or "a transaction"
                return (
                    f"{own} began with version {base} and has read {where}, which {other} changed in version "
                    f"{version.number}"
                )
        return f"{own} began with version {base} and has read {where}, which was changed since"

    def _conflict(self) -> Conflict:
        error = Conflict(self.explain())
        error.path = text_in(self._native.base, self._native.conflict)
        error.version = self._native.version
        return error

    def __repr__(self) -> str:
        state = "open" if self._native.is_open else f"version {self._version}" if self._version else "ended"
        return f"<Transaction {self._native.label.label or ''} on version {self._native.version}, {state}>"


def _place(state: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        try:
            state = getattr(state, step) if is_record(type(state)) and isinstance(step, str) else state[step]
        except Exception:
            return None
    return state


def _refused(label: str | None, result: Any) -> TypeError:
    close = getattr(result, "close", None)
    if close is not None:
        # Nothing is to warn that it was never awaited.
        close()
    return TypeError(
        f"{label} returns a {type(result).__name__}, which runs when its transaction has ended: a transaction takes a "
        f"plain function"
    )


#: What a function returns that has not run.
_LATER = (CoroutineType, GeneratorType, AsyncGeneratorType)
_DRAFTS = (_native.RecordDraft, _native.MapDraft, _native.VectorDraft, _native.CounterDraft)


def _plain(transaction: _native.Transaction, result: Any) -> Any:
    """A result without drafts: a draft would be of no use once the transaction has ended."""
    kind = type(result)
    if kind in _DRAFTS:
        return transaction.value(result)
    if kind is Ok:
        value = _plain(transaction, result.value)
        return result if value is result.value else Ok(value)
    if kind in (tuple, list):
        parts = [_plain(transaction, part) for part in result]
        is_same = all(one is other for one, other in zip(parts, result, strict=True))
        return result if is_same else kind(parts)
    if kind is dict:
        items = {key: _plain(transaction, part) for key, part in result.items()}
        return result if all(items[key] is part for key, part in result.items()) else items
    return result
