"""Table: opening a journal of a million records, and reading it."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

from harness.logs import OURS, PLAYERS, RECORD, SQLITE, folder
from harness.measure import Size
from harness.table import Contest, Line, Row, at_most

if TYPE_CHECKING:
    from collections.abc import Iterable


def resume(peer: str, records: int) -> dict[str, float]:
    """Writes so many records, then opens the file again and reads all of them."""
    where = folder()
    path = os.path.join(where, "log")
    if peer == OURS:
        import ropewalk

        with ropewalk.Journal(path, sync="interval") as journal:
            journal.append_all([RECORD] * records)
        began = time.perf_counter()
        opened = ropewalk.Journal(path)
        ready = time.perf_counter() - began
        found: Iterable[object] = opened.records()
    else:
        import sqlite3

        base = sqlite3.connect(path)
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("CREATE TABLE log (number INTEGER PRIMARY KEY, record BLOB)")
        base.executemany("INSERT INTO log (record) VALUES (?)", ((RECORD,) for _ in range(records)))
        base.commit()
        base.close()
        began = time.perf_counter()
        base = sqlite3.connect(path)
        found = base.execute("SELECT number, record FROM log")
        ready = time.perf_counter() - began
    count = sum(1 for _ in found)
    whole = time.perf_counter() - began
    shutil.rmtree(where)
    assert count == records
    return {"open": ready, "read": whole}


RESUME = Contest(
    resume,
    "a million records",
    {peer: PLAYERS[peer] for peer in (OURS, SQLITE)},
    records=Size(1_000_000, 100),
)

ROW = Row(
    "resume",
    "a million records again",
    "A file of a million records of 64 bytes, which is in the page cache. Opening a journal checks every record; "
    "SQLite checks nothing then. Reading makes an object of Python for each record.",
    (
        Line("opened, every record checked", "s", RESUME, "open", at_most(1)),
        Line("opened and read", "s", RESUME, "read", None, {SQLITE: None}),
    ),
)
