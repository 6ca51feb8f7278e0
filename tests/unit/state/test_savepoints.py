"""Savepoints: what they keep, and what becomes of drafts that were taken within them."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ropewalk import StateError
from ropewalk.state import PVector, Store, leaf


@leaf
class Mark:
    """A value whose references are counted."""


class Back(Exception):
    """Rolls a savepoint back."""


def undo(tx: Any, *steps: Any) -> list[Any]:
    """Does steps in a savepoint that is rolled back, and gives what they gave."""
    with pytest.raises(Back), tx.savepoint():  # noqa: PT012
        made = [step() for step in steps]
        raise Back
    return made


def test_a_savepoint_that_ended_keeps_nothing() -> None:
    mark = Mark()
    with Store({"m": {}}).transaction() as tx:
        values = tx.draft["m"]
        values["mark"] = mark
        before = sys.getrefcount(mark)
        for index in range(50):
            with tx.savepoint():
                values[index] = index
        assert sys.getrefcount(mark) == before
        for index in range(50):
            undo(tx, lambda index=index: values.__setitem__(index, -1))
        assert sys.getrefcount(mark) == before


def test_an_ended_savepoint_within_another_is_undone_with_it() -> None:
    store = Store({"m": {"a": 1}, "v": [1]})
    with store.transaction() as tx:
        with pytest.raises(Back), tx.savepoint():  # noqa: PT012
            for number in range(3):
                with tx.savepoint():
                    tx.draft["m"]["a"] = number
                    tx.draft["v"].append(number)
            raise Back
        assert tx.value(tx.draft) == {"m": {"a": 1}, "v": PVector([1])}


def test_a_generator_ends_its_savepoint_later_than_the_one_around_it() -> None:
    def rows(tx: Any) -> Any:
        with tx.savepoint():
            tx.draft["b"] = 2
            yield

    store = Store({"a": 1})
    with store.transaction() as tx:
        with pytest.raises(Back), tx.savepoint():  # noqa: PT012
            tx.draft["a"] = 5
            first = rows(tx)
            next(first)
            raise Back
        tx.draft["c"] = 3
        first.close()
        second = rows(tx)
        with tx.savepoint():
            next(second)
        second.close()
    assert store.snapshot() == {"a": 1, "c": 3}


def test_a_draft_of_a_value_from_before_the_savepoint_keeps_its_place() -> None:
    store = Store({"m": {"a": {"x": 1}, "c": 0}, "v": [{"x": 1}, {"x": 2}]})
    with store.transaction() as tx:
        values, items = tx.draft["m"], tx.draft["v"]
        values["b"] = {"x": 1}
        items.append({"x": 3})
        steps = [lambda: values.__setitem__("c", 1), lambda: values["b"], lambda: values["a"]]
        _, new, old = undo(tx, *steps)
        new["x"], old["x"] = 5, 6
        moves = [lambda: items.insert(0, 0), lambda: items[1], lambda: items[3], items.reverse]
        _, first, last, _ = undo(tx, *moves)
        first["x"], last["x"] = 7, 8
        assert first is items[0]
        assert last is items[2]
    assert store.snapshot() == {
        "m": {"a": {"x": 6}, "b": {"x": 5}, "c": 0},
        "v": PVector([{"x": 7}, {"x": 2}, {"x": 8}]),
    }


def test_a_draft_whose_place_was_made_in_the_savepoint_is_refused() -> None:
    store = Store({"m": {}, "v": []})
    with store.transaction() as tx:
        values, items = tx.draft["m"], tx.draft["v"]
        steps = [
            lambda: values.__setitem__("a", {"b": {}}),
            lambda: values["a"],
            lambda: values["a"]["b"],
            lambda: items.append({}),
            lambda: items[0],
        ]
        _, outer, inner, _, item = undo(tx, *steps)
        for draft in (outer, inner, item):
            with pytest.raises(StateError, match=r"savepoint .* rolled back"):
                draft["x"] = 1
            with pytest.raises(StateError, match=r"savepoint .* rolled back"):
                len(draft)
        values["a"] = {"b": {}}
        values["a"]["b"]["x"] = 1
    assert store.snapshot() == {"m": {"a": {"b": {"x": 1}}}, "v": PVector()}


@pytest.mark.parametrize(
    "change",
    [
        lambda items: items.clear(),
        lambda items: items.reverse(),
        lambda items: items.insert(1, 9),
        lambda items: items.pop(0),
        lambda items: (items.pop(), items.pop(), items.append(5), items.insert(0, 1)),
        lambda items: (items.append(7), items.__setitem__(-1, 8), items.pop(), items.pop(0)),
        lambda items: (items.clear(), items.extend([1, 2]), items.reverse()),
    ],
)
def test_a_vector_goes_back_to_the_items_that_it_had(change: Any) -> None:
    for begin in (lambda _items: None, lambda items: items.insert(0, 4), lambda items: items.pop()):
        store = Store({"v": [1, {"x": 2}, 3]})
        with store.transaction() as tx:
            items = tx.draft["v"]
            items.append(6)
            begin(items)
            before = list(tx.value(items))
            undo(tx, lambda items=items: change(items))
            assert list(tx.value(items)) == before
            items.append(0)
            assert list(tx.value(items)) == [*before, 0]
        assert list(store.snapshot()["v"]) == [*before, 0]
