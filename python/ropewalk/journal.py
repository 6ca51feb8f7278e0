"""An append-only file of records that survives `kill -9` and power cuts.

    with Journal("orders.wal") as journal:
        for record in journal.records():        # what is there from earlier runs
            apply(record.payload)
        journal.append(b"order 17 paid")        # on the disk when this returns

One process writes a journal at a time. It loses the file in the moment that it dies, and nothing has to be cleaned up.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ropewalk._load import journal as _compiled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import Self

    from _typeshed import ReadableBuffer

__all__ = ["Journal", "Record", "Recovered", "Sync", "read"]

#: When a record is on the disk; see `Journal`.
Sync: TypeAlias = Literal["always", "group", "interval"]

#: The default times of ``sync="group"`` and ``sync="interval"``, in seconds.
_SECONDS = {"group": 0.0005, "interval": 0.2}
#: Bytes of records that are read at once.
_AT_ONCE = 1 << 20


class Record(NamedTuple):
    """A record of a journal."""

    #: Its number, which rises from one record to the next. All parts of a snapshot have that of the last record that
    #: the snapshot stands for.
    sequence: int
    #: What was appended.
    payload: bytes
    #: Whether it is a part of a snapshot, which stands for all records before.
    is_snapshot: bool


class Recovered(NamedTuple):
    """What a journal held when it was opened."""

    #: The number of whole records, parts of a snapshot included.
    records: int
    #: Whether its last writer has closed it. A new journal counts as closed.
    was_closed: bool
    #: Bytes behind the last whole record, which a crash has left there; they are no record and are gone.
    dropped_bytes: int
    #: The offset of those bytes in the file; `None` if there are none.
    offset: int | None


class Journal(_compiled.JournalBase):
    """An append-only file of records, each a string of bytes.

    ``path`` is the file, which is made if it is missing. ``sync`` says when a record is on the disk:

    - ``"always"``: when `append` returns. Threads that append at the same time share one sync.
    - ``"group"``: the same, but the thread that writes waits for others first, for ``seconds`` (0.0005) or until there
      are 64 records. Each record takes longer, and more of them fit into a second.
    - ``"interval"``: at the latest ``seconds`` (0.2) after `append` has returned. Then the kernel has the record: the
      end of the process costs nothing, a power cut the last records.

    ``seconds`` is an hour at most. A journal of more than ``max_bytes`` takes no more records until it is compacted.

    After a crash the journal has every record that was on the disk, and perhaps some that were on their way; always the
    first of all that were appended, without a gap. `recovered` says what was found. Committed records that are damaged
    raise `JournalCorrupt` with the offset. After a crash the last batch alone has no such proof, until the journal is
    opened again: damage to one of its records looks like a write that the crash cut off.

    Every method may be called from any thread. A forked child cannot append; its parent can.

    Raises:
        JournalLocked: another process, or this one, has the journal open; the message names the process.
        NotAJournal: the file is something else, or of a newer version.
        JournalCorrupt: committed records are damaged.
        JournalUnsafe: other users may write the file.
        OutOfDisk, JournalFull: a record was not written; later ones may be.
        JournalFailed: the disk has reported an error; the journal has to be opened again.
        JournalClosed: it was closed.
    """

    def __new__(
        cls,
        path: str | os.PathLike[str],
        *,
        sync: Sync = "always",
        seconds: float | None = None,
        max_bytes: int | None = None,
    ) -> Self:
        """Opens the journal at a path."""
        if seconds is not None and sync == "always":
            raise ValueError(
                "seconds is for sync='group' and sync='interval'; sync='always' waits for nothing"
            )
        # A relative name would lead elsewhere after `os.chdir`, and a compaction would replace a link.
        where: str = os.path.realpath(path)
        return super().__new__(
            cls, where, sync, _SECONDS.get(sync, 0.0) if seconds is None else seconds, max_bytes
        )

    @property
    def path(self) -> str:
        """The absolute path of the file, without symbolic links."""
        return str(self._path)

    @property
    def recovered(self) -> Recovered:
        """What the journal held when it was opened."""
        return Recovered(*self._recovered)

    def append_all(self, records: Iterable[ReadableBuffer]) -> int:
        """Appends records that share one sync, and returns the number of the last one.

        A crash may leave only the first of them. If one of them finds no room in the journal, none is appended.
        """
        return super().append_all(list(records))

    def compact(self, snapshot: Iterable[ReadableBuffer], upto: int | None = None) -> None:
        """Puts a snapshot into the place of all records up to number ``upto``, or up to `last`.

        ``snapshot`` is what the program needs to know of those records, as one or more byte strings. Other threads
        append meanwhile. After a crash the old file is there, or the new one.
        """
        # The number before the records: what is appended while the snapshot is made is not in it.
        last = self.last if upto is None else upto
        super().compact(list(snapshot), last)

    def records(self) -> Iterator[Record]:
        """Yields the records that were written, from the first on, and those that are appended meanwhile.

        A compaction puts another file into the journal's place, and an iterator from before goes on in the old one: it
        does not yield what is appended after the compaction. Call `records` again for that.
        """
        return read(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.last} records"
        return f"<Journal {self.path!r}, {state}>"


def read(path: str | os.PathLike[str]) -> Iterator[Record]:
    """Yields the records of a journal that is closed, or that another process or thread writes.

    It takes no lock, and writes nothing. The iterator ends behind the last whole record; `Journal` tells whether
    something follows that is none. An iterator from before a compaction goes on in the old file, and does not yield
    what is appended after it.

    Raises:
        JournalError: there is no such file, or it cannot be read.
        NotAJournal, JournalCorrupt, JournalUnsafe: as for `Journal`.
    """
    reader = _compiled.RecordReader(os.path.abspath(path))
    return _records(reader)


def _records(reader: _compiled.RecordReader) -> Iterator[Record]:
    while found := reader.read(_AT_ONCE):
        for sequence, is_snapshot, payload in found:
            yield Record(sequence, payload, is_snapshot)
