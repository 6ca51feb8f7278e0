"""Records of subclasses at places whose annotation names the base class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from ropewalk._errors import ContractViolation, WrongType
from ropewalk.state import Const, Counter, PMap, Store, paths, task


@dataclass(frozen=True, slots=True)
class Chip:
    number: int
    maker: str = "?"


@dataclass(frozen=True, slots=True)
class Animal:
    born: Const[int]
    name: str
    visits: Counter
    chip: Chip


@dataclass(frozen=True, slots=True)
class Dog(Animal):
    breed: str


@dataclass(frozen=True, slots=True)
class Swapped:
    """Has the names of `Animal`, and inherits nothing from it."""

    name: str
    visits: int
    chip: Chip
    born: int


@dataclass(frozen=True, slots=True)
class Home:
    pet: Animal
    herd: PMap[str, Animal]


P = paths(Home)
REX = Dog(2020, "Rex", 0, Chip(7), "spaniel")


def home(pet: Any = REX) -> Store[Home]:
    return Store(Home(pet, PMap(a=REX)))


def declared(store: Store[Home], work: Callable[[Any], Any], **contract: Any) -> Any:
    return store.run(task(**contract)(work))


def test_a_partial_contract_holds_for_what_a_subclass_inherits() -> None:
    store = home()
    assert declared(store, lambda d: d.pet.name, reads=[P.pet.name]) == "Rex"
    assert declared(store, lambda d: d.pet.chip.number, reads=[P.pet.chip.number]) == 7
    assert declared(store, lambda d: d.herd["a"].name, reads=[P.herd[...].name]) == "Rex"

    def rename(d: Any) -> None:
        d.pet.name += "!"
        d.pet.visits += 1
        d.herd["a"].name = "Max"

    declared(store, rename, writes=[P.pet.name, P.pet.visits, P.herd[...].name])
    state = store.snapshot()
    assert state.pet == Dog(2020, "Rex!", 1, Chip(7), "spaniel")
    assert state.herd["a"] == Dog(2020, "Max", 0, Chip(7), "spaniel")


@pytest.mark.parametrize(
    ("work", "place"),
    [
        (lambda d: d.pet.born, "pet.born"),
        (lambda d: d.pet.breed, "pet.breed"),
        (lambda d: d.pet.chip.maker, "pet.chip.maker"),
        (lambda d: setattr(d.pet, "name", "x"), "pet.name"),
        (lambda d: setattr(d.pet, "breed", "x"), "pet.breed"),
    ],
)
def test_a_partial_contract_holds_for_nothing_else(work: Callable[[Any], Any], place: str) -> None:
    store = home()
    with pytest.raises(ContractViolation) as caught:
        declared(store, work, reads=[P.pet.name, P.pet.chip.number])
    assert caught.value.path == place
    assert store.version == 0


def test_a_contract_for_the_whole_holds_for_the_own_fields_of_a_subclass() -> None:
    store = home()
    assert declared(store, lambda d: d.pet.breed, reads=[P.pet]) == "spaniel"
    declared(store, lambda d: setattr(d.pet, "breed", "pug"), writes=[P.pet])
    assert store.snapshot().pet.breed == "pug"  # type: ignore[attr-defined]


def test_zones_are_inherited_without_a_contract() -> None:
    store = home()

    def count(d: Any) -> None:
        d.pet.visits += 2

    with pytest.raises(ContractViolation, match=r"pet\.born, which is Const"):
        store.run(lambda d: setattr(d.pet, "born", 1))
    with store.transaction() as tx:
        count(tx.draft)
        # It counts, so that this is no conflict.
        store.run(count)
    assert store.snapshot().pet.visits == 4


def test_a_class_with_the_same_names_is_no_subclass() -> None:
    with pytest.raises(WrongType, match="pet is declared as Animal, and was given a Swapped"):
        home(Swapped("x", 1, Chip(1), 5))


class Pair(NamedTuple):
    left: int
    right: int


class Named(Pair):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Pairs:
    pair: Pair


def test_named_tuples_have_subclasses_too() -> None:
    p = paths(Pairs)
    store = Store(Pairs(Named(1, 2)))
    store.run(task(writes=[p.pair.left])(lambda d: setattr(d.pair, "left", d.pair.left + 4)))
    assert store.snapshot().pair == (5, 2)
    assert type(store.snapshot().pair) is Named
    with pytest.raises(ContractViolation):
        store.run(task(writes=[p.pair.left])(lambda d: d.pair.right))
