"""Table: records that are on the disk when the call returns."""

from __future__ import annotations

import shutil
import time

from harness.logs import LMDB, LOG, PLAYERS, RECORD, SQLITE, appender, folder
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better, times_the_peer


def append(peer: str, calls: int, group: int) -> dict[str, float]:
    """So many calls with a group of records each; the time of the middle call, for each record."""
    where = folder()
    call, records = appender(peer, where), [RECORD] * group
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        call(records)
        times.append(time.perf_counter() - began)
    shutil.rmtree(where)
    middle = sorted(times)[calls // 2]
    return {"each": middle / group, "call": middle}


ONE = Contest(append, "one", PLAYERS, calls=Size(1000, 5), group=1)
GROUP = Contest(append, "64", PLAYERS, calls=Size(1000, 5), group=64)

ROW = Row(
    "append",
    "records on the disk",
    "One thread appends records of 64 bytes and waits for the disk: one in each call, or 64. The middle one of a "
    "thousand calls, for each record. The bare log writes the records with eight bytes each into room that was taken "
    "before, and calls `fdatasync`. SQLite has a write-ahead log with `synchronous=FULL`, and inserts into a table "
    "without an index; LMDB appends behind the last key, with its own syncs.",
    (
        Line(
            "one record",
            "µs",
            ONE,
            "each",
            None,
            {LOG: times_the_peer(1.2), SQLITE: None, LMDB: None},
            scale=1e6,
        ),
        Line(
            "64 records, each",
            "µs",
            GROUP,
            "each",
            None,
            {LOG: times_the_peer(1.3), SQLITE: times_better(10), LMDB: None},
            scale=1e6,
        ),
    ),
)
