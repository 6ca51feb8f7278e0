"""Leaves that hold other values: nothing in them may change in place."""

from __future__ import annotations

import enum
import functools
import time
import types
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from ropewalk._errors import NotFrozen
from ropewalk.state import Store, leaf


class Row(tuple[Any, ...]):
    """A tuple that says it has no items."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Group(frozenset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


@leaf
class Promised(tuple[Any, ...]):
    pass


class Plain:
    pass


class Pairs(tuple[Any, ...], enum.Enum):
    ONE = (1, 2)


REFUSED: list[Any] = [
    Row([[1]]),
    Row([Row([{}])]),
    Row([Plain()]),
    Group([Plain()]),
    slice(None, [1]),
    slice(1, 2, Plain()),
    (Row([[1]]),),
    time.struct_time(([1],) * 9),  # type: ignore[arg-type]
    functools.partial(print, [1]),
    types.MappingProxyType({"a": [1]}),
    weakref.ref(Plain),
    iter([1]),
]


@pytest.mark.parametrize("value", REFUSED, ids=repr)
def test_a_leaf_with_a_part_that_changes_is_refused(value: Any) -> None:
    with pytest.raises(NotFrozen):
        Store({"v": value})
    store: Store[Any] = Store({"v": 1})
    with pytest.raises(NotFrozen):
        store.run(put, value)
    assert store.version == 0


def put(draft: Any, value: Any) -> None:
    draft["v"] = value


def put_a_draft(draft: Any) -> None:
    draft["v"] = Row([draft["m"]])


@pytest.mark.parametrize(
    "value",
    [
        Row([1, "a", (2, Row([3]))]),
        Group([1, (2, 3)]),
        slice(1, None, (2,)),
        range(3),
        Promised([[1]]),
        Pairs.ONE,
        time.gmtime(0),
    ],
    ids=repr,
)
def test_others_are_stored_as_they_are(value: Any) -> None:
    assert Store({"v": value}).snapshot()["v"] is value


def test_the_path_of_the_part_is_named() -> None:
    with pytest.raises(NotFrozen, match=r"\['v'\].* a part of class list changes in place, and a Row"):
        Store({"v": Row([[1]])})


def test_a_draft_in_a_subclass_is_refused() -> None:
    store: Store[Any] = Store({"v": 1, "m": {"a": 1}})
    with pytest.raises(NotFrozen):
        store.run(put_a_draft)
