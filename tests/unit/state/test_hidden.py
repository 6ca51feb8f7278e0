"""What transactions make and the garbage collector does not know; and what it must know."""

from __future__ import annotations

import gc
import subprocess
import sys
import sysconfig
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from tests.polling import is_gone

from ropewalk.state import PMap, PVector, Store, leaf

hides = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="a free-threaded build hides nothing"
)


@dataclass(frozen=True, slots=True)
class Account:
    owner: str
    value: Any


@dataclass(frozen=True, slots=True)
class Pair:
    first: Any
    second: Any


@dataclass(frozen=True)
class Loose:
    """It has a dict, in which anything may be put."""

    value: Any


class Box:
    """A leaf that leads anywhere."""

    held: Any = None


leaf(Box)


def filled(count: int) -> Store[Any]:
    store = Store(
        Pair(
            PMap({n: Account("x" * n, 0) for n in range(count)}),
            PVector(Account("y" * n, 0) for n in range(count)),
        )
    )

    def change(d: Any) -> None:
        for n in range(count):
            d.first[n].value += 1
            d.second[n].value += 1

    store.run(change)
    return store


@hides
@pytest.mark.parametrize("count", [1, 5, 33, 1100])
def test_a_state_of_plain_values_is_hidden(count: int) -> None:
    state = filled(count).snapshot()
    assert [one.value for one in state.first.values()] == [one.value for one in state.second] == [1] * count
    parts = [state, state.first, state.second, *state.first.values(), *state.second]
    assert not [part for part in parts if gc.is_tracked(part)]
    # The nodes, too: the collector would give them.
    assert not [found for found in gc.get_referrers(state.first[0]) if type(found).__name__ == "_Node"]


@hides
def test_what_is_hidden_can_be_changed_and_dropped() -> None:
    store = filled(100)
    old = store.snapshot()

    def change(d: Any) -> None:
        for n in range(0, 100, 3):
            del d.first[n]
        d.first[200] = Account("new", 1)
        d.second.pop()
        d.second[7].value = 8

    store.run(change)
    state = store.snapshot()
    assert (len(state.first), len(state.second), state.second[7].value) == (67, 99, 8)
    assert (len(old.first), len(old.second), old.second[7].value) == (100, 100, 1)
    del store, state
    gc.collect()
    assert [one.owner for one in old.second] == ["y" * n for n in range(100)]


@hides
def test_what_leads_to_a_known_object_is_known() -> None:
    box = Box()
    for value in (box, (box,), [box], {"a": box}, Pair(1, box), frozenset([box]), Loose(1)):
        store = filled(40)

        def change(d: Any, value: object = value) -> None:
            d.first[7].value = value
            d.second[7].value = value

        store.run(change)
        state = store.snapshot()
        for part in (state, state.first, state.second, state.first[7], state.second[7]):
            assert gc.is_tracked(part), (value, part)
        assert not gc.is_tracked(state.first[8])


def through(place: Callable[[Any, Box], None]) -> weakref.ref[Box]:
    """A box in a state that the box leads to; the state is of what transactions have made."""
    store, box = filled(40), Box()
    store.run(place, box)
    box.held = store
    return weakref.ref(box)


PLACES: list[Callable[[Any, Box], None]] = [
    lambda d, box: setattr(d.first[7], "value", box),
    lambda d, box: setattr(d.second[7], "value", (box, 1)),
    lambda d, box: setattr(d.first[7], "owner", {"a": [1, box]}),
    lambda d, box: d.first.update({f"k{n}": Account("", box) for n in range(200)}),
    lambda d, box: d.second.extend([box] * 200),
    lambda d, box: setattr(d, "first", Pair(1, Pair(2, box))),
]


@pytest.mark.parametrize("place", PLACES)
def test_a_cycle_through_a_state_is_collected(place: Callable[[Any, Box], None]) -> None:
    gone = through(place)
    gc.collect()
    assert is_gone(gone)


def test_a_cycle_through_the_class_of_a_record_is_collected() -> None:
    def made() -> weakref.ref[type]:
        @dataclass(frozen=True, slots=True)
        class Local:
            amount: int
            known: ClassVar[Any] = None

        store = Store(Pair(Local(1), PMap({n: Local(n) for n in range(50)})))

        def change(d: Any) -> None:
            d.first.amount = 2
            for n in range(50):
                d.second[n].amount += 1

        store.run(change)
        # Each of the records that were made leads to the class, and the class to each.
        Local.known = store
        return weakref.ref(Local)

    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("a class may be kept for ever once a second thread ran")
    gone = made()
    gc.collect()
    assert is_gone(gone)


DEEP = """
from dataclasses import dataclass
from typing import Any
from ropewalk.state import PMap, Store

@dataclass(frozen=True, slots=True)
class Link:
    n: int
    below: Any

store = Store(PMap({"map": None, "top": None}), history=1)

def begin(d):
    d["map"] = PMap({"a": None})
    d["top"] = Link(0, None)

def wrap(d, below):
    d["map"]["a"] = below
    d["top"].below = d["map"]

top = None
for _ in range(20_000):
    store.run(begin)
    store.run(wrap, top)
    top = store.snapshot()["top"]
import gc
print(gc.is_tracked(top), gc.is_tracked(top.below))
del top, store
print("dropped")
"""


def test_a_deep_nest_of_hidden_maps_is_dropped() -> None:
    out = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, check=False)
    known = str(bool(sysconfig.get_config_var("Py_GIL_DISABLED")))
    assert (out.returncode, out.stdout.split()) == (0, [known, known, "dropped"]), out.stderr[-2000:]
