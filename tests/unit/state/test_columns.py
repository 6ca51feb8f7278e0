"""Large collections of records in a journal: field by field, of classes that may have changed since."""

from __future__ import annotations

import copy
import gc
import weakref
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from ropewalk._load import state as native
from ropewalk.state import PMap, PVector, StateError
from ropewalk.state._codec import dumps, loads


@dataclass(frozen=True, slots=True)
class Place:
    street: str
    number: int


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    place: Place
    age: int | None


@dataclass(frozen=True)
class Loose:
    name: str


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    number: int


@dataclass(frozen=True)
class Checked:
    number: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "double", self.number * 2)


def person(number: int) -> Person:
    return Person(f"name {number}", Place("street", number), number if number % 3 else None)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 1000])
@pytest.mark.parametrize("make", [person, Loose, Checked, lambda _: Nothing(), str, float])
def test_what_is_written_is_read(make: Any, count: int) -> None:
    vector = PVector([make(number) for number in range(count)])
    found = loads(dumps(vector))
    assert type(found) is PVector
    assert list(found) == list(vector)
    assert [vars(one) for one in found if hasattr(one, "__dict__")] == [
        vars(one) for one in vector if hasattr(one, "__dict__")
    ]
    by_key = PMap({("key", number): make(number) for number in range(count)})
    found = loads(dumps(by_key))
    assert type(found) is PMap
    assert found == by_key


def test_records_of_one_class_are_written_field_by_field() -> None:
    vector = PVector([person(number) for number in range(1000)])
    assert len(dumps(vector)) < 0.7 * len(dumps(PVector([*vector, None])))


def test_records_of_several_classes() -> None:
    vector = PVector([*(person(number) for number in range(50)), Loose("x"), None])
    assert loads(dumps(vector)) == vector


def test_what_is_told_apart_by_its_identity_stays_one() -> None:
    token = Token(1)
    found = loads(dumps(PVector([token] * 20)))
    assert len({id(one) for one in found}) == 1


def test_collections_in_collections() -> None:
    inner = PMap({number: person(number) for number in range(30)})
    outer = PMap(dict.fromkeys(range(20), inner))
    found = loads(dumps(outer))
    assert found == outer
    assert len({id(one) for one in found.values()}) == 1


def test_fields_that_came_and_went(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, slots=True)
    class Before:
        name: str
        gone: int
        kept: int

    @dataclass(frozen=True, slots=True)
    class After:
        kept: int
        title: str
        new: tuple[int, ...] = field(default=(1,))
        __ropewalk_renamed__: ClassVar[dict[str, str]] = {"name": "title"}

    for kind in (Before, After):
        kind.__qualname__ = "Moved"
    monkeypatch.setitem(globals(), "Moved", Before)
    data = dumps(PMap({number: Before(f"n{number}", 0, number) for number in range(40)}))
    monkeypatch.setitem(globals(), "Moved", After)
    assert loads(data) == PMap({number: After(number, f"n{number}") for number in range(40)})


def test_a_class_that_checks_since(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Before:
        number: int

    @dataclass(frozen=True)
    class After:
        number: int

        def __post_init__(self) -> None:
            raise AssertionError("what was committed is not checked again")

    for kind in (Before, After):
        kind.__qualname__ = "Moved"
    monkeypatch.setitem(globals(), "Moved", Before)
    data = dumps(PVector(map(Before, range(40))))
    monkeypatch.setitem(globals(), "Moved", After)
    assert [one.number for one in loads(data)] == list(range(40))


def test_wrong_columns() -> None:
    with pytest.raises(TypeError, match="takes a list"):
        native.columns((1, 2))  # type: ignore[arg-type]
    assert native.columns([]) is None
    assert native.columns([1, 2]) is None
    assert native.columns([Checked(1)]) is None
    wrong: list[tuple[Any, ...]] = [
        (Loose, [["a"]], 2),
        (Loose, [["a"]], -1),
        (Loose, [["a"]], 1 << 80),
        (Loose, [], 0),
        (Loose, [["a"], ["b"]], 1),
        (Loose, [("a",)], 1),
        (Loose, (["a"],), 1),
        (Checked, [[1]], 1),
        (int, [[1]], 1),
        (1, [[1]], 1),
        (Loose, [["a"]]),
    ]
    for arguments in wrong:
        with pytest.raises(TypeError, match="rows takes"):
            native.rows(*arguments)
    assert native.rows(Loose, [["a", "b"]], 2) == [Loose("a"), Loose("b")]
    assert native.rows(Nothing, [], 3) == [Nothing()] * 3


def test_a_journal_with_too_few_values_is_refused() -> None:
    data = dumps(PVector([Loose("a")] * 16))
    broken = data.replace(b"K\x10", b"K\x11")
    assert broken != data
    with pytest.raises(StateError, match="cannot be read"):
        loads(broken)


def test_the_records_are_collected() -> None:
    @dataclass(frozen=True, slots=True, weakref_slot=True)
    class Holder:
        held: list[Any]

    held: list[Any] = []
    (made,) = native.rows(Holder, [[held]], 1)
    held.append(made)
    gone = weakref.ref(made)
    assert copy.copy(made) is not made
    del made, held
    gc.collect()
    assert gone() is None
