"""What drafts and transactions answer where they refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ropewalk import Conflict, ContractViolation
from ropewalk.state import DELETE, Counter, PMap, Store, leaf, paths, task


@dataclass(frozen=True)
class Page:
    """A page."""

    hits: Counter
    title: str = ""


def test_a_record_has_no_attribute_without_a_name() -> None:
    with Store(Page(0)).transaction() as tx:
        for name in ("", "_", "__", "____"):
            with pytest.raises(AttributeError):
                getattr(tx.draft, name)


def test_a_counter_that_is_not_declared_is_said_to_be_counted() -> None:
    @task(reads=[paths(Page).hits])
    def count(page: Any) -> None:
        page.hits += 1

    with pytest.raises(
        ContractViolation, match=r"counts hits, which its contract does not declare.*to writes"
    ):
        Store(Page(0)).run(count)


@pytest.mark.parametrize(
    "values",
    [{"l": [DELETE]}, {"l": [1, (2, DELETE)]}, {"n": {"l": [{"a": DELETE}]}}, {"l": {"a": [DELETE]}}],
)
def test_a_merge_refuses_a_delete_that_would_be_stored(values: Any) -> None:
    store = Store({"l": [1], "n": {"a": 1}})
    with pytest.raises(TypeError, match="DELETE deletes a key"), store.transaction() as tx:
        tx.merge(None, values)
    with store.transaction() as tx:
        tx.merge(None, {"l": {"a": DELETE, "b": 1}, "n": {"a": DELETE}})
    assert store.snapshot() == {"l": {"b": 1}, "n": {}}


def test_the_one_to_blame_is_not_known_if_its_version_is_not_kept() -> None:
    def conflict(history: int) -> str:
        store = Store({"a": 0, "b": 0}, history=history)
        with pytest.raises(Conflict) as raised, store.transaction("late") as tx:  # noqa: PT012 - the block commits.
            assert tx.draft["a"] == 0
            tx.draft["c"] = 1
            for key in ("a", "b", "b", "b"):
                with store.transaction(f"of {key}") as other:
                    other.draft[key] += 1
        return str(raised.value)

    assert "of a changed in version 1" in conflict(10)
    said = conflict(2)
    assert "not known" in said
    assert "of b" not in said


@leaf
class Hashed:
    """A key with a hash of its own, which counts its comparisons."""

    compared = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        Hashed.compared += 1
        return isinstance(other, Hashed) and other.number == self.number


@pytest.mark.parametrize(
    "spread",
    [lambda half: half << 32 | half, lambda half: half << 32, lambda half: half << 45, lambda half: half],
)
def test_hashes_of_two_halves_do_not_collide(spread: Any) -> None:
    count = 2000
    keys = [Hashed(spread(number)) for number in range(count)]
    Hashed.compared = 0
    made = PMap((key, 1) for key in keys)
    assert len(made) == count
    assert all(Hashed(key.number) in made for key in keys)
    # Each look-up that finds an equal key compares once.
    assert Hashed.compared < count + 100
