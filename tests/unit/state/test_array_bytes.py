"""The bytes of arrays: which memory is that of a state, what records have of a change, which writes reach the copy."""
# ruff: noqa: F722, F821, UP037  # The dimensions of arrays are no names of types.

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from tests.unit.state._arrays import one, zoo  # noqa: E402

from ropewalk._errors import NotFrozen, StateError  # noqa: E402
from ropewalk.state import (  # noqa: E402
    Shm,
    Store,
    _arrays as arrays,
    _codec as codec,
    bool_,
    float64,
    int64,
    writable,
)

# --- sealed memory ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [
        lambda items: items.view(items.dtype.newbyteorder()),
        lambda items: items.reshape(2, 3).T,
        lambda items: items[::-1],
        lambda items: items.view("S8"),
        lambda items: items.view("M8[s]"),
        lambda items: items.view("f4,f4"),
        lambda items: items[:3],
    ],
    ids=["byte order", "columns", "backwards", "texts", "dates", "fields", "part"],
)
def test_other_views_of_sealed_memory_are_no_arrays_of_a_state(view: Any) -> None:
    items = one().snapshot().items
    assert arrays.sealed_memory(items.view()) is not None
    assert arrays.sealed_memory(view(items)) is None
    with pytest.raises(NotFrozen):
        Store({"a": view(items)})


@dataclass(frozen=True, slots=True)
class Square:
    cells: Shm[float64, "_ _"]


def test_a_transposed_array_keeps_its_order_in_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "a.wal"
    with Store(Square(np.arange(6.0).reshape(2, 3)), journal=path) as store:
        turned = store.snapshot().cells.T
        store.run(lambda s: setattr(s, "cells", turned))
        assert store.snapshot().cells.flags.c_contiguous
    with Store(Square(np.zeros((1, 1))), journal=path) as store:
        assert store.snapshot().cells.tolist() == turned.tolist()


# --- changes in the journal -------------------------------------------------------------------------------------------


def committed(array: Any) -> Any:
    return arrays.committed(np.asarray(array))


@pytest.mark.parametrize("places", [[-1], [0], [1500], [0, -1], [511, 512], [511, 512, 513, 1024]])
def test_each_place_of_a_change_is_in_the_journal(places: list[int], tmp_path: Path) -> None:
    path = tmp_path / "a.wal"
    # Four blocks and three items.
    count = 4 * arrays.BLOCK // 8 + 3
    with Store({"a": np.zeros(count)}, policy={"a": Shm[float64, "n"]}, journal=path) as store:

        def change(root: Any) -> None:
            for place in places:
                root["a"][place] = 7

        store.run(change)
        live = store.snapshot()["a"]
    with Store({"a": np.zeros(1)}, policy={"a": Shm[float64, "n"]}, journal=path) as store:
        assert store.snapshot()["a"].tolist() == live.tolist()
        assert np.flatnonzero(live).tolist() == sorted(place % count for place in places)


def test_runs_are_blocks_next_to_each_other_and_the_rest() -> None:
    size, block = 8 * arrays.BLOCK + 100, arrays.BLOCK
    old = committed(np.zeros(size, np.uint8))

    def runs(*places: int) -> Any:
        new = np.array(old)
        new[list(places)] = 1
        found = arrays.changed_runs(old, committed(new))
        return None if found is None else [(start, len(data)) for start, data in found]

    assert runs() == []
    assert runs(0) == [(0, block)]
    assert runs(size - 1) == [(8 * block, 100)]
    assert runs(block, 2 * block + 5) == [(block, 2 * block)]
    assert runs(0, 2 * block) == [(0, block), (2 * block, block)]
    assert runs(7 * block, size - 1) == [(7 * block, block + 100)]
    # More than half is better recorded whole.
    assert runs(*range(0, 4 * block, block)) == [(0, 4 * block)]
    assert runs(*range(0, 5 * block, block)) is None


@pytest.mark.parametrize("start", [-1, 23, 24, 10**9])
def test_a_change_of_bytes_that_the_array_has_not_is_refused(start: int) -> None:
    array = committed(np.arange(3.0))
    with arrays.recovering():
        with pytest.raises(StateError, match="does not have"):
            arrays.patched(array, "float64", (3,), ((start, b"ab"),))
        assert arrays.patched(array, "float64", (3,), ((22, b"\0\0"),)).tolist() == [0, 1, 0]
    assert array.tolist() == [0, 1, 2]


def test_recoveries_within_each_other_change_their_own_copies() -> None:
    array = committed(np.zeros(1))
    with arrays.recovering():
        outer = arrays.patched(array, "float64", (1,), ((7, b"\x40"),))
        with arrays.recovering():
            inner = arrays.patched(array, "float64", (1,), ((7, b"\x41"),))
        assert arrays.patched(outer, "float64", (1,), ()) is outer
    assert (array.tolist(), outer.tolist() == inner.tolist()) == ([0], False)


# --- on the way to another process ------------------------------------------------------------------------------------


def test_small_arrays_and_those_behind_the_most_are_pickled() -> None:
    large = [committed(np.full(codec._SMALL, number, np.uint8)) for number in range(codec._MOST + 3)]
    small = committed(np.ones(codec._SMALL - 1, np.uint8))
    lent: list[Any] = []
    data = codec.dumps([small, *large], lent)
    assert len(lent) == codec._MOST
    assert [memory is arrays.sealed_memory(array) for memory, array in zip(lent, large, strict=False)] == (
        [True] * codec._MOST
    )
    assert len(data) > codec._SMALL * 4 - 1
    found = codec.loads(data, lent)
    assert [(len(array), array[0]) for array in found] == [
        (len(small), 1),
        *((codec._SMALL, number) for number in range(len(large))),
    ]
    # Nothing is lent that a program can write to.
    lent = []
    codec.dumps(np.zeros(codec._SMALL, np.uint8), lent)
    assert lent == []


# --- writes -----------------------------------------------------------------------------------------------------------


def test_a_part_that_is_assigned_to_its_own_place_writes_nothing() -> None:
    store = Store(zoo())
    before = store.snapshot()

    def itself(z: Any) -> None:
        z.model.weights[1] = z.model.weights[1]

    store.run(itself)
    assert store.snapshot().model.weights is before.model.weights

    def others(z: Any) -> None:
        rows = z.model.weights
        rows[0] = 3
        rows[1] = rows[0]
        rows[2][:2] = rows[1][2:4]
        z.models["a"].weights[0] = rows[0]

    store.run(others)
    state = store.snapshot()
    assert state.model.weights[:4, :3].tolist() == [[3, 3, 3], [3, 3, 3], [3, 3, 1], [1, 1, 1]]
    assert state.models["a"].weights[:, 0].tolist() == [3, 1]


@dataclass(frozen=True, slots=True)
class Masked:
    items: Shm[int64, "n"]
    mask: Shm[bool_, "n"]


def masked() -> Store[Masked]:
    return Store(Masked(np.arange(4), np.array([True, False, True, False])))


def test_at_is_a_first_write() -> None:
    store = masked()
    before = store.snapshot().items

    def add(m: Any) -> None:
        np.add.at(m.items, [0, 0, 1], 10)
        np.add.at(m.items[2:], [1], m.items[:1])

    store.run(add)
    assert (before.tolist(), store.snapshot().items.tolist()) == ([0, 1, 2, 3], [20, 11, 2, 23])


def test_a_draft_says_where() -> None:
    store = masked()

    def add(m: Any) -> Any:
        np.add(m.items, 10, out=m.items, where=m.mask)
        return np.add.reduce(m.items, where=m.mask), np.sum(m.items, where=m.mask)

    assert store.run(add) == (22, 22)
    assert store.snapshot().items.tolist() == [10, 1, 12, 3]


def test_rows_that_are_swapped_are_views_and_a_list_of_rows_is_a_copy() -> None:
    store = Store(Square(np.repeat(np.arange(8.0), 2).reshape(8, 2)))

    def swap(s: Any) -> None:
        cells = s.cells
        cells[0], cells[1] = cells[1], cells[0]
        cells[[2, 3]] = cells[[3, 2]]

    store.run(swap)
    assert store.snapshot().cells[:4, 0].tolist() == [1, 1, 3, 2]


def test_a_shuffle_warns_and_one_of_the_copy_is_right() -> None:
    store = Store(Square(np.repeat(np.arange(8.0), 2).reshape(8, 2)))
    generator = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="shuffl"):
        store.run(lambda s: generator.shuffle(s.cells))
    store.undo()
    store.run(lambda s: generator.shuffle(writable(s.cells)))
    assert sorted(store.snapshot().cells[:, 0].tolist()) == list(range(8))
