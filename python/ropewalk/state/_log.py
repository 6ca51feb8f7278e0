"""A store's journal: what its records are, and what recovery makes of them."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from ropewalk._errors import JournalError, StateError, WrongType
from ropewalk._load import state as _native
from ropewalk.journal import Journal, Record, Sync, read
from ropewalk.state._arrays import recovering, sealed_memory
from ropewalk.state._codec import PROTOCOL, dumps, loads
from ropewalk.state._diff import between
from ropewalk.state._effects import Effect, packed, unpacked
from ropewalk.state._form import form_of
from ropewalk.state._moved import reading
from ropewalk.state._past import with_transients
from ropewalk.state._records import is_record
from ropewalk.state._replay import applied, is_map, recorded
from ropewalk.state._zones import Zone

if TYPE_CHECKING:
    from ropewalk.state._shape import Shape
    from ropewalk.state._store import Store

_log = logging.getLogger("ropewalk.state")

#: The first item of each record.
_STATE, _COMMIT, _DELIVERED, _PART = "state", "commit", "delivered", "part"
#: A record of a state that has more bytes stands in parts of so many: a journal takes no record of more than 1 GiB.
_MOST = 256 << 20
_FORMAT = 1
_ATOMS = frozenset((bool, bytes, float, int, str, type(None)))
#: A journal is compacted when it has grown to so many times its size after the last compaction, and at least so
#: many bytes.
_GROWTH = 4
_LEAST = 16 << 20


class Log:
    """The journal of a store.

    Its first record is a whole state. Each commit adds one with the version that it makes and its changes. A commit
    that failed because the journal failed may have left its record: recovery skips records that do not make
    the next version.
    """

    def __init__(self, path: str | os.PathLike[str], sync: Sync, seconds: float | None, kind: Any) -> None:
        #: The fields that the journal has and that their classes have no more.
        self._lost: dict[Any, set[str]] = {}
        #: The first record and what it says: a large state is not unpickled twice.
        with reading(kind, self._lost):
            self._first = _first_of(path, kind)
        # To open a journal for appending already changes the file.
        self.journal = Journal(path, sync=sync, seconds=seconds)
        #: What the effects' keys begin with: the same for as long as the file is.
        self.name: str = ""
        #: Effects that were recorded and not delivered.
        self.pending: list[Effect] = []
        self._opened = 0
        self._compacting = threading.Lock()
        self._next_compaction = _LEAST

    @property
    def path(self) -> str:
        """The absolute path of the file."""
        return self.journal.path

    @property
    def handle(self) -> object:
        """The compiled journal, for the compiled store."""
        return self.journal._handle()

    def recover(self, given: Any, shape: Shape) -> tuple[Any, int]:
        """Returns the newest state in the journal and its version; the given one if the journal is new.

        Raises:
            StateError: the journal is not one of a store, or one of another state.
        """
        state: Any = None
        version = -1
        skipped = 0
        # The size of the state that the records stand on.
        size = 0
        parts: list[bytes] = []
        # Only what is open in the end is read: the functions of the others may be gone by now.
        effects: dict[tuple[int, int], bytes] = {}
        with recovering(), reading(type(given), self._lost):
            for record in self.journal.records():
                known, self._first = self._first, None
                whole = record.payload
                found = (
                    known[1] if known is not None and known[0] == record else _read(self.path, record.payload)
                )
                if found[0] == _PART:
                    _, index, count, part = found
                    # A program that was killed while it began the journal has left parts without the last one.
                    parts = [*parts[:index], part] if index else [part]
                    if len(parts) < count:
                        continue
                    whole, parts = b"".join(parts), []
                    found = _read(self.path, whole)
                if found[0] == _STATE:
                    _, _, self.name, version, state, open_effects = found
                    effects = {(made, index): call for made, index, call in open_effects}
                    size = len(whole)
                elif found[0] == _DELIVERED:
                    effects.pop((found[1], found[2]), None)
                elif found[1] == version + 1:
                    _, version, _, changes, calls, _ = found
                    state = applied(state, changes)
                    effects.update({(version, index): call for index, call in enumerate(calls)})
                else:
                    skipped += 1
            if version >= 0:
                state = _native.freeze(state)
        for kind, names in self._lost.items():
            _log.warning(
                "%s has values of fields that %s has no more, and they are left out: %s",
                self.path,
                kind.__qualname__,
                ", ".join(sorted(names)),
            )
        if version < 0:
            self.name = uuid.uuid4().hex
            state, version = given, 0
            self.journal.append_all(self._whole(version, state, []))
        else:
            _check_kind(self.path, type(cast("object", given)), type(cast("object", state)))
            state = with_transients(shape, given, state)
            try:
                state = _native.freeze(state, form_of(shape))
            except WrongType as error:
                raise WrongType(
                    f"{self.path} was written by other classes: {error}. Open it with the annotations that it was "
                    f"written with, or with a union of the old type and the new one, and change the values in a task"
                ) from error
        if skipped:
            _log.warning(
                "%s has %d records of commits that were undone when the disk failed", self.path, skipped
            )
        recovered = self.journal.recovered
        if recovered.dropped_bytes:
            _log.warning(
                "%s ended in %d bytes of a record that a crash has cut off; they are gone, and the state is that of "
                "version %d",
                self.path,
                recovered.dropped_bytes,
                version,
            )
        with reading(type(given), {}):
            for made, index in sorted(effects):
                self.pending.append(unpacked(made, index, effects[made, index]))
        self._opened = self.journal.last
        # The records behind the state count, by whichever program they were written: one that is always killed early
        # compacts at its first commit.
        self._next_compaction = max(_LEAST, _GROWTH * (size or self.journal.size))
        return state, version

    def compare_constants(self, shape: Shape, given: Any, state: Any) -> None:
        """Logs which `Const` places of the journal's state the program gives other values."""
        if given is state:
            return
        names = list(_moved_constants(shape, given, state, ""))
        if names:
            _log.warning(
                "%s keeps the values that it has of %s, though the program gives others: a Const has the value with "
                "which the journal began. Make it a field of another zone and let a transaction change it, or begin "
                "another file",
                self.path,
                ", ".join(names),
            )

    def encode(self, version: int, changes: Any, transaction: _native.Transaction) -> bytes:
        """Returns the record of a commit."""
        effects = transaction.effects
        calls = tuple(map(dumps, effects or ()))
        record = (_COMMIT, version, tuple(transaction.label), changes, calls, time.time())
        if effects is None and all(type(value) in _ATOMS for _, _, value in changes):
            # The C function alone writes the same bytes in a fraction of the time.
            return pickle.dumps(record, PROTOCOL)
        return dumps((_COMMIT, version, record[2], recorded(changes), calls, record[5]))

    def encode_step(self, version: int, old: Any, new: Any, meta: Any) -> bytes:
        """Returns the record of a commit that was made of an older state."""
        changes = recorded([(int(change), path, value) for change, path, value in between(old, new)])
        return dumps((_COMMIT, version, tuple(meta), changes, (), time.time()))

    def delivered(self, version: int, index: int) -> None:
        """Records that an effect was delivered; a crash may lose that, and the effect is delivered again."""
        try:
            self.journal.append_nowait(dumps((_DELIVERED, version, index)))
        except JournalError as error:
            _log.warning("that an effect was delivered could not be recorded: %s", error)

    def wrote(self, store: Store[Any]) -> None:
        """Compacts the journal in another thread, if it has grown large.

        While a module is being imported, in this one: to pickle an object of a class of that module means to wait for
        its import, which may wait for this store to be closed.
        """
        try:
            if self.journal.size < self._next_compaction or not self._compacting.acquire(blocking=False):
                return
        except JournalError:
            # It was closed or has failed since; the commit is a matter of its own.
            return
        if _is_importing():
            self._compact_then_release(store)
            return
        try:
            threading.Thread(
                target=self._compact_then_release, args=(store,), name="ropewalk-compact"
            ).start()
        except RuntimeError:
            self._compacting.release()

    def _compact_then_release(self, store: Store[Any]) -> None:
        try:
            self._compact(store)
        except Exception:
            with contextlib.suppress(JournalError):
                # The next attempt is at twice the size; a journal that was closed or has failed has none.
                self._next_compaction = 2 * self.journal.size
            if not self.journal.closed:
                _log.warning("%s could not be compacted", self.path, exc_info=True)
        finally:
            self._compacting.release()

    def compact(self, store: Store[Any]) -> None:
        """Puts the state into the place of the records that have led to it."""
        with self._compacting:
            self._compact(store)

    def _compact(self, store: Store[Any]) -> None:
        version, state, record = store._durable()
        effects = [
            (effect.version, effect.place, packed(effect))
            for effect in store._effects.pending()
            if effect.version <= version
        ]
        self.journal.compact(self._whole(version, state, effects), max(record, self._opened))
        self._next_compaction = max(_LEAST, _GROWTH * self.journal.size)

    def _whole(self, version: int, state: Any, effects: list[Any]) -> list[bytes]:
        data = dumps((_STATE, _FORMAT, self.name, version, state, effects))
        if len(data) <= _MOST:
            return [data]
        starts = range(0, len(data), _MOST)
        view = memoryview(data)
        return [
            pickle.dumps((_PART, index, len(starts), view[start : start + _MOST].tobytes()), PROTOCOL)
            for index, start in enumerate(starts)
        ]

    def sync(self) -> None:
        """Waits until everything is on the disk.

        Raises:
            JournalError: something is not.
        """
        try:
            self.journal.sync()
        except JournalError as error:
            # It may be an old one: there was no room when it should be recorded that an effect was delivered. The
            # journal reports it once.
            self.journal.sync()
            _log.warning("effects that were delivered may be delivered again: %s", error)

    def close(self) -> None:
        """Writes what is on its way, and closes the file."""
        with self._compacting:
            is_written = False
            try:
                if not self.journal.closed:
                    self.sync()
                    is_written = True
            finally:
                try:
                    self.journal.close()
                except JournalError:
                    # It reports what was reported before, too.
                    if not is_written:
                        raise


def _is_importing() -> bool:
    modules: list[Any] = list(sys.modules.values())
    return any(getattr(getattr(module, "__spec__", None), "_initializing", False) for module in modules)


def _first_of(path: str | os.PathLike[str], kind: Any) -> tuple[Record, Any] | None:
    """Returns the first record of a journal and what it says, without changing the file.

    Raises:
        StateError: it is not the journal of a store with a state of this class.
    """
    try:
        record = next(read(os.path.realpath(path)), None)
    except JournalError:
        # There is none, or it cannot be read: the opening says more.
        return None
    if record is None:
        return None
    found = _read(path, record.payload)
    if found[0] == _STATE:
        _check_kind(path, kind, type(cast("object", found[4])))
    return record, found


def _read(path: str | os.PathLike[str], payload: bytes) -> Any:
    found = loads(payload)
    if (
        not isinstance(cast("object", found), tuple)
        or not found
        or found[0] not in (_STATE, _COMMIT, _DELIVERED, _PART)
    ):
        raise StateError(f"{os.fspath(path)} is a journal, but not one of a store")
    if found[0] == _STATE and found[1] != _FORMAT:
        raise StateError(f"{os.fspath(path)} was written by a newer version of ropewalk; open it with that")
    return found


def _check_kind(path: str | os.PathLike[str], given: Any, found: Any) -> None:
    if given is not found:
        names = [kind.__qualname__ for kind in (found, given)]
        if names[0] == names[1]:
            names = [f"{kind.__module__}.{kind.__qualname__}" for kind in (found, given)]
        raise StateError(
            f"{os.fspath(path)} has a state of class {names[0]}, and the program gives one of {names[1]}. "
            f"Open it with its own class, or use another file"
        )


def _moved_constants(shape: Shape, given: Any, state: Any, where: str) -> Iterator[str]:
    """Yields the names of the `Const` places that have other values in two states."""
    if type(given) is not type(state) or not (is_map(state) or is_record(type(state))):
        return
    for name, part in zip(shape.names, shape.fields, strict=True):
        one, other = _field(given, name), _field(state, name)
        path = f"{where}.{name}".removeprefix(".")
        if one is other:
            continue
        if part.zone is not Zone.CONST:
            yield from _moved_constants(part, one, other, path)
        elif not _is_equal(one, other):
            yield path


def _field(state: Any, name: str) -> Any:
    return state.get(name) if is_map(state) else getattr(state, name)


def _is_equal(one: Any, other: Any) -> bool:
    if sealed_memory(one) is not None and sealed_memory(other) is not None:
        # Arrays compare each item by itself.
        return bool(
            one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
        )
    try:
        return bool(one == other)
    except Exception:
        return False
