"""The value of a draft as of now, and what a draft does like a record."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from ropewalk import Conflict
from ropewalk.state import ContractViolation, PMap, Store, current, paths, task


@dataclass(frozen=True)
class Account:
    owner: str
    balance: int


class Bank(NamedTuple):
    accounts: PMap[str, Account]
    note: str = ""


def bank() -> Store[Bank]:
    return Store(Bank(PMap(ann=Account("Ann", 1), bob=Account("Bob", 2))))


def test_it_is_the_value_with_the_changes() -> None:
    store = bank()

    def work(b: Any) -> None:
        assert current(b) is store.snapshot()
        assert current(b.accounts) is store.snapshot().accounts
        b.accounts["ann"].balance = 7
        value = current(b.accounts)
        assert type(value) is PMap
        assert value["ann"] == Account("Ann", 7)
        assert value["bob"] is store.snapshot().accounts["bob"]
        b.accounts["ann"].balance = 8
        assert value["ann"].balance == 7
        assert current(3) == 3

    store.run(work)
    assert store.snapshot().accounts["ann"].balance == 8


def test_it_reads_the_whole_place() -> None:
    store = bank()

    def refused() -> None:
        with store.transaction() as tx:
            tx.draft.note = f"{len(current(tx.draft.accounts))}"
            store.run(lambda b: b.accounts.update(eve=Account("Eve", 0)))

    with pytest.raises(Conflict):
        refused()
    with pytest.raises(ContractViolation):
        store.run(task(reads=[paths(Bank).accounts[...].balance])(lambda b: current(b.accounts)))


def test_copies_and_the_functions_of_dataclasses_give_values() -> None:
    def work(b: Any) -> None:
        ann = b.accounts["ann"]
        ann.balance = 5
        assert copy.copy(ann) == copy.deepcopy(ann) == Account("Ann", 5)
        assert type(copy.copy(b.accounts)) is PMap
        assert dataclasses.replace(ann, owner="A") == Account("A", 5)
        assert dataclasses.asdict(ann) == {"owner": "Ann", "balance": 5}
        if sys.version_info >= (3, 13):
            assert copy.replace(ann, owner="A") == Account("A", 5)
        assert b._asdict()["accounts"]["ann"] == Account("Ann", 5)
        assert b._replace(note="x") == Bank(current(b.accounts), "x")
        with pytest.raises(TypeError, match=r"ropewalk\.state\.current"):
            pickle.dumps(ann)
        b.accounts["new"] = dataclasses.replace(ann, owner="N")

    store = bank()
    store.run(work)
    assert store.snapshot().accounts["new"] == Account("N", 5)


def test_a_name_that_is_no_field_is_named_with_the_nearest() -> None:
    def work(b: Any) -> None:
        for look in (lambda: b.acounts, lambda: setattr(b, "acounts", 1)):
            with pytest.raises(
                AttributeError, match=r"Bank has no field 'acounts'. Did you mean 'accounts'\? Its fields"
            ):
                look()
        with pytest.raises(
            AttributeError, match=r"Account has no field 'zzz'. Its fields are owner, balance"
        ):
            _ = b.accounts["ann"].zzz
        assert not hasattr(b, "__array__")
        assert not hasattr(b, "acounts")

    bank().run(work)


def test_methods_of_a_model_see_the_changes() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Item(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        model_config = pydantic.ConfigDict(frozen=True)
        name: str
        size: int = 0

    def work(item: Any) -> None:
        item.size = 3
        assert item.model_dump() == {"name": "a", "size": 3}
        assert item.model_copy(update={"name": "b"}) == Item(name="b", size=3)

    Store(Item(name="a")).run(work)
