"""`PVector`: cycles, deep nests, and balanced references."""

from __future__ import annotations

import gc
import random
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tests.polling import is_gone

from ropewalk._load import state
from ropewalk.state import PMap, PVector

# --- memory -----------------------------------------------------------------------------------------------------------


class Link:
    held: Any = None


def in_builder(link: Link, index: int) -> object:
    builder = PVector(range(100)).mutate()
    builder.append(0)
    builder[index] = link
    return builder


@pytest.mark.parametrize(
    "through",
    [
        lambda link: PVector([link]),
        lambda link: PVector([*range(50), link, *range(2000)]),
        lambda link: PVector(range(50)).append(link),
        lambda link: PVector(range(50)).set(7, link).set(8, 1),
        lambda link: PVector([PVector([PVector([link])])]),
        lambda link: iter(PVector([link])),
        lambda link: PVector([link]).mutate(),
        lambda link: in_builder(link, 0),
        lambda link: in_builder(link, 100),
    ],
    ids=["vector", "deep", "appended", "set", "nested", "iterator", "builder", "edited leaf", "edited tail"],
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


def test_the_collector_knows_only_what_may_be_in_a_cycle() -> None:
    atoms = PVector(range(1100))
    assert not gc.is_tracked(atoms)
    assert not gc.is_tracked(atoms.set(7, "new").append(None)[:40].extend(range(99)))
    for length in (1, 32, 33, 1100):
        it = atoms[:length]
        assert gc.is_tracked(it.append([]))
        assert gc.is_tracked(it.append([]).extend(range(100)))
        assert gc.is_tracked(it.set(0, []))
        assert gc.is_tracked(it.set(length - 1, []))
        builder = it.mutate()
        builder.append(1)
        builder[0] = "first of its own node"
        builder[0] = []
        assert gc.is_tracked(builder.finish())


def test_a_deep_nest_is_dropped() -> None:
    link = Link()
    gone = weakref.ref(link)
    it: Any = link
    del link
    for n in range(100_000):
        it = PVector([it]) if n % 3 else PMap(a=PVector([1, it, *range(n % 100)]))
    del it
    assert is_gone(gone)


def churn(source: random.Random, values: list[object], rounds: int) -> None:
    """Uses all that takes or gives references."""
    it: PVector[object] = PVector()
    builder = it.mutate()
    for n in range(rounds):
        value = source.choice(values)
        what = source.randrange(12)
        if what < 3:
            it = it.append(value)
        elif what == 3 and it:
            it = it.pop()
        elif what == 4 and it:
            it = it.set(source.randrange(len(it)), value)
        elif what < 8:
            builder.append(value)
        elif what == 8 and len(builder):
            builder[source.randrange(len(builder))] = value
        elif what == 9 and len(builder):
            assert builder.pop() in values
        elif n % 97 == 0:
            newer = builder.finish()
            state.diff_vectors(it, newer)
            assert list(iter(newer[: len(newer) // 2])) == list(newer)[: len(newer) // 2]
            it, builder = newer[source.randrange(3) :], it.mutate()
        if len(it) > 3000:
            it = it[: source.randrange(3000)].insert(5, value).delete(7) + PVector(values)
        if len(builder) > 3000:
            builder = it.mutate()


def test_references_are_balanced() -> None:
    values = [object() for _ in range(5)]
    source = random.Random(3)
    churn(source, values, 1000)
    gc.collect()
    before = [sys.getrefcount(one) for one in values]
    churn(source, values, 1_000_000)
    gc.collect()
    assert [sys.getrefcount(one) for one in values] == before
