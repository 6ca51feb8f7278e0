"""`Transaction`: the face of a transaction of a `with` block."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ropewalk._errors import Conflict
from ropewalk._load import state as _native
from ropewalk.state._kinds import text_in
from ropewalk.state._merge import merge_into
from ropewalk.state._records import is_record

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from ropewalk.state._store import Store


def entangled(label: str | None) -> Conflict:
    """Returns the error of a thread whose transaction waits for others, while others wait for it."""
    error = Conflict(
        f"{label or 'a block'} ran within a transaction that others wait for, and the claim of one of them has not "
        f"ended meanwhile. Run such transactions one behind the other, or in the same order everywhere"
    )
    error._is_entangled = True
    return error


class Meta(NamedTuple):
    """What a version says of the transaction that made it."""

    label: str | None = None
    who: str | None = None
    why: str | None = None
    #: The name of the task, or `None` for a transaction of a `with` block.
    task: str | None = None


class Transaction:
    """A transaction of a `with` block; `Store.transaction` makes it."""

    __slots__ = ("__weakref__", "_native", "_store", "_version")

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
    def savepoint(self) -> Generator[None, None, None]:
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
        if self._native.is_open:
            self._native.release(point)

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
        kept = self._store.history(base + 1)
        for version in kept:
            if version.number == kept[0].number > base + 1:
                # What this version has may have come with one that is not kept.
                if _place(version.state, path) is not before:
                    break
            elif _place(version.state, path) is not before:
                other = version.meta.label or "a transaction"
                return (
                    f"{own} began with version {base} and has read {where}, which {other} changed in version "
                    f"{version.number}"
                )
        if kept and kept[0].number > base + 1:
            return (
                f"{own} began with version {base} and has read {where}, which was changed since. By which transaction "
                f"is not known, because the store keeps no version before {kept[0].number}"
            )
        return f"{own} began with version {base} and has read {where}, which was changed since"

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self.__slots__:
            if hasattr(type(self), name):
                raise AttributeError(f"{name} of a transaction cannot be set")
            raise AttributeError(
                f"a transaction has no attribute {name!r} that could be set: the state is its draft, tx.draft.{name}"
            )
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a transaction has no attribute {name!r}: the state is its draft, tx.draft.{name}"
        )

    def _conflict(self) -> Conflict:
        error = Conflict(self.explain())
        error.path = text_in(self._native.base, self._native.conflict)
        error.version = self._native.version
        return error

    def __repr__(self) -> str:
        state = "open" if self._native.is_open else f"version {self._version}" if self._version else "ended"
        return f"<Transaction {self._native.label.label or ''} on version {self._native.version}, {state}>"


class Block:
    """What `Store.transaction` returns: the block that begins a transaction and commits it."""

    __slots__ = ("_label", "_steps", "_store")

    def __init__(
        self, store: Store[Any], label: str | None, steps: AbstractContextManager[Transaction]
    ) -> None:
        self._store = store
        self._label = label
        self._steps = steps

    def __enter__(self) -> Transaction:
        return self._steps.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._steps.__exit__(kind, error, traceback)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"the transaction has not begun, and has no attribute {name!r}: write with store.transaction() as tx"
        )

    def __repr__(self) -> str:
        label = "" if self._label is None else f" {self._label!r}"
        return f"<block of a transaction{label} on {self._store!r}: write with store.transaction() as tx>"


def is_changed(old: Any, new: Any, path: tuple[Any, ...]) -> bool:
    """Whether a place is another object in two states."""
    return _place(old, path) is not _place(new, path)


def _place(state: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        try:
            state = getattr(state, step) if is_record(type(state)) and isinstance(step, str) else state[step]
        except Exception:
            return None
    return state
