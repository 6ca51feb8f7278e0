"""Table: commits that are on the disk when the call returns."""

from __future__ import annotations

import shutil
import time

from harness.commits import ARUN, LMDB, LMDB_ONE, LOG, PLAYERS, SLOW, SQLITE, SQLITE_ONE, committer
from harness.logs import folder
from harness.measure import Size
from harness.states import ITEMS, OURS, shuffled
from harness.table import Contest, Goal, Line, Row, Side, times_better, times_the_peer


def commit(peer: str, calls: int, group: int) -> dict[str, float]:
    """So many calls with a group of changes each; the time of the middle call, for each change."""
    where = folder()
    call, end = committer(peer, where)
    if peer in SLOW and group > 1:
        calls = max(3, calls // 20)
    names = shuffled(ITEMS)
    groups = [names[at : at + group] for at in range(0, ITEMS - group + 1, group)]
    times = []
    for number in range(calls):
        changed = groups[number % len(groups)]
        began = time.perf_counter()
        call(changed)
        times.append(time.perf_counter() - began)
    balance = end(names[0])
    shutil.rmtree(where)
    assert balance == 100 + (calls - 1) // len(groups) + 1
    middle = sorted(times)[calls // 2]
    return {"each": middle / group, "call": middle}


SINGLE = {peer: PLAYERS[peer] for peer in (OURS, LOG, SQLITE, LMDB)}
ONE = Contest(commit, "one", SINGLE, calls=Size(200, 5), group=1)
GROUP = Contest(commit, "64", PLAYERS, calls=Size(150, 5), group=64)
PEERS: dict[Side, Goal | None] = {
    LOG: times_the_peer(1.3),
    SQLITE: times_better(10),
    SQLITE_ONE: None,
    LMDB: None,
    LMDB_ONE: None,
}

ROW = Row(
    "commit",
    "commits on the disk",
    "Transactions that add 1 to the balance of one of 5,000 accounts each, and are on the disk when the call returns: "
    "`run_all` of 64 tasks, 64 coroutines that await `arun`, `run` of one. The middle call, for each transaction. The "
    "bare log pickles place and balance of each change, writes the records at once into room that was taken before, "
    "and calls `fdatasync`. SQLite has a write-ahead log with `synchronous=FULL`, and updates a row; LMDB reads and "
    "writes a pickled pair. Both take a transaction for each change, or one for all 64.",
    (
        Line("64 by run_all, each", "µs", GROUP, "each", None, PEERS, scale=1e6),
        Line("64 by arun, each", "µs", GROUP, "each", None, PEERS, ours=ARUN, scale=1e6),
        Line("one", "µs", ONE, "each", None, {LOG: None, SQLITE: None, LMDB: None}, scale=1e6),
    ),
)
