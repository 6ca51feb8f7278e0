"""What a store shows of its changes: differences, the audit, subscriptions; invariants, and inferred contracts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.state._bank import Account, Bank, P, bank, transfer

import ropewalk
from ropewalk.state import MISSING, PMap, PVector, Store, invariant, task


def test_a_difference_is_a_patch_and_costs_what_has_changed() -> None:
    with Store(bank(1000)) as store:
        store.run(transfer, "a1", "a2", 5)
        with store.transaction() as tx:
            del tx.draft.accounts["a3"]
            tx.draft.accounts["new/~"] = Account("x", 1)
        assert store.diff(0, 1) == unordered(
            {"op": "replace", "path": "/accounts/a1/balance", "value": 95},
            {"op": "replace", "path": "/accounts/a2/balance", "value": 105},
            {"op": "add", "path": "/log/-", "value": 5},
            {"op": "replace", "path": "/hits", "value": 1},
        )
        assert store.diff(1, 2) == unordered(
            {"op": "remove", "path": "/accounts/a3"},
            {"op": "add", "path": "/accounts/new~1~0", "value": Account("x", 1)},
        )
        assert {"op": "remove", "path": "/log/0"} in store.diff(2, 0)
        with pytest.raises(ropewalk.HistoryGone, match="keeps 0 to 2"):
            store.diff(0, 3)


class unordered:
    """Equal to a list of the same items in any order."""

    def __init__(self, *items: Any) -> None:
        self.items = list(items)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, list)
            and len(other) == len(self.items)
            and all(one in other for one in self.items)
        )

    __hash__ = None  # type: ignore[assignment]


def test_the_audit_says_who_and_why_and_the_way_back() -> None:
    with Store(bank(2)) as store:
        store.run(transfer, "a0", "a1", 5)
        with store.transaction("fees", who="ann", why="monthly") as tx:
            tx.draft.accounts["a0"].balance -= 1
        first, second = store.audit()
        assert (first.version, first.label, first.who) == (1, "transfer", None)
        assert (second.label, second.who, second.why) == ("fees", "ann", "monthly")
        assert second.patch == [{"op": "replace", "path": "/accounts/a0/balance", "value": 94}]
        assert second.inverse == [{"op": "replace", "path": "/accounts/a0/balance", "value": 95}]
        assert second.at >= first.at > 0
        assert list(store.audit(2)) == [second]


def test_subscribers_see_each_change_in_the_order_of_versions() -> None:
    async def main() -> None:
        store = Store(bank(3))
        seen: list[Any] = []
        whole: list[Any] = []

        async def watch() -> None:
            async for change in store.changes(P.accounts[...].balance):
                one = (change.version, change.path, change.old, change.new, change.meta.label)
                seen.append(one)

        async def watch_all() -> None:
            async for change in store.changes():
                one = (change.version, change.path)
                whole.append(one)

        tasks = [asyncio.ensure_future(watch()), asyncio.ensure_future(watch_all())]
        await asyncio.sleep(0)
        await asyncio.to_thread(store.run, transfer, "a0", "a1", 5)
        await store.arun(transfer, "a1", "a0", 5)
        with store.transaction("gone") as tx:
            del tx.draft.accounts["a2"]
            tx.draft.cursor = 4
        store.undo()
        while len(whole) < 4:
            await asyncio.sleep(0.001)
        store.close()
        await asyncio.gather(*tasks)
        assert [version for version, _ in whole] == [1, 2, 3, 4]
        assert seen[:4] == unordered(
            (1, "accounts['a0'].balance", 100, 95, "transfer"),
            (1, "accounts['a1'].balance", 100, 105, "transfer"),
            (2, "accounts['a0'].balance", 95, 100, "transfer"),
            (2, "accounts['a1'].balance", 105, 100, "transfer"),
        )
        assert seen[4:] == [
            (3, "accounts['a2'].balance", 100, MISSING, "gone"),
            (4, "accounts['a2'].balance", MISSING, 100, "undo"),
        ]
        assert not store._subscribers

    asyncio.run(main())


def test_a_subscriber_that_is_too_slow_is_not_left_in_the_dark() -> None:
    async def main() -> None:
        with Store(bank(2), history=3) as store:
            changes = store.changes(P.hits)
            first = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            store.run(transfer, "a0", "a1", 1)
            assert (await first).new == 1
            for _ in range(5):
                store.run(transfer, "a0", "a1", 1)
            with pytest.raises(ropewalk.HistoryGone, match="is behind"):
                await anext(changes)

    asyncio.run(main())


def test_invariants_hold_of_every_committed_state() -> None:
    called: list[int] = []

    @invariant(reads=[P.accounts])
    def nobody_owes(state: Bank) -> bool:
        called.append(1)
        return all(account.balance >= 0 for account in state.accounts.values())

    def few_hits(state: Bank) -> None:
        if state.hits > 2:
            raise OverflowError("many hits")

    with Store(bank(2), invariants=[nobody_owes, few_hits]) as store:
        assert called == [1]
        with pytest.raises(ropewalk.InvariantBroken, match="nobody_owes"), store.transaction() as tx:
            tx.draft.accounts["a0"].balance = -1
        assert store.version == 0
        called.clear()
        with store.transaction() as tx:
            tx.draft.hits += 2
        assert not called, "nothing that it reads was changed"
        with pytest.raises(OverflowError), store.transaction() as tx:
            tx.draft.hits += 1
        assert store.snapshot().hits == 2
    with pytest.raises(ropewalk.InvariantBroken):
        Store(Bank(1, PMap(a=Account("a", -1)), PVector(), 0, 0), invariants=[nobody_owes])
    with pytest.raises(TypeError, match="list of paths"):
        invariant(reads=P.accounts)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="an invariant is a function"):
        Store(bank(), invariants=[3])  # type: ignore[list-item]


def test_a_watched_task_prints_the_contract_that_it_should_have(capsys: pytest.CaptureFixture[str]) -> None:
    @task(strict="warn", reads=[P.limit])
    def loose(b: Any) -> int:
        b.accounts["a0"].balance += b.limit
        return len(b.accounts)

    with Store(bank(2)) as store:
        assert store.run(loose) == 2
        assert store.run(loose) == 2
    said = capsys.readouterr().err
    assert said.count("loose touches") == 1
    assert "@task(reads=[P.accounts, P.limit], writes=[P.accounts[...].balance])" in said

    @task(strict="warn", writes=[P.accounts])
    def declared(b: Any) -> None:
        b.accounts["a0"].balance += 1

    with Store(bank(2)) as store:
        store.run(declared)
    assert not capsys.readouterr().err
