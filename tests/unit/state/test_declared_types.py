"""What is stored is compared with the annotations, where it is stored."""

from __future__ import annotations

import abc
import enum
import gc
import sys
import weakref
from dataclasses import dataclass
from typing import Any, Generic, Literal, NewType, TypeVar

import pytest

from ropewalk import InvariantBroken
from ropewalk.state import (
    DELETE,
    AppendOnly,
    Const,
    Counter,
    NoSuchPath,
    NotFrozen,
    PMap,
    PVector,
    StateError,
    Store,
    WrongType,
    paths,
    task,
)

Name = NewType("Name", str)
T = TypeVar("T")


class Colour(enum.Enum):
    RED = 1


class Shout(abc.ABC):
    @abc.abstractmethod
    def shout(self) -> str: ...


@Shout.register
@dataclass(frozen=True, slots=True)
class Loud:
    volume: int = 1


@dataclass(frozen=True, slots=True)
class Account:
    owner: str
    balance: int = 0


@dataclass(frozen=True, slots=True)
class Gold(Account):
    bonus: int = 0


@dataclass(frozen=True, slots=True)
class Box(Generic[T]):
    inner: T


ACCOUNTS = PMap(ann=Account("Ann", 10))
ITEMS = PVector([1, 2])
NONE: PVector[str] = PVector()
NOBODY: PMap[int, int] = PMap()


@dataclass(frozen=True, slots=True)
class Bank:
    fee: Const[int] = 1
    accounts: PMap[str, Account] = ACCOUNTS
    items: PVector[int] = ITEMS
    hits: Counter = 0
    log: AppendOnly[str] = NONE
    note: str = ""
    best: Account | None = None
    mode: Literal["a", 1] = "a"
    rate: float = 0.0
    colour: Colour = Colour.RED
    name: Name = Name("n")
    either: int | Account = 0
    loud: Shout = Loud()
    pair: tuple[int, ...] = ()
    box: Box[int] = Box(1)
    free: Any = None
    ages: PMap[int, int] = NOBODY


P = paths(Bank)


def put(name: str, value: Any) -> Any:
    return lambda b: setattr(b, name, value)


def at(name: str, key: Any, value: Any) -> Any:
    return lambda b: getattr(b, name).__setitem__(key, value)


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (put("note", 3), r"note is declared as str, and was given an int, 3"),
        (put("note", None), r"note is declared as str, and was given None"),
        (put("best", 3), r"best is declared as Account \| None, and was given an int"),
        (put("mode", "b"), r"mode is declared as Literal\['a', 1\], and was given a str, 'b'"),
        (put("mode", True), r"mode is declared as Literal"),
        (put("rate", "1"), r"rate is declared as float"),
        (put("colour", 1), r"colour is declared as Colour"),
        (put("name", 1), r"name is declared as"),
        (put("either", "x"), r"either is declared as int \| Account"),
        (put("loud", 1), r"loud is declared as Shout"),
        (put("pair", [1]), r"pair is declared as tuple\[int, \.\.\.\], and was given a list"),
        (put("box", Box("x")), r"box\.inner is declared as int"),
        (put("accounts", 3), r"accounts is declared as PMap\[str, Account\]"),
        (put("accounts", {"x": 3}), r"accounts\['x'\] is declared as Account, and was given an int"),
        (put("accounts", PMap(x=3)), r"accounts\['x'\] is declared as Account"),
        (
            put("accounts", {3: Account("x")}),
            r"the keys of accounts are declared as str, and were given an int, 3",
        ),
        (put("items", (1, 2)), r"items is declared as PVector\[int\], and was given a tuple.*Give a list"),
        (put("items", [1, "a"]), r"items\[1\] is declared as int, and was given a str"),
        (
            at("accounts", "x", {"owner": "X"}),
            r"accounts\['x'\] is declared as Account, and was given a dict",
        ),
        (
            at("accounts", "x", Account("X", "1")),  # type: ignore[arg-type]
            r"accounts\['x'\]\.balance is declared as int",
        ),
        (at("accounts", 3, Account("X")), r"the keys of accounts are declared as str"),
        (at("accounts", b"x", Account("X")), r"the keys of accounts are declared as str"),
        (at("items", 0, "a"), r"items\[0\] is declared as int"),
        (lambda b: b.items.append("a"), r"items\[\.\.\.\] is declared as int"),
        (lambda b: b.items.insert(0, "a"), r"items\[0\] is declared as int"),
        (lambda b: b.items.extend(["a", 3]), r"items\[\.\.\.\] is declared as int"),
        (lambda b: b.log.append(3), r"log\[\.\.\.\] is declared as str"),
        (
            lambda b: setattr(b.accounts["ann"], "balance", "much"),
            r"accounts\['ann'\]\.balance is declared as int",
        ),
    ],
)
def test_a_value_of_another_type_is_refused_where_it_is_stored(work: Any, said: str) -> None:
    store = Store(Bank())

    def guarded(b: Any) -> None:
        with pytest.raises(WrongType, match=said) as raised:
            work(b)
        assert isinstance(raised.value, (StateError, TypeError))
        assert raised.value.path in str(raised.value)

    store.run(guarded)
    assert store.version == 0
    assert store.snapshot() == Bank()


@pytest.mark.parametrize(
    "work",
    [
        put("note", Name("x")),
        put("best", Account("X")),
        put("best", Gold("X", 1, 2)),
        put("best", None),
        put("mode", 1),
        put("rate", 3),
        put("either", Account("x")),
        put("loud", Loud(3)),
        put("box", Box(3)),
        put("box", Box(True)),
        put("free", {"any": ["thing"]}),
        put("accounts", {"x": Gold("X")}),
        put("items", [True]),
        at("ages", True, 3),
        lambda b: setattr(b.accounts["ann"], "balance", True),
        lambda b: setattr(b, "best", b.accounts["ann"]),
        lambda b: b.accounts.update(b.accounts),
    ],
)
def test_what_typing_allows_is_stored(work: Any) -> None:
    Store(Bank()).run(work)


def test_the_first_state_is_compared_in_all_its_parts() -> None:
    wrong: Any = PMap(x=Account("X", "1"))  # type: ignore[arg-type]
    Store({"other": wrong})  # It is marked as one that never changes.
    with pytest.raises(WrongType, match=r"accounts\['x'\]\.balance is declared as int"):
        Store(Bank(accounts=wrong))
    with pytest.raises(WrongType, match=r"note is declared as str"):
        Store(Bank(note=3))  # type: ignore[arg-type]


def test_the_items_of_what_a_contract_lets_append_are_compared() -> None:
    store = Store(Bank())
    with pytest.raises(WrongType, match=r"log"):
        store.run(task(writes=[P.log])(lambda b: b.log.append(3)))
    with pytest.raises(WrongType, match=r"balance"):
        store.run(
            task(writes=[P.accounts[...].balance])(lambda b: setattr(b.accounts["ann"], "balance", "x"))
        )


def test_a_field_of_a_subclass_has_the_type_of_the_declared_class() -> None:
    store = Store(Bank(best=Gold("X")))
    with pytest.raises(WrongType, match=r"owner is declared as str"):
        store.run(lambda b: setattr(b.best, "owner", 3))


def test_a_mapping_without_types_holds_anything() -> None:
    store = Store({"a": {"b": 1}})
    store.run(lambda b: b["a"].update(b="x", c=[1]))
    assert store.snapshot()["a"]["b"] == "x"


def test_a_merge_makes_records_of_mappings() -> None:
    store = Store(Bank())
    with store.transaction() as tx:
        tx.merge("accounts", {"new": {"owner": "N", "balance": DELETE}, "ann": {"balance": 3}})
        tx.merge("best", {"owner": "B"})
        tx.merge("either", {"owner": "E", "balance": 2})
    state = store.snapshot()
    assert state.accounts == PMap(new=Account("N"), ann=Account("Ann", 3))
    assert state.best == Account("B")
    assert state.either == Account("E", 2)
    with pytest.raises(NoSuchPath, match=r"no field 'ownr'. Did you mean 'owner'"), store.transaction() as tx:
        tx.merge("accounts", {"x": {"ownr": "N"}})
    with (
        pytest.raises(WrongType, match=r"'x' is new, and Account cannot be made .*owner"),
        store.transaction() as tx,
    ):
        tx.merge("accounts", {"x": {"balance": 3}})
    with pytest.raises(WrongType, match=r"balance is declared as int"), store.transaction() as tx:
        tx.merge(None, {"accounts": {"x": {"owner": "X", "balance": "3"}}})


def test_the_path_leads_into_the_value_that_can_change() -> None:
    value = {"a": {"b": [1, {"c": (1, 2, object())}]}}
    with pytest.raises(
        NotFrozen, match=r"\['a'\]\['b'\]\[1\]\['c'\]\[2\] cannot be stored: a value of class object"
    ):
        Store(value)
    store = Store(Bank())
    with pytest.raises(NotFrozen, match=r"free\['a'\]\['b'\]\[1\]\['c'\]\[2\] cannot be stored"):
        store.run(put("free", value))
    with pytest.raises(NotFrozen, match=r"free\.inner\[0\] cannot be stored"):
        store.run(put("free", Box([object()])))
    with pytest.raises(NotFrozen, match=r"^free cannot be stored: a value of class object"):
        store.run(put("free", object()))


def test_a_class_that_was_defined_again_is_named_as_such() -> None:
    def define() -> Any:
        @dataclass(frozen=True)
        class Cell:
            number: int = 0

        return Cell

    first, second = define(), define()
    store = Store(first())
    with pytest.raises(StateError, match=r"the class .*Cell was defined again.* open the store again"):
        store.run(task(reads=[paths(second).number])(lambda c: c.number))

    @dataclass(frozen=True)
    class Sheet:
        cell: first  # type: ignore[valid-type]

    Sheet.__annotations__["cell"] = first
    with pytest.raises(WrongType, match=r"was defined again"):
        Store(Sheet(first())).run(put("cell", second()))


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 13) and not getattr(sys, "_is_gil_enabled", bool)(), reason="keeps"
)
def test_classes_go_with_their_stores() -> None:
    @dataclass(frozen=True)
    class Node:
        number: int = 0

    Node.__annotations__["number"] = int
    store = Store(Node())
    store.run(put("number", 3))
    gone = weakref.ref(Node)
    store.close()
    del store, Node
    gc.collect()
    gc.collect()
    assert gone() is None


def test_a_first_state_that_breaks_an_invariant_has_no_transaction() -> None:
    with pytest.raises(InvariantBroken, match=r"^the state breaks the invariant .*<lambda>$"):
        Store(Bank(), invariants=[lambda b: b.hits > 0])
