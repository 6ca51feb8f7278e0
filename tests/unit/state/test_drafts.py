"""Drafts behave as the plain mutable objects that they stand for."""

from __future__ import annotations

import array
import collections
import operator
import threading
from collections.abc import Callable, MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from ropewalk._errors import NotFrozen
from ropewalk.state import PMap, PVector, Store


@dataclass(frozen=True, slots=True)
class Account:
    owner: str
    balance: int
    note: Any = None

    @property
    def twice(self) -> int:
        return 2 * self.balance

    def is_rich(self, limit: int = 100) -> bool:
        return self.balance >= limit

    def pay(self, amount: int) -> None:
        self.balance -= amount  # type: ignore[misc]

    @staticmethod
    def unit() -> str:
        return "EUR"

    @classmethod
    def name(cls) -> str:
        return cls.__name__


class Point(NamedTuple):
    x: int
    y: int = 0


def changed(state: Any, function: Callable[[Any], Any]) -> Any:
    """The state that the function makes of a store's state."""
    store = Store(state)
    store.run(function)
    return store.snapshot()


def plain(value: Any) -> Any:
    """A value with dicts and lists in the place of maps and vectors."""
    if isinstance(value, PMap):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, PVector) else value


def delete(at: Any, key: Any) -> None:
    del at[key]


# --- collections ------------------------------------------------------------------------------------------------------

MAP_CALLS: list[Callable[[Any], Any]] = [
    lambda d: d["a"],
    lambda d: d["none"],
    lambda d: d.get("a"),
    lambda d: (d.get("none"), d.get("none", 7)),
    lambda d: ("a" in d, "none" in d, 3 in d),
    lambda d: (len(d), sorted(d), sorted(d.keys()), sorted(d.values()), sorted(d.items())),
    lambda d: operator.setitem(d, "a", 9),
    lambda d: operator.setitem(d, "new", 9),
    lambda d: delete(d, "a"),
    lambda d: delete(d, "none"),
    lambda d: (d.pop("a"), "a" in d),
    lambda d: d.pop("none"),
    lambda d: d.pop("none", 5),
    lambda d: (d.setdefault("a", 5), d.setdefault("new", 6), d.setdefault("nothing")),
    lambda d: d.update({"a": 4, "new": 5}),
    lambda d: d.update([("a", 4)], new=6),
    lambda d: operator.ior(d, {"a": 8, "new": 9}) is d,
    lambda d: (d.clear(), len(d), list(d)),
    lambda d: [d.__setitem__(key, value + 1) for key, value in list(d.items())],
    lambda d: (delete(d, "a"), operator.setitem(d, "a", 1), d["a"], len(d)),
    lambda d: (operator.setitem(d, "new", 1), delete(d, "new"), "new" in d, len(d)),
    lambda d: (delete(d, "a"), delete(d, "a")),
    lambda d: [d.__setitem__(number, number) for number in range(40)] and [d[number] for number in range(40)],
    lambda d: bool(d),
]


@pytest.mark.parametrize("call", MAP_CALLS)
def test_a_map_is_a_mutable_mapping(call: Callable[[Any], Any]) -> None:
    both({"a": 1, "b": 2, "c": 3}, call)


def both(start: Any, call: Callable[[Any], Any]) -> None:
    """Does the same with a plain collection and a draft, and compares results, exceptions and what is left."""
    model = type(start)(start)

    def done(at: Any) -> Any:
        try:
            return call(at)
        except Exception as error:
            return type(error)

    wanted = done(model)
    store = Store({"at": start})
    assert plain(store.run(lambda root: done(root["at"]))) == wanted
    assert plain(store.snapshot()["at"]) == model


VECTOR_CALLS: list[Callable[[Any], Any]] = [
    lambda v: (v[0], v[-1], v[2], list(v), len(v), bool(v)),
    lambda v: v[5],
    lambda v: v[-6],
    lambda v: (v[1:3], v[::-1], v[-2:], v[10:], v[::2]),
    lambda v: operator.setitem(v, 0, 9),
    lambda v: operator.setitem(v, -1, 9),
    lambda v: operator.setitem(v, 5, 9),
    lambda v: delete(v, 1),
    lambda v: delete(v, -1),
    lambda v: delete(v, 5),
    lambda v: v.append(7),
    lambda v: (v.append(7), v[-1], v[5], len(v), v.pop(), v.pop(), v.append(3), v[-1]),
    lambda v: v.extend([7, 8]),
    lambda v: v.extend(v),
    lambda v: v.extend(number for number in (7, 8)),
    lambda v: v.extend(3),
    lambda v: (operator.iadd(v, (7, 8)) is v, list(v)),
    lambda v: (v.pop(), v.pop(0), v.pop(-2), list(v)),
    lambda v: [v.pop() for _ in range(6)],
    lambda v: (v.insert(0, 6), v.insert(-1, 7), v.insert(99, 8), v.insert(-99, 9), list(v)),
    lambda v: (v.index(2), v.index(2, 3), v.count(2), v.count(99), 2 in v, 99 in v),
    lambda v: v.index(99),
    lambda v: v.remove(2),
    lambda v: v.remove(99),
    lambda v: (v.reverse(), list(v), list(reversed(v))),
    lambda v: (v.clear(), len(v), bool(v), v.append(1)),
    lambda v: (v.pop(), operator.setitem(v, -1, 5), v.append(8), list(v)),
    lambda v: (operator.setitem(v, 3, 8), v.pop(), v.insert(1, 4), operator.setitem(v, 1, 5), list(v)),
    lambda v: [operator.setitem(v, place, 2 * item) for place, item in enumerate(v)],
    lambda v: v["a"],
    lambda v: v[1.0],
    lambda v: v.pop("a"),
]


@pytest.mark.parametrize("call", VECTOR_CALLS)
def test_a_vector_is_a_mutable_sequence(call: Callable[[Any], Any]) -> None:
    both([3, 2, 1, 2, 5], call)


def test_a_slice_of_a_vector_is_refused_with_what_to_do() -> None:
    with pytest.raises(TypeError, match="assign a whole list"):
        Store({"v": [1, 2]}).run(lambda d: operator.setitem(d["v"], slice(0, 1), [5]))


def test_drafts_are_what_they_stand_for_to_isinstance_and_match() -> None:
    found: list[Any] = []

    def look(d: Any) -> None:
        assert isinstance(d, MutableMapping)
        assert isinstance(d["v"], MutableSequence)
        assert isinstance(d["one"], Account)
        match d["one"]:
            case Account(owner=owner, balance=balance):
                found.append((owner, balance))
        match d["one"]:
            case Account(owner, balance):
                found.append((owner, balance))
        match d["v"]:
            case [first, *rest]:
                found.append((first, rest))
        match d:
            case {"one": Account(), "p": Point(x=3)}:
                found.append("all")

    Store({"one": Account("ann", 5), "v": [1, 2], "p": Point(3)}).run(look)
    assert found == [("ann", 5), ("ann", 5), (1, [2]), "all"]


def test_equality_is_that_of_the_values() -> None:
    def look(d: Any) -> None:
        assert d["one"] == Account("ann", 5)
        assert d["one"] != Account("ann", 6)
        d["one"].balance += 1
        assert d["one"] == Account("ann", 6) != d["two"]
        d["two"].balance += 1
        assert d["one"] == d["two"]
        assert d["v"] == PVector([1])
        assert d["v"] != PVector([2])
        assert d["m"] == PMap({"a": 1})
        assert d["m"] != PMap()
        for draft in (d, d["one"], d["v"], d["m"]):
            with pytest.raises(TypeError, match="unhashable"):
                hash(draft)
            assert draft == draft
            assert draft is not None

    Store({"one": Account("ann", 5), "two": Account("ann", 5), "v": [1], "m": {"a": 1}}).run(look)


def test_repr_shows_the_value_and_reads_nothing() -> None:
    store = Store({"one": Account("ann", 5), "v": [1]})
    with store.transaction() as tx:
        tx.draft["v"].append(2)
        assert repr(tx.draft["v"]) == "<draft of PVector([1, 2])>"
        assert "balance=5" in repr(tx.draft["one"])
        kept = tx.draft["v"]
        store.run(lambda d: setattr(d["one"], "balance", 1))
    assert store.snapshot()["one"].balance == 1
    assert repr(kept) == "<draft of a transaction that has ended>"


# --- values -----------------------------------------------------------------------------------------------------------


def test_new_values_become_values_that_never_change() -> None:
    given = {"list": [1, {"set": {1, 2}}], "bytes": bytearray(b"ab"), "tuple": ([1], {"a": [2]})}

    def put(d: Any) -> None:
        d["x"] = given
        given["list"].append(99)  # type: ignore[attr-defined]
        assert isinstance(d["x"]["list"], MutableSequence)
        d["x"]["list"][1]["more"] = {"deep": [5]}
        d["x"]["list"][1]["more"]["deep"].append(6)

    found = changed({}, put)["x"]
    assert type(found) is PMap
    assert type(found["list"]) is PVector
    assert found["list"][1]["set"] == frozenset({1, 2})
    assert type(found["list"][1]["set"]) is frozenset
    assert found["bytes"] == b"ab"
    assert type(found["bytes"]) is bytes
    assert found["tuple"] == (PVector([1]), PMap({"a": PVector([2])}))
    assert plain(found["list"][1]["more"]) == {"deep": [5, 6]}
    assert len(found["list"]) == 2


def test_what_a_default_or_an_append_has_put_can_be_changed_in_place() -> None:
    def work(d: Any) -> None:
        d.setdefault("l", []).append(3)
        d.setdefault("l", []).append(4)
        d["v"] = []
        d["v"].append([])
        d["v"][-1].append(1)
        d["v"].insert(0, {"a": []})
        d["v"][0]["a"].append(2)

    assert plain(changed({}, work)) == {"l": [3, 4], "v": [{"a": [2]}, [1]]}


def test_an_assigned_draft_is_a_value_from_then_on() -> None:
    def work(d: Any) -> None:
        d["b"] = d["a"]
        d["a"]["n"] = 1
        d["b"]["n"] = 2
        d["c"] = [d["a"], (d["b"],)]
        d["a"]["n"] = 3
        d["a"]["self"] = d["a"]
        d["v"].extend(d["v"])

    found = plain(changed({"a": {"n": 0}, "v": [1]}, work))
    assert found["a"] == {"n": 3, "self": {"n": 3}}
    assert found["b"] == {"n": 2}
    assert plain(found["c"][0]) == {"n": 1}
    assert plain(found["c"][1][0]) == {"n": 2}
    assert found["v"] == [1, 1]


def test_a_draft_that_was_replaced_is_apart() -> None:
    def work(d: Any) -> None:
        old = d["a"]
        d["a"] = {"n": 10}
        old["n"] = 99
        d["kept"] = old
        popped = d.pop("b")
        popped["n"] += 1
        d["b2"] = popped

    assert plain(changed({"a": {"n": 0}, "b": {"n": 1}}, work)) == {
        "a": {"n": 10},
        "kept": {"n": 99},
        "b2": {"n": 2},
    }


@pytest.mark.parametrize(
    ("value", "use"),
    [
        (collections.deque(), "PVector"),
        (collections.Counter("a"), "PMap"),
        (array.array("i"), "tuple"),
        (memoryview(b"a"), "bytes"),
        (collections.OrderedDict(), "PMap"),
        (object(), "frozen dataclass"),
        (threading.Lock(), "frozen dataclass"),
    ],
)
def test_mutable_values_are_refused_with_what_to_use(value: Any, use: str) -> None:
    store = Store({"old": 1})
    for put in (
        lambda d: operator.setitem(d, "x", value),
        lambda d: operator.setitem(d, "x", [{"deep": (value,)}]),
        lambda d: operator.setitem(d, "x", Account("ann", 1, value)),
    ):
        with pytest.raises(NotFrozen, match=use) as caught:
            store.run(put)
        assert "annotated" not in str(caught.value)
    assert store.snapshot() == PMap({"old": 1})
    assert store.version == 0


def test_a_class_that_is_not_frozen_is_refused() -> None:
    @dataclass
    class Open:
        x: int

    with pytest.raises(NotFrozen, match="frozen=True"):
        Store({}).run(lambda d: operator.setitem(d, "x", Open(1)))


# --- records ----------------------------------------------------------------------------------------------------------


def test_methods_and_properties_work_on_the_draft() -> None:
    def work(d: Any) -> Any:
        one = d["one"]
        one.balance += 1
        one.pay(2)
        return one.twice, one.is_rich(), one.is_rich(limit=4), one.unit(), one.name(), one.__class__

    store = Store({"one": Account("ann", 5)})
    assert store.run(work) == (8, False, True, "EUR", "Account", Account)
    assert store.snapshot()["one"] == Account("ann", 4)


def test_wrong_fields_are_refused() -> None:
    def work(d: Any) -> None:
        with pytest.raises(AttributeError, match="no field 'blance'"):
            d["one"].blance = 1
        with pytest.raises(AttributeError):
            _ = d["one"].blance
        with pytest.raises(TypeError, match="cannot be deleted"):
            del d["one"].balance

    store = Store({"one": Account("ann", 5)})
    store.run(work)
    assert store.version == 0


def test_a_record_is_replaced_by_one_of_another_class() -> None:
    def work(d: Any) -> None:
        d["one"].balance = 7
        d["one"] = Point(1)
        d["one"].x += 4
        d["one"].y = [d["one"].x]

    assert changed({"one": Account("ann", 5)}, work)["one"] == Point(5, PVector([5]))  # type: ignore[arg-type]


def test_an_invalid_value_is_not_stored_elsewhere() -> None:
    @dataclass(frozen=True, slots=True)
    class Positive:
        n: int

        def __post_init__(self) -> None:
            if self.n < 0:
                raise ValueError("negative")

    def work(d: Any) -> None:
        d["a"].n = -1
        assert d["a"] == d["a"]
        assert "-1" in repr(d["a"])
        with pytest.raises(ValueError, match="negative"):
            d["copy"] = d["a"]
        with pytest.raises(ValueError, match="negative"):
            d["copy"] = [{"deep": d["a"]}]
        d["a"].n = 5
        d["copy"] = d["a"]

    store = Store({"a": Positive(1)})
    store.run(work)
    assert store.snapshot()["copy"].n == 5
    with pytest.raises(ValueError, match="negative"):
        store.run(lambda d: setattr(d["a"], "n", -2))
    assert store.version == 1
