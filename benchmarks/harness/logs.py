"""What appends records that survive, behind one shape."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OURS = "ropewalk"
LOG = "fdatasync log"
SQLITE = "sqlite"
LMDB = "lmdb"
PLAYERS: dict[str, tuple[str, ...]] = {OURS: ("ropewalk",), LOG: (), SQLITE: (), LMDB: ("lmdb",)}
#: The bytes of each record, and those that a record of a bare log has beside them: a length and a checksum.
RECORD = b"x" * 64
HEAD = bytes(8)


def folder() -> str:
    """A folder on a disk: a temporary folder may be in memory, where a sync costs nothing."""
    return tempfile.mkdtemp(prefix="ropewalk-journal-", dir="/var/tmp")


def appender(peer: str, where: str) -> Callable[[Sequence[bytes]], object]:
    """Gives a function that returns when all of these records are on the disk."""
    path = os.path.join(where, "log")
    if peer == OURS:
        import ropewalk

        journal = ropewalk.Journal(path)
        return lambda records: (
            journal.append(records[0]) if len(records) == 1 else journal.append_all(records)
        )
    if peer == LOG:
        return _bare(path)
    if peer == SQLITE:
        return _sqlite(path)
    return _lmdb(path)


def _bare(path: str) -> Callable[[Sequence[bytes]], object]:
    log, end = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), 0
    # Room is taken ahead, as ours does, so that a sync writes no metadata.
    os.posix_fallocate(log, 0, 64 << 20)

    def append(records: Sequence[bytes]) -> None:
        nonlocal end
        end += os.pwrite(log, HEAD + HEAD.join(records), end)
        os.fdatasync(log)

    return append


def _sqlite(path: str) -> Callable[[Sequence[bytes]], object]:
    import sqlite3

    base = sqlite3.connect(path, isolation_level=None)
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA synchronous=FULL")
    base.execute("CREATE TABLE log (number INTEGER PRIMARY KEY, record BLOB)")

    def append(records: Sequence[bytes]) -> None:
        base.execute("BEGIN")
        base.executemany("INSERT INTO log (record) VALUES (?)", [(record,) for record in records])
        base.execute("COMMIT")

    return append


def _lmdb(path: str) -> Callable[[Sequence[bytes]], object]:
    import lmdb

    base: Any = lmdb.open(path, map_size=1 << 30)
    count = 0

    def append(records: Sequence[bytes]) -> None:
        nonlocal count
        with base.begin(write=True) as change:
            for record in records:
                change.put(count.to_bytes(8), record, append=True)
                count += 1

    return append
