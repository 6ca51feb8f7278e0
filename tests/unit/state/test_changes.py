"""`Store.changes`: what subscribers see, and since when."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from ropewalk._errors import HistoryGone, NoSuchPath
from ropewalk.state import PMap, Store, paths


@dataclass(frozen=True, slots=True)
class Account:
    balance: int


@dataclass(frozen=True, slots=True)
class Bank:
    accounts: PMap[str, Account]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Shop:
    accounts: PMap[str, Account]


P = paths(Bank)


def bank(**options: Any) -> Store[Bank]:
    return Store(Bank(PMap(ann=Account(10), bob=Account(0))), **options)


def add(b: Any, name: str) -> None:
    b.accounts[name].balance += 1


async def rest(changes: Any) -> list[Any]:
    return [change async for change in changes]


def test_a_subscriber_sees_what_is_committed_after_the_call() -> None:
    store = bank()
    store.run(add, "ann")
    changes = store.changes(P.accounts[...].balance)
    # Nothing has asked for a change yet.
    store.run(add, "ann")
    store.run(add, "bob")
    store.close()
    seen = asyncio.run(rest(changes))
    assert [(one.version, one.path, one.old, one.new) for one in seen] == [
        (2, "accounts['ann'].balance", 11, 12),
        (3, "accounts['bob'].balance", 0, 1),
    ]


def test_since_a_version() -> None:
    store = bank(history=3)
    for _ in range(5):
        store.run(add, "ann")
    assert (store.history()[0].number, store.version) == (3, 5)
    with pytest.raises(HistoryGone, match="it keeps 3 to 5"):
        store.changes(since=2)
    with pytest.raises(HistoryGone):
        store.changes(since=6)
    changes = store.changes(P.accounts, since=3)
    store.run(add, "bob")
    # Version 3 is gone by now.
    with pytest.raises(HistoryGone, match="the subscriber is behind"):
        asyncio.run(rest(changes))
    changes = store.changes("accounts['ann'].balance", since=4)
    store.close()
    assert [one.version for one in asyncio.run(rest(changes))] == [5]


def test_wrong_paths_are_refused_at_the_call() -> None:
    store = bank()
    with pytest.raises(NoSuchPath, match="acounts"):
        store.changes("acounts[...].balance")
    with pytest.raises(NoSuchPath, match="another state"):
        store.changes(paths(Shop).accounts)
    with pytest.raises(ValueError, match="is no path"):
        store.changes("accounts[")
    with pytest.raises(TypeError, match="takes a path"):
        store.changes(3)  # type: ignore[call-overload]
    assert "accounts[...]" in repr(store.changes(P.accounts[...]))


def test_paths_of_a_mapping() -> None:
    store = Store({"balances": {"ann": 10}})
    changes = store.changes("balances[...]")
    with store.transaction("gift", who="eve") as tx:
        tx.draft["balances"]["bob"] = 1
    store.close()
    (seen,) = asyncio.run(rest(changes))
    assert (seen.path, seen.new, seen.meta.who) == ("['balances']['bob']", 1, "eve")


def test_a_subscription_that_is_closed_ends() -> None:
    store = bank()
    changes = store.changes()

    async def main() -> None:
        waiting = asyncio.create_task(rest(changes))
        while not store._watchers.events:
            await asyncio.sleep(0)
        await changes.aclose()
        assert await asyncio.wait_for(waiting, 60) == []

    asyncio.run(main())
    assert not store._watchers.events


def test_waiting_for_changes() -> None:
    store = bank()

    async def main() -> None:
        changes = store.changes(P.name)
        waiting = asyncio.create_task(anext(changes))
        while not store._watchers.events:
            await asyncio.sleep(0)
        await store.arun(add, "ann")
        with store.transaction() as tx:
            tx.draft.name = "first"
        assert (await asyncio.wait_for(waiting, 60)).new == "first"
        waiting = asyncio.create_task(anext(changes))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with store.transaction() as tx:
            tx.draft.name = "second"
        assert (await anext(changes)).new == "second"

    asyncio.run(main())
    assert not store._watchers.events
