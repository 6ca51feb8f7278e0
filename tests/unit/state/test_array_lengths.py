"""Lengths of arrays: equal names are equal lengths in a record, wherever in it the arrays are."""
# ruff: noqa: F722, F821, UP037  # The dimensions of arrays are no names of types.

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from tests.polling import is_gone  # noqa: E402
from tests.unit.state._arrays import model, zoo  # noqa: E402

from ropewalk._errors import StateError  # noqa: E402
from ropewalk.state import (  # noqa: E402
    PMap,
    PVector,
    Shm,
    Store,
    _array_lengths as lengths,
    float64,
    int64,
)

EMPTY: PVector[Any] = PVector()


@dataclass(frozen=True, slots=True)
class Gaps:
    rows: PMap[str, Shm[int64, "k"] | None]
    line: PVector[Shm[int64, "j"] | None] = EMPTY


def test_items_that_are_none_say_nothing_of_lengths(tmp_path: Path) -> None:
    path = tmp_path / "a.wal"
    state = Gaps(PMap(a=None, b=np.arange(4)), PVector([None, np.arange(3)]))
    with Store(state, journal=path) as store:
        for change in (
            lambda o: o.rows.update(c=np.arange(5)),
            lambda o: o.rows.update(a=np.arange(5)),
            lambda o: o.line.append(np.arange(4)),
            lambda o: o.line.insert(0, np.arange(4)),
            lambda o: o.line.__setitem__(0, np.arange(4)),
        ):
            with pytest.raises(StateError, match="is wanted"):
                store.run(change)
        store.run(lambda o: o.rows.update(a=np.arange(4), b=None))
        store.run(lambda o: o.line.insert(0, np.arange(3)))
        # The last one that has a length goes, and with it the length.
        store.run(lambda o: o.rows.update(a=None, c=np.arange(9)))
        assert store.version == 3
    with Store(state, journal=path) as store:
        found = store.snapshot()
        assert {key: None if one is None else len(one) for key, one in found.rows.items()} == {
            "a": None,
            "b": None,
            "c": 9,
        }


@dataclass(frozen=True, slots=True)
class Collections:
    rows: PMap[str, Shm[int64, "k"]]
    columns: PVector[Shm[int64, "k _"]]
    nested: PMap[str, PMap[str, Shm[int64, "k"]]]


def test_names_are_one_length_across_collections() -> None:
    three, four = np.arange(3), np.arange(4)
    wide = np.zeros((4, 2), np.int64)
    for wrong in (
        Collections(PMap(a=three), PVector([wide]), PMap()),
        Collections(PMap(a=three), PVector(), PMap(x=PMap(b=four))),
        Collections(PMap(), PVector([wide]), PMap(x=PMap(b=three))),
        Collections(PMap(), PVector(), PMap(x=PMap(a=three), y=PMap(b=four))),
    ):
        with pytest.raises(StateError, match=r"k = \d is wanted"):
            Store(wrong)
    store = Store(Collections(PMap(a=four), PVector(), PMap()))
    store.run(lambda c: c.columns.append(wide))
    store.run(lambda c: c.nested.update(x={"a": four}, y={}))
    changes: list[tuple[Callable[[Any], Any], str]] = [
        (lambda c: c.columns.append(wide[:3]), r"columns\[1\]: .*k = 4"),
        (lambda c: c.nested["x"].update(b=three), r"nested\['x'\]\['b'\]: .*k = 4"),
        (lambda c: c.nested["y"].update(b=three), r"nested\['y'\]\['b'\]: .*k = 4"),
        (lambda c: c.nested.update(z={"b": three}), r"nested\['z'\]\['b'\]: .*k = 4"),
        (lambda c: c.rows.update(b=three), r"rows\['b'\]: .*k = 4"),
        (lambda c: (c.rows.clear(), c.columns.clear(), c.nested["y"].update(b=three)), r"\['y'\]\['b'\]"),
    ]
    for change, says in changes:
        with pytest.raises(StateError, match=says):
            store.run(change)

    def all_of_it(c: Any) -> None:
        c.rows = {"a": three}
        c.columns[0] = wide[:3]
        c.nested["x"]["a"] = three

    store.run(all_of_it)
    assert store.version == 3


def test_a_policy_is_one_record() -> None:
    policy: Any = {"weights": Shm[int64, "n"], "nets[...].bias": Shm[int64, "n"], "free": Shm[int64, "_"]}
    state = {"weights": np.arange(3), "nets": {"a": {"bias": np.arange(3)}}, "free": np.arange(7)}
    store = Store(state, policy=policy)
    with pytest.raises(StateError, match=r"\['nets'\]\['b'\]\['bias'\]: .*n = 3"):
        store.run(lambda root: root["nets"].update(b={"bias": np.arange(4)}))
    with pytest.raises(StateError, match="n = "):
        store.run(lambda root: root.update(weights=np.arange(4)))
    store.run(lambda root: root["nets"].update(b={"bias": np.arange(3)}, c={}, d=5))
    store.run(lambda root: root.update(free=np.arange(2)))
    with pytest.raises(StateError, match="n = "):
        Store({**state, "weights": np.arange(2)}, policy=policy)


def test_a_key_that_a_policy_names_is_no_item() -> None:
    policy: Any = {"rows.head": Shm[int64, "n"], "rows[...]": Shm[float64, "m"]}
    store = Store({"rows": {"head": np.arange(2), "x": np.zeros(3)}}, policy=policy)
    store.run(lambda root: root["rows"].update(head=np.arange(5)))
    with pytest.raises(StateError, match="m = 3"):
        store.run(lambda root: root["rows"].update(y=np.zeros(5)))


def test_a_record_of_another_class_is_checked_as_a_new_one() -> None:
    @dataclass(frozen=True, slots=True)
    class Base:
        one: Shm[int64, "n"]
        two: Shm[int64, "n"]

    @dataclass(frozen=True, slots=True)
    class Derived(Base):
        more: int = 0

    @dataclass(frozen=True, slots=True)
    class Top:
        base: Base

    store = Store(Top(Base(np.arange(3), np.arange(3))))
    store.run(lambda t: setattr(t, "base", Derived(np.arange(4), np.arange(4))))
    with pytest.raises(StateError, match=r"base\.two: .*n = 5"):
        store.run(lambda t: setattr(t, "base", Base(np.arange(5), np.arange(4))))


def test_a_commit_looks_at_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Any] = []
    plainly = lengths._bind

    def bind(declared: Any, array: Any, *rest: Any) -> None:
        looks.append(array)
        plainly(declared, array, *rest)

    items = lengths._items

    def counted(*given: Any) -> Any:
        for one in items(*given):
            looks.append(one)
            yield one

    many: Any = {str(number): None for number in range(2000)}
    every = {str(number): np.arange(4) for number in range(2000)}
    for state in (Gaps(PMap(many, z=np.arange(4))), Gaps(PMap(many)), Gaps(PMap(every))):
        store = Store(state)
        # The first commit may have to search.
        store.run(lambda o: o.rows.update(first=np.arange(4)))
        with monkeypatch.context() as patch:
            patch.setattr(lengths, "_bind", bind)
            patch.setattr(lengths, "_items", counted)
            for number in range(20):
                looks.clear()
                store.run(lambda o, number=number: o.rows.update({f"new{number}": np.arange(4)}))
                assert 0 < len(looks) <= 2 * lengths._FEW
            looks.clear()
            store.run(lambda o: o.rows["first"].fill(0))
            assert not looks, "an array of the same length needs no look"
        with pytest.raises(StateError, match="k = 4"):
            store.run(lambda o: o.rows.update(last=np.arange(5)))
        store.run(lambda o: o.rows.update(last=np.arange(4)))


def test_what_was_found_is_of_the_state_before() -> None:
    many: Any = {str(number): None for number in range(200)}
    store = Store(Gaps(PMap(many)))
    store.run(lambda o: o.rows.update(a=np.arange(4)))
    # A commit that is refused, an undo, and one that takes all lengths away.
    with pytest.raises(StateError):
        store.run(lambda o: o.rows.update(b=np.arange(5)))
    store.undo()
    store.run(lambda o: o.rows.update(b=np.arange(5)))
    with pytest.raises(StateError, match="k = 5"):
        store.run(lambda o: o.rows.update(c=np.arange(4)))
    store.run(lambda o: o.rows.update(b=None))
    store.run(lambda o: o.rows.update(c=np.arange(6)))
    store.undo()
    store.undo()
    with pytest.raises(StateError, match="k = 5"):
        store.run(lambda o: o.rows.update(c=np.arange(6)))


def test_records_below_have_lengths_of_their_own() -> None:
    store = Store(zoo())
    store.run(lambda z: z.models.update(c=model(7), d=model(8)))
    with pytest.raises(StateError, match=r"models\['c'\]\.bias: .*n = 7"):
        store.run(lambda z: setattr(z.models["c"], "bias", np.zeros(8, np.float32)))


def test_names_of_lengths_are_one_length_in_a_record() -> None:
    with pytest.raises(StateError, match=r"model\.bias: .*n = 2 is wanted"):
        Store(replace(zoo(), model=replace(model(2), bias=np.zeros(3, np.float32))))
    store = Store(zoo())

    def grow(z: Any, both: bool) -> None:
        z.model.weights = np.zeros((9, 256), np.float32)
        if both:
            z.model.bias = np.zeros(9, np.float32)

    with pytest.raises(StateError, match=r"model\.weights: .*n = 8 is wanted: model\.bias has that"):
        store.run(grow, False)
    store.run(grow, True)
    # Other records have other lengths under the same name.
    assert sorted(len(one.bias) for one in store.snapshot().models.values()) == [2, 3]
    with pytest.raises(StateError, match=r"rows\['z'\]: .*k = 4 is wanted"):
        store.run(lambda z: z.rows.update(z=np.arange(5)))
    store.run(lambda z: z.rows.update(z=np.arange(4)))
    # All of them may change at once.
    store.run(lambda z: setattr(z, "rows", {"x": np.arange(2), "y": np.arange(2)}))
    with pytest.raises(StateError, match=r"rows\['x'\]|rows\['y'\]"):
        store.run(lambda z: z.rows.update(x=np.arange(3)))
    with pytest.raises(StateError, match=r"models\['c'\]\.bias"):
        store.run(lambda z: z.models.update(c=replace(model(2), bias=np.zeros(1, np.float32))))
    with pytest.raises(StateError, match=r"models\['a'\]\.bias"):
        store.run(lambda z: setattr(z.models["a"], "bias", np.zeros(1, np.float32)))


@dataclass(frozen=True, slots=True)
class Table:
    head: Shm[int64, "n"]
    rows: PVector[Shm[int64, "n"]]
    square: Shm[int64, "m m"]


def test_rows_have_the_length_of_the_head() -> None:
    table = Table(np.arange(3), PVector([np.arange(3)] * 2), np.zeros((2, 2), np.int64))
    store = Store(table)
    with pytest.raises(StateError, match=r"rows\[2\]: .*n = 3 is wanted"):
        store.run(lambda t: t.rows.append(np.arange(4)))
    with pytest.raises(StateError, match=r"head: .*n = 3 is wanted: rows\[0\] has that"):
        store.run(lambda t: setattr(t, "head", np.arange(4)))
    with pytest.raises(StateError, match=r"square: .*m = 2 is wanted"):
        store.run(lambda t: setattr(t, "square", np.zeros((2, 3), np.int64)))

    def all_of_it(t: Any) -> None:
        t.head = np.arange(4)
        t.rows = [np.arange(4)] * 3

    store.run(all_of_it)
    store.run(lambda t: t.rows.append(np.arange(4)))
    assert [len(row) for row in store.snapshot().rows] == [4] * 4


def test_what_is_known_of_lengths_keeps_no_old_array() -> None:
    rows: dict[str, Any] = {f"none {number}": None for number in range(500)}
    with Store(Gaps(PMap(rows | {"a": np.zeros(4, np.int64)})), history=1) as store:
        # A search past all that have no length, whose end is kept.
        store.run(lambda o: o.rows.update(b=np.zeros(4, np.int64)))
        first = weakref.ref(store.snapshot().rows["b"])
        for value in range(1, 4):
            store.run(lambda o, value=value: o.rows["b"].fill(value))
        assert is_gone(first)
        with pytest.raises(StateError, match="is wanted"):
            store.run(lambda o: o.rows.update(c=np.zeros(5, np.int64)))
