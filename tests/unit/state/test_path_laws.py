"""Laws of two paths: what they say is what sets of places say."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.state.test_paths import Bank, P

from ropewalk.state import EACH, Key, Path, Step, covers, meets, path_from, steps_of

hypothesis = pytest.importorskip("hypothesis")
st = pytest.importorskip("hypothesis.strategies")

#: Steps of a small state: a record with a map and a vector of records, and a vector of vectors.
_BELOW: dict[str, tuple[Step, ...]] = {
    "bank": ("accounts", "journal", "grid"),
    "accounts": (Key("a"), Key("b"), EACH),
    "journal": (Key(0), Key(1), Key(-1), Key(-2), EACH),
    "grid": (Key(0), Key(-1), EACH),
    "row": (Key(0), Key(-1), EACH),
    "account": ("owner", "balance"),
}
_AFTER = {"accounts": "account", "journal": "account", "grid": "row", "row": "leaf", "account": "leaf"}


@st.composite
def some_paths(draw: Any) -> Path[Any]:
    kind, steps = "bank", []
    while kind in _BELOW and draw(st.integers(0, 4)):
        step = draw(st.sampled_from(_BELOW[kind]))
        kind = step if kind == "bank" else _AFTER[kind]
        steps.append(step)
    return path_from(Bank, tuple(steps))


def every_place(lengths: tuple[int, int, int]) -> Iterator[tuple[Any, ...]]:
    """All places of a state whose vectors have these lengths, without a sign: no index is negative."""
    journal, grid, row = lengths
    yield ()
    yield from (("accounts",), ("journal",), ("grid",))
    for key in ("a", "b", "c"):
        yield from (("accounts", key), ("accounts", key, "owner"), ("accounts", key, "balance"))
    for index in range(journal):
        yield from (("journal", index), ("journal", index, "owner"), ("journal", index, "balance"))
    for index in range(grid):
        yield ("grid", index)
        yield from (("grid", index, inner) for inner in range(row))


def named(path: Path[Any], lengths: tuple[int, int, int]) -> set[tuple[Any, ...]]:
    """The places that a path names, and all below them, in a state of these lengths."""
    sizes = {"journal": lengths[0], "grid": lengths[1], "row": lengths[2]}

    def fits(step: Step, part: Any, kind: str) -> bool:
        if isinstance(step, Key):
            wanted = step.value + sizes[kind] if kind in sizes and step.value < 0 else step.value
            return bool(wanted == part)
        return step is EACH or step == part

    def is_named(place: tuple[Any, ...]) -> bool:
        steps = steps_of(path)
        if len(place) < len(steps):
            return False
        kind = "bank"
        for step, part in zip(steps, place, strict=False):
            if not fits(step, part, kind):
                return False
            kind = part if kind == "bank" else _AFTER[kind]
        return True

    return {place for place in every_place(lengths) if is_named(place)}


#: Lengths that let any index of above be in or out, or the same as any other.
STATES = tuple(itertools.product(range(5), (0, 1, 2), (0, 1, 2)))


@hypothesis.settings(deadline=None)
@hypothesis.given(some_paths(), some_paths())
def test_covers_and_meets_are_what_sets_of_places_say(one: Path[Any], other: Path[Any]) -> None:
    places = [(named(one, lengths), named(other, lengths)) for lengths in STATES]
    assert meets(one, other) == any(mine & its for mine, its in places)
    assert covers(one, other) == all(its <= mine for mine, its in places)


@hypothesis.settings(deadline=None)
@hypothesis.given(some_paths(), some_paths(), some_paths())
def test_laws_of_covers_and_meets(one: Path[Any], two: Path[Any], three: Path[Any]) -> None:
    assert covers(one, one)
    assert meets(one, one)
    assert covers(P, one)
    assert meets(one, two) == meets(two, one)
    if covers(one, two):
        assert meets(one, two)
        if covers(two, three):
            assert covers(one, three)
        if meets(two, three):
            assert meets(one, three)
        if covers(two, one):
            assert one == two
