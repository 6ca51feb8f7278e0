"""`PMap`: cycles, deep nests, and balanced references."""

from __future__ import annotations

import gc
import pickle
import random
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tests.polling import is_gone
from tests.unit.state._keys import Hashed

from ropewalk._load import state
from ropewalk.state import PMap

# --- memory -----------------------------------------------------------------------------------------------------------


class Link:
    held: Any = None


@pytest.mark.parametrize(
    "through",
    [
        lambda link: PMap(a=link),
        lambda link: PMap({n: link if n == 70 else n for n in range(100)}),
        lambda link: PMap({Hashed(link): 1, Hashed(2): 2}),
        lambda link: PMap(a=PMap(b=PMap(c=link))),
        lambda link: PMap(a=link).keys(),
        lambda link: PMap(a=link).values(),
        lambda link: iter(PMap(a=link).items()),
        lambda link: PMap(a=link).mutate(),
        lambda link: in_builder(link),
    ],
    ids=["map", "deep", "key", "nested", "keys", "values", "iterator", "builder", "edited"],
)
def test_a_cycle_is_collected(through: Callable[[Link], object]) -> None:
    link = Link()
    link.held = through(link)
    gone = weakref.ref(link)
    gc.collect()
    del link
    assert gone() is not None, "there is no cycle: the test would pass with anything"
    gc.collect()
    assert gone() is None


def in_builder(link: Link) -> object:
    builder = PMap({n: n for n in range(100)}).mutate()
    builder[50] = link
    return builder


def test_the_collector_knows_only_what_may_be_in_a_cycle() -> None:
    atoms = PMap({n: str(n) for n in range(1000)})
    assert not gc.is_tracked(atoms)
    assert not gc.is_tracked(atoms.set(7, "new").delete(8).update({9: 1.5, "x": None}))
    assert not gc.is_tracked(PMap())
    for value in ([], {}, Link(), PMap(), lambda: 1):
        assert gc.is_tracked(atoms.set(700, value))
        builder = atoms.mutate()
        builder[1] = "first of its own node"
        builder[700] = value
        assert gc.is_tracked(builder.finish())
    assert gc.is_tracked(PMap({Link(): 1}))


def test_a_deep_nest_is_dropped() -> None:
    link = Link()
    gone = weakref.ref(link)
    it: Any = link
    del link
    for n in range(100_000):
        it = PMap(a=it) if n % 3 else PMap({"a": 1, n: it, "b": 2})
    del it
    assert is_gone(gone)


def test_the_nest_is_dropped_by_a_finalizer_in_another() -> None:
    class Holds:
        def __init__(self, held: object) -> None:
            self.held = held

    it: Any = None
    for _ in range(30_000):
        it = PMap(a=it)
    for _ in range(50):
        it = PMap(a=[Holds(it)])
    gone = weakref.ref(it["a"][0])
    del it
    assert is_gone(gone)


def churn(source: random.Random, values: list[object], keys: list[Any], rounds: int) -> None:
    """Uses all that takes or gives references."""
    it: PMap[Any, Any] = PMap()
    builder = it.mutate()
    for n in range(rounds):
        key, value = source.choice(keys), source.choice(values)
        what = source.randrange(12)
        if what < 3:
            it = it.set(key, value)
        elif what == 3:
            it = it.discard(key)
        elif what < 7:
            builder[key] = value
        elif what == 7:
            builder.discard(key)
        elif what == 8:
            it.get(key)
            builder.get(key)
            assert (key in it) == (it.get(key) is not None)
        elif n % 50 == 0:
            newer = builder.finish()
            state.diff_maps(it, newer)
            it, builder = newer, it.mutate()
            list(it.items())
            assert it == PMap(dict(it))
            pickle.dumps(len(it.keys() & builder.finish().keys()))


@pytest.mark.parametrize(
    ("spread", "count", "rounds"), [(1, 20, 200_000), (3, 40, 200_000), (1 << 40, 300, 1_000_000)]
)
def test_references_are_balanced(spread: int, count: int, rounds: int) -> None:
    values = [object() for _ in range(5)]
    keys: list[Any] = [Hashed(n, (n * 2654435761) % spread) for n in range(count)]
    keys += [f"text {n}" for n in range(count)]
    source = random.Random(spread)
    churn(source, values, keys, 1000)
    gc.collect()
    before = [sys.getrefcount(one) for one in values + keys]
    churn(source, values, keys, rounds)
    gc.collect()
    assert [sys.getrefcount(one) for one in values + keys] == before
