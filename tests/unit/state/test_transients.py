"""Transient places: what undo, redo and a journal leave alone, and where they cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ropewalk._errors import StateError
from ropewalk.state import AppendOnly, PMap, PVector, Store, Transient


@dataclass(frozen=True, slots=True)
class Inner:
    n: int = 0
    cursor: Transient[int] = 0


@dataclass(frozen=True, slots=True)
class Deep:
    inner: PMap[str, Inner]


@dataclass(frozen=True, slots=True)
class InVector:
    items: PVector[Inner]


@dataclass(frozen=True, slots=True)
class InAppended:
    rows: PMap[str, AppendOnly[Deep]]


@dataclass(frozen=True, slots=True)
class VectorOfTransients:
    items: PVector[Transient[int]]


@dataclass(frozen=True, slots=True)
class Tree:
    cursor: Transient[int]
    children: PVector[Tree]


@dataclass(frozen=True, slots=True)
class Fine:
    items: Transient[PVector[Inner]]
    plain: PVector[int]
    n: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    seen: PMap[str, Transient[int]]
    n: int = 0


EMPTY: PVector[Any] = PVector()


@pytest.mark.parametrize(
    ("state", "place"),
    [
        (InVector(EMPTY), "InVector.items[...].cursor"),
        (InAppended(PMap()), "InAppended.rows[...][...].inner[...].cursor"),
        (VectorOfTransients(EMPTY), "VectorOfTransients.items[...]"),
        (Tree(0, EMPTY), "Tree.children[...].cursor"),
    ],
)
def test_the_items_of_a_vector_have_none(state: Any, place: str, tmp_path: Path) -> None:
    with pytest.raises(StateError) as caught:
        Store(state)
    assert str(caught.value).startswith(f"{place} is Transient")
    with pytest.raises(StateError):
        Store(state, journal=tmp_path / "wal")
    assert not (tmp_path / "wal").exists()


def test_a_vector_that_is_transient_as_a_whole() -> None:
    store = Store(Fine(PVector([Inner()]), EMPTY))

    def work(d: Any) -> None:
        d.items[0].cursor += 1
        d.items.append(Inner(5))
        d.n += 1

    store.run(work)
    store.undo()
    assert store.snapshot() == Fine(PVector([Inner(0, 1), Inner(5)]), EMPTY, 0)


def test_values_of_a_map(tmp_path: Path) -> None:
    def opened() -> Store[Seen]:
        return Store(Seen(PMap(given=9)), journal=tmp_path / "wal")

    def work(d: Any) -> None:
        d.n += 1
        d.seen["a"] = d.n
        if "given" in d.seen:
            del d.seen["given"]

    with opened() as store:
        store.run(work)
        store.run(work)
        store.undo()
        assert store.snapshot() == Seen(PMap(a=2), 1)
        store.run(lambda d: d.seen.clear())
        # There is nothing to undo in it, so this undoes the commit before.
        store.undo()
        assert store.snapshot() == Seen(PMap(), 0)
        store.redo()
        assert store.snapshot() == Seen(PMap(), 1)
        store.run(work)
    with opened() as store:
        # They are those that the program gives.
        assert store.snapshot() == Seen(PMap(given=9), 2)


POLICY = {"cursor": Transient, "many[...].cursor": Transient}


def test_a_policy_names_them(tmp_path: Path) -> None:
    def opened() -> Store[Any]:
        return Store({"n": 0, "cursor": 5, "many": {"a": {"n": 0, "cursor": 0}}}, policy=POLICY, journal=path)

    def work(d: Any) -> None:
        d["n"] += 1
        d["cursor"] += 1
        d["many"]["a"]["n"] += 1
        d["many"]["a"]["cursor"] += 1

    path = tmp_path / "wal"
    with opened() as store:
        store.run(work)
        store.run(work)
        store.undo()
        expected = PMap(n=1, cursor=7, many=PMap(a=PMap(n=1, cursor=2)))
        assert store.snapshot() == expected
        store.run(lambda d: d.__delitem__("cursor"))
        store.undo()
        assert store.snapshot() == PMap(n=0, many=PMap(a=PMap(n=0, cursor=2)))
        store.redo()
        assert store.snapshot() == expected.delete("cursor")
    with opened() as store:
        assert store.snapshot() == PMap(n=1, cursor=5, many=PMap(a=PMap(n=1, cursor=0)))
