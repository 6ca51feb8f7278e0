"""Typed paths: how they are made, what they say, and the laws of two of them."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest

from ropewalk.state import (
    EACH,
    Const,
    Counter,
    Key,
    NoSuchPath,
    PMap,
    PVector,
    covers,
    meets,
    path_at,
    path_from,
    paths,
    pointer,
    policy_shape,
    root_of,
    shape_at,
    shape_of,
    steps_of,
    value_at,
)
from ropewalk.state._paths import code_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Account:
    owner: str
    balance: int


@dataclass(frozen=True, slots=True)
class Bank:
    accounts: PMap[str, Account]
    journal: PVector[Account]
    grid: PVector[PVector[int]]
    by_number: PMap[int, str]
    prices: PMap[float, str]
    anything: Any
    best: Account | None
    # Names that a class of paths could want for itself.
    steps: int
    shape: int
    get: int
    covers: int
    _hidden: int


P = paths(Bank)


def test_paths_read_as_they_are_written() -> None:
    path = P.accounts["ann"].balance
    assert steps_of(path) == ("accounts", Key("ann"), "balance")
    assert str(path) == "accounts['ann'].balance"
    assert repr(path) == "Bank.accounts['ann'].balance"
    assert str(P.accounts[...].balance) == "accounts[...].balance"
    assert repr(P.journal[-1]) == "Bank.journal[-1]"
    assert (str(P), repr(P)) == ("", "Bank")
    assert steps_of(P.journal[...]) == ("journal", EACH)
    assert P.journal[EACH] == P.journal[...]
    assert P.journal[Key(3)] == P.journal[3]


def test_paths_know_the_shape_of_their_place() -> None:
    assert root_of(P.journal) is Bank
    assert shape_at(P) is shape_of(Bank)
    assert shape_at(P.accounts["ann"]) is shape_of(Account)
    assert shape_at(P.best) is shape_of(Account)
    assert shape_at(P.accounts[...].balance).annotation is int


def test_any_field_can_be_named() -> None:
    for name in ("steps", "shape", "get", "covers", "_hidden"):
        assert steps_of(getattr(P, name)) == (name,)


def test_a_wrong_field_is_explained() -> None:
    with pytest.raises(NoSuchPath) as caught:
        P.acounts  # noqa: B018
    assert str(caught.value).startswith(
        "Bank has no field 'acounts'. Did you mean 'accounts'? Its fields are accounts,"
    )
    assert isinstance(caught.value, AttributeError)
    assert not hasattr(P, "nothing_like_it")
    with pytest.raises(NoSuchPath, match=r"Account has no field 'owed'"):
        P.accounts[...].owed  # noqa: B018


def test_wrong_steps_are_explained() -> None:
    with pytest.raises(
        NoSuchPath, match=r"Bank\.accounts is of PMap\[str, Account\], which has no field 'balance'"
    ):
        P.accounts.balance  # noqa: B018
    with pytest.raises(NoSuchPath, match=r"Bank is of Bank, which has no items but the fields accounts, "):
        P["accounts"]
    with pytest.raises(NoSuchPath, match=r"Bank\.steps is of int, which has no places below it"):
        P.steps.real  # noqa: B018
    with pytest.raises(NoSuchPath, match=r"keys of Bank\.accounts are of str, and 3 is of int"):
        P.accounts[3]
    with pytest.raises(NoSuchPath, match=r"is a vector, whose items have whole numbers, and not 'a'"):
        P.journal["a"]
    for index in (True, 1.0, slice(1)):
        with pytest.raises((NoSuchPath, TypeError)):
            P.journal[index]
    for path in (P.accounts, P.anything):
        with pytest.raises(TypeError, match=r"unhashable|cannot be hashed"):
            path[["a"]]
    assert steps_of(P.prices[3]) == ("prices", Key(3))


def test_what_may_be_anything_has_any_path() -> None:
    path = P.anything.there["is"][...].more
    assert shape_at(path) is shape_at(P.anything)
    assert str(path) == "anything.there['is'][...].more"


def test_a_path_is_read_only() -> None:
    anything: Any = P
    with pytest.raises(AttributeError, match="has no value that could be set"):
        anything.steps = 3
    with pytest.raises(AttributeError, match="has no value that could be deleted"):
        del anything.steps
    with pytest.raises(TypeError, match=r"Bank\.journal\[\.\.\.\] names each of its items"):
        list(anything.journal)
    with pytest.raises(TypeError):
        3 in anything.journal  # noqa: B015
    with pytest.raises(TypeError):
        anything.journal()
    with pytest.raises(AttributeError):
        anything.__wrapped__  # noqa: B018


def test_equal_paths_are_one_key() -> None:
    assert P.accounts["ann"] == paths(Bank).accounts["ann"]
    assert hash(P.accounts["ann"]) == hash(paths(Bank).accounts["ann"])
    assert len({P.accounts, P.accounts, P.accounts[...], P.journal}) == 3
    assert P.accounts["steps"] != P.accounts[...]
    assert path_from(Bank, ("anything", "a")) != path_from(Bank, ("anything", Key("a")))
    assert P != ""
    assert P.accounts != "accounts"

    @dataclass(frozen=True)
    class Twin:
        journal: PVector[int]

    assert paths(Twin).journal != P.journal


def test_paths_are_pickled_and_copied() -> None:
    path = P.accounts["ann"].balance
    again = pickle.loads(pickle.dumps(path))
    assert again == path
    assert hash(again) == hash(path)
    assert shape_at(again).annotation is int
    assert shape_at(pickle.loads(pickle.dumps(P.journal))[...].balance).annotation is int
    assert copy.deepcopy(path) == copy.copy(path) == path


def test_paths_in_texts() -> None:
    for path in (
        P,
        P.accounts,
        P.accounts["a.b[c]"].balance,
        P.journal[-1],
        P.grid[...][3],
        P.anything["x"][...],
    ):
        assert path_at(Bank, str(path)) == path
    assert path_at(Bank, 'accounts["ann"]') == P.accounts["ann"]
    for wrong in (
        "a b",
        "f(x)",
        "accounts.",
        "accounts[",
        "accounts[x]",
        "accounts[1:2]",
        "3",
        "a + b",
        "(",
        "a\0",
    ):
        with pytest.raises(ValueError, match="is no path"):
            path_at(Bank, wrong)
    with pytest.raises(NoSuchPath):
        path_at(Bank, "accounts.balance")


def test_pointers() -> None:
    assert pointer(P) == ""
    assert pointer(P.accounts["a/b~c"].balance) == "/accounts/a~1b~0c/balance"
    assert pointer(P.journal[3]) == "/journal/3"
    assert pointer(P.grid[...][0]) == "/grid/*/0"


def test_paths_as_code() -> None:
    for path in (P, P.accounts["ann"].balance, P.journal[-1], P.grid[...][...]):
        assert eval(code_of(path), {"P": P}) == path
    assert code_of(P.steps, "bank") == "bank.steps"


def test_generic_states_have_one_shape() -> None:
    @dataclass(frozen=True)
    class Page(Generic[T]):
        items: PVector[T]

    first = paths(Page[int])
    assert shape_at(first) is shape_at(paths(Page[int]))
    assert first.items == paths(Page[int]).items != paths(Page[str]).items
    assert covers(first.items, paths(Page[int]).items[0])


def test_values_of_paths() -> None:
    ann = Account("ann", 3)
    bank = Bank(
        PMap({"ann": ann}), PVector([ann]), PVector(), PMap(), PMap(), {"a": [1]}, None, 1, 2, 3, 4, 5
    )
    assert value_at(P, bank) is bank
    assert value_at(P.accounts["ann"].balance, bank) == 3
    assert value_at(P.journal[-1], bank) is ann
    assert value_at(P.anything["a"][0], bank) == 1
    with pytest.raises(LookupError):
        value_at(P.accounts["bob"], bank)
    with pytest.raises(ValueError, match="names each of the items"):
        value_at(P.journal[...], bank)


def test_dict_shaped_states_have_keys_for_fields() -> None:
    shape: Any = policy_shape({"limits": Const, "orders[...].hits": Counter})
    path = paths(shape).orders["a"].hits
    assert steps_of(path) == (Key("orders"), Key("a"), Key("hits"))
    assert repr(path) == "state['orders']['a']['hits']"
    assert path == path_at(shape, "orders['a'].hits") == paths(shape)["orders"]["a"]["hits"]
    assert shape_at(path).annotation is int
    assert steps_of(paths(shape).other.deep) == (Key("other"), "deep")
    assert code_of(path) == "'orders.a.hits'"
    assert code_of(paths(shape)["two words"][...]) == "\"['two words'][...]\""


def test_paths_of_two_classes_do_not_meet() -> None:
    other = paths(Account)
    assert not covers(P, other)
    assert not meets(P, other)
