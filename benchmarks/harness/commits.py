"""What makes changes of one leaf each survive, behind one shape: a call commits all of them before it returns."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any

from harness.logs import appender
from harness.states import ITEMS, NEEDS, OURS, names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    #: Commits a change of each account, and gives back what closes everything and says a balance.
    Committer = tuple[Callable[[Sequence[str]], object], Callable[[str], int]]

ARUN = "ropewalk, arun"
LOG = "fdatasync log"
SQLITE, SQLITE_ONE = "sqlite", "sqlite, one transaction"
LMDB, LMDB_ONE = "lmdb", "lmdb, one transaction"
PLAYERS: dict[str, tuple[str, ...]] = {
    OURS: NEEDS,
    ARUN: NEEDS,
    LOG: (),
    SQLITE: (),
    SQLITE_ONE: (),
    LMDB: ("lmdb",),
    LMDB_ONE: ("lmdb",),
}
#: They wait for the disk at each change of a group.
SLOW = (SQLITE, LMDB)


def committer(peer: str, where: str) -> Committer:
    """What adds 1 to the balance of each of these accounts and returns when that is on the disk; and what ends it.

    The end closes everything, and returns the balance of an account that is found on the disk.
    """
    if peer in (OURS, ARUN):
        return _store(peer, where)
    if peer == LOG:
        return _log(where)
    return (_sqlite if peer in (SQLITE, SQLITE_ONE) else _lmdb)(where, one=peer in (SQLITE_ONE, LMDB_ONE))


def _store(peer: str, where: str) -> Committer:
    import asyncio

    from harness.bank import bank, bump

    path = os.path.join(where, "bank.wal")
    store = bank(ITEMS, journal=path)

    def end(name: str) -> int:
        store.close()
        with bank(ITEMS, journal=path) as again:
            return again.snapshot().accounts[name].balance

    def commit(accounts: Sequence[str]) -> None:
        if len(accounts) == 1:
            store.run(bump, accounts[0])
        else:
            store.run_all([(bump, name) for name in accounts])

    if peer == OURS:
        return commit, end
    loop = asyncio.new_event_loop()

    async def gathered(accounts: Sequence[str]) -> None:
        await asyncio.gather(*[store.arun(bump, name) for name in accounts])

    def ended(name: str) -> int:
        loop.close()
        return end(name)

    return lambda accounts: loop.run_until_complete(gathered(accounts)), ended


def _log(where: str) -> Committer:
    append, balances = appender(LOG, where), dict.fromkeys(names(ITEMS), 100)

    def commit(accounts: Sequence[str]) -> None:
        records = list[bytes]()
        for name in accounts:
            balances[name] += 1
            records.append(pickle.dumps((("accounts", name, "balance"), balances[name]), 5))
        append(records)

    return commit, lambda name: balances[name]


def _sqlite(where: str, *, one: bool) -> Committer:
    import sqlite3

    path = os.path.join(where, "bank")
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA synchronous=FULL")
    base.execute("CREATE TABLE accounts (name TEXT PRIMARY KEY, owner TEXT, balance INTEGER) WITHOUT ROWID")
    base.execute("BEGIN")
    every = [(name, f"owner of {name}", 100) for name in names(ITEMS)]
    base.executemany("INSERT INTO accounts VALUES (?, ?, ?)", every)
    base.execute("COMMIT")
    change = "UPDATE accounts SET balance = balance + 1 WHERE name = ?"

    def commit(accounts: Sequence[str]) -> None:
        if not one:
            # Each statement is a transaction where none was begun.
            for name in accounts:
                base.execute(change, (name,))
            return
        base.execute("BEGIN")
        base.executemany(change, [(name,) for name in accounts])
        base.execute("COMMIT")

    def end(name: str) -> int:
        base.close()
        again = sqlite3.connect(path)
        [[balance]] = again.execute("SELECT balance FROM accounts WHERE name = ?", (name,))
        again.close()
        return int(balance)

    return commit, end


def _lmdb(where: str, *, one: bool) -> Committer:
    import lmdb

    path = os.path.join(where, "bank")
    base: Any = lmdb.open(path, map_size=1 << 30)
    with base.begin(write=True) as change:
        for name in names(ITEMS):
            change.put(name.encode(), pickle.dumps((f"owner of {name}", 100), 5))

    def bump(change: Any, name: str) -> None:
        key = name.encode()
        owner, balance = pickle.loads(change.get(key))
        change.put(key, pickle.dumps((owner, balance + 1), 5))

    def commit(accounts: Sequence[str]) -> None:
        if not one:
            for name in accounts:
                with base.begin(write=True) as change:
                    bump(change, name)
            return
        with base.begin(write=True) as change:
            for name in accounts:
                bump(change, name)

    def end(name: str) -> int:
        base.close()
        again: Any = lmdb.open(path, map_size=1 << 30)
        with again.begin() as found:
            balance = pickle.loads(found.get(name.encode()))[1]
        again.close()
        return int(balance)

    return commit, end
