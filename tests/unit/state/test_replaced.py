"""Values that replace others which have parts in zones: what is Const, append-only or counted is not replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from ropewalk import ContractViolation
from ropewalk.state import AppendOnly, Const, Counter, PMap, PVector, Store, paths, task


@dataclass(frozen=True)
class Account:
    """An account."""

    iban: Const[str]
    log: AppendOnly[str]
    count: Counter
    name: str = ""


@dataclass(frozen=True)
class Bank:
    """A bank."""

    accounts: PMap[str, Account]
    main: Account
    rows: PVector[Account]


def bank() -> Bank:
    return Bank(
        PMap(ann=Account("DE1", PVector(["a", "b"]), 7)),
        Account("DE2", PVector(["x"]), 3),
        PVector([Account("DE3", PVector(), 1), Account("DE4", PVector(), 1)]),
    )


REFUSED: dict[str, tuple[str, Callable[[Any], object]]] = {
    "const in a map": (
        r"accounts\['ann'\]\.iban, which is Const",
        lambda draft: draft.accounts.__setitem__("ann", Account("XX", PVector(["a", "b"]), 7)),
    ),
    "append-only": (
        r"accounts\['ann'\]\.log, which is append-only",
        lambda draft: draft.accounts.__setitem__("ann", Account("DE1", PVector(["a"]), 7)),
    ),
    "counter": (
        "main.count, which is a counter",
        lambda draft: _set(draft, Account("DE2", PVector(["x"]), 0)),
    ),
    "whole map": (
        r"accounts\['ann'\]\.iban",
        lambda draft: setattr(draft, "accounts", {"ann": Account("X", PVector(["a", "b"]), 7)}),
    ),
    "an item": (
        r"rows\[0\]\.iban",
        lambda draft: draft.rows.__setitem__(0, Account("X", PVector(), 1)),
    ),
    "an item of a list that has moved": (
        r"rows\[1\]\.iban",
        lambda draft: (
            draft.rows.insert(0, draft.rows[1]),
            draft.rows.__setitem__(1, Account("X", PVector(), 1)),
        ),
    ),
    "within what was put there": (
        r"accounts\['ann'\]\.iban",
        lambda draft: (
            setattr(draft, "accounts", {"ann": bank().accounts["ann"]}),
            draft.accounts.__setitem__("bob", Account("XX", PVector(), 0)),
            draft.accounts.__setitem__("bob", Account("YY", PVector(), 0)),
            draft.accounts.__setitem__("ann", Account("XX", PVector(), 0)),
        ),
    ),
    "deleted before": (
        r"accounts\['ann'\]\.iban",
        lambda draft: (
            draft.accounts.pop("ann"),
            draft.accounts.__setitem__("ann", Account("X", PVector(["a", "b"]), 7)),
        ),
    ),
}


def _set(draft: Any, value: Account) -> None:
    draft.main = value


@pytest.mark.parametrize("name", REFUSED)
def test_parts_in_zones_are_not_replaced_with_what_is_above_them(name: str) -> None:
    place, change = REFUSED[name]
    store = Store(bank())
    with pytest.raises(ContractViolation, match=place) as raised, store.transaction() as tx:
        change(tx.draft)
    assert raised.value.access == "write"
    assert store.snapshot() == bank()


def test_a_declared_write_does_not_replace_them_either() -> None:
    @task(writes=[paths(Bank).main])
    def change(draft: Any) -> None:
        draft.main = Account("ZZ", PVector(), 0)

    store = Store(bank())
    with pytest.raises(ContractViolation, match=r"main\.iban"):
        store.run(change)
    assert store.snapshot() == bank()


def test_equal_parts_longer_logs_new_keys_and_deletions_are_allowed() -> None:
    store = Store(bank())
    with store.transaction() as tx:
        draft = tx.draft
        draft.accounts["ann"] = Account("DE1", PVector(["a", "b", "c"]), 7, "Ann")
        draft.accounts["bob"] = Account("DE9", PVector(), 1)
        draft.accounts["bob"] = Account("DE8", PVector(), 2)
        draft.main = replace(store.snapshot().main, name="main")
        draft.main.count += 1
        draft.rows = [Account("DE4", PVector(), 1)]
    state = store.snapshot()
    assert state.accounts["ann"].name == "Ann"
    assert list(state.accounts["ann"].log) == ["a", "b", "c"]
    assert state.accounts["bob"] == Account("DE8", PVector(), 2)
    assert (state.main.name, state.main.count, len(state.rows)) == ("main", 4, 1)
    with store.transaction() as tx:
        del tx.draft.accounts["ann"]
        tx.draft.accounts = {"bob": state.accounts["bob"]}
    with store.transaction() as tx:
        tx.draft.accounts["ann"] = Account("new", PVector(), 0)
    assert store.snapshot().accounts["ann"].iban == "new"


def test_a_count_by_another_makes_the_transaction_run_again() -> None:
    store = Store(bank())
    runs: list[int] = []

    def elsewhere(change: Callable[[Any], None]) -> None:
        thread = threading.Thread(target=store.run, args=(change,))
        thread.start()
        thread.join()

    def count(other: Any) -> None:
        other.main.count += 1

    def rename(draft: Any) -> None:
        if not runs:
            elsewhere(count)
        runs.append(1)
        draft.main = replace(store.snapshot().main, name=f"after {len(runs)}")

    def blind(draft: Any) -> None:
        if len(runs) == 1:
            elsewhere(lambda other: other.main.log.append("more"))
        runs.append(1)
        draft.main = Account("DE2", PVector(["x"] if len(runs) == 2 else ["x", "more"]), 4)

    store.run(rename)
    assert store.snapshot().main.count == 4
    runs[:] = [1]
    store.run(blind)
    assert len(runs) == 3
    assert list(store.snapshot().main.log) == ["x", "more"]


def test_what_is_shown_is_not_compared() -> None:
    with pytest.raises(ContractViolation), Store(bank()).transaction() as tx:  # noqa: PT012
        tx.draft.main = Account("XX", PVector(), 0)
        assert "XX" in repr(tx.draft)
        assert tx.value(tx.draft).main.iban == "XX"
