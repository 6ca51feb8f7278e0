"""The difference of two values makes one of the other."""

from __future__ import annotations

from typing import Any

import pytest

from ropewalk.state import PMap, PVector
from ropewalk.state._diff import between
from ropewalk.state._patches import patch_between
from ropewalk.state._replay import applied

pytest.importorskip("hypothesis")
from hypothesis import given, strategies as st

VALUES = st.recursive(
    st.integers(0, 3) | st.text("ab", max_size=1),
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(PMap)
        | st.lists(inner, max_size=4).map(PVector)
    ),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_the_changes_between_two_values_make_one_of_the_other(old: Any, new: Any) -> None:
    assert applied(old, [(int(change), path, value) for change, path, value in between(old, new)]) == new


def plainly(value: Any) -> Any:
    """A value of maps and vectors as dicts and lists."""
    if isinstance(value, PMap):
        return {key: plainly(part) for key, part in value.items()}
    return [plainly(part) for part in value] if isinstance(value, PVector) else value


def patched(document: Any, patch: list[dict[str, Any]]) -> Any:
    """Applies a JSON patch as RFC 6902 says it, one operation after the other."""
    whole = {"": plainly(document)}
    for operation in patch:
        *inner, last = ["", *operation["path"].split("/")[1:]]
        at: Any = whole
        for step in inner:
            at = at[int(step)] if isinstance(at, list) else at[step]
        op = operation["op"]
        if isinstance(at, list):
            index = len(at) if last == "-" else int(last)
            if op == "add":
                assert index <= len(at)
                at.insert(index, plainly(operation["value"]))
            elif op == "remove":
                del at[index]
            else:
                at[index] = plainly(operation["value"])
        else:
            assert (last in at) == (op != "add")
            if op == "remove":
                del at[last]
            else:
                at[last] = plainly(operation["value"])
    return whole[""]


@given(VALUES, VALUES)
def test_a_patch_makes_one_value_of_the_other(old: Any, new: Any) -> None:
    assert patched(old, patch_between(old, new)) == plainly(new)


@st.composite
def edits(draw: st.DrawFn) -> tuple[PVector[Any], PVector[Any]]:
    """A vector, and one that was made of it by a few edits that keep the other items."""
    items: list[Any] = [PMap(n=number) for number in range(draw(st.integers(0, 8)))]
    old = PVector(items)
    for number in range(draw(st.integers(1, 4))):
        index = draw(st.integers(0, len(items)))
        what = draw(st.sampled_from(("insert", "delete", "set", "move", "double")))
        if what == "insert" or index == len(items):
            items.insert(index, PMap(n=100 + number))
        elif what == "delete":
            del items[index]
        elif what == "set":
            items[index] = items[index].set("m", number)
        elif what == "move":
            items.insert(draw(st.integers(0, len(items) - 1)), items.pop(index))
        else:
            items.insert(0, items[index])
    return old, PVector(items)


@given(edits())
def test_patches_of_edited_vectors_lead_there_and_back(edited: tuple[PVector[Any], PVector[Any]]) -> None:
    old, new = edited
    assert patched(old, patch_between(old, new)) == plainly(new)
    assert patched(new, patch_between(new, old)) == plainly(old)


def test_an_insertion_names_one_item() -> None:
    old = PVector([PMap(n=number) for number in range(5000)])
    first, middle = PMap(n=-1), PMap(n=-2)
    new = old.insert(0, first).insert(2500, middle)
    assert patch_between(old, new) == [
        {"op": "add", "path": "/0", "value": first},
        {"op": "add", "path": "/2500", "value": middle},
    ]
    assert patch_between(new, old) == [{"op": "remove", "path": "/0"}, {"op": "remove", "path": "/2499"}]
    changed = new.set(7, new[7].set("n", 0)).pop()
    assert patch_between(new, changed) == [
        {"op": "replace", "path": "/7/n", "value": 0},
        {"op": "remove", "path": "/5001"},
    ]
    # The first comes, the last goes: the vector has the length that it had.
    moved = old.insert(0, first).pop()
    assert len(patch_between(old, moved)) == 2
