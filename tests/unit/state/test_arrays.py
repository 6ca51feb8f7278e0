"""Arrays in states: what they are to readers and to transactions."""
# ruff: noqa: F722, F821, PT012, UP037  # The dimensions of arrays are no names of types.
# What happens in a block of a transaction is what is tested.

from __future__ import annotations

import array as plain_arrays
import copy
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from tests.unit.state._arrays import (  # noqa: E402
    mapping_of,
    model,
    reads_only,
    scale,
    sneaky,
    writes_const,
    zoo,
)

import ropewalk  # noqa: E402
from ropewalk._errors import (  # noqa: E402
    Conflict,
    ContractViolation,
    NotFrozen,
    OutOfMemory,
    StateError,
    TransactionEnded,
)
from ropewalk.state import (  # noqa: E402
    DELETE,
    AppendOnly,
    Const,
    PMap,
    PVector,
    Shm,
    Store,
    _arrays as arrays,
    float32,
    float64,
    int64,
    leaf,
    task,
    writable,
)


@dataclass(frozen=True, slots=True)
class One:
    """One array of any length."""

    items: Shm[float64, "n"]
    other: int = 0


def one(size: int = 6) -> Store[One]:
    return Store(One(np.arange(float(size))))


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_a_committed_array_is_numpys_own_and_nobody_can_write_to_it() -> None:
    given = np.arange(6.0)
    store = Store(One(given))
    given[:] = 9
    items = store.snapshot().items
    assert type(items) is np.ndarray
    assert items.tolist() == [0, 1, 2, 3, 4, 5]
    assert not items.flags.writeable
    found: Any = items
    seen = 0
    while isinstance(found, np.ndarray):
        for view in (found, found[1:3], found.view(np.int64), found.reshape(2, 3), found.T):
            with pytest.raises(ValueError, match="WRITEABLE"):
                view.flags.writeable = True
            with pytest.raises(ValueError, match="WRITEABLE"):
                view.setflags(write=True)
        assert found.__array_interface__["data"][1], "it says that it is read-only"
        found = found.base
        seen += 1
    assert seen
    memory = found
    assert type(memory) is ropewalk.shared.SharedBuffer, "no memoryview, which could be released"
    assert memory._seal() is memory
    assert memoryview(memory).readonly
    with pytest.raises(ValueError, match="read-only"):
        np.frombuffer(memory)[0] = 1
    with pytest.raises(BufferError, match="never change"):
        memory.release()
    assert store.snapshot().items is items


def test_memory_is_sealed_only_while_nothing_can_write_to_it() -> None:
    memory = ropewalk.shared.buffer(64)
    view = memoryview(memory)
    with pytest.raises(BufferError, match="views"):
        memory._seal()
    view[0] = 3
    view.release()
    sealed = memory._seal()
    with pytest.raises(ValueError, match="released"):
        memoryview(memory)
    assert (bytes(sealed)[0], sealed.readonly, sealed._sealed, memory._sealed) == (3, True, True, False)
    assert sealed._seal()._sealed


@pytest.mark.parametrize(
    "given",
    [
        np.arange(6.0),
        np.arange(12.0)[::2],
        np.arange(6.0)[::-1],
        np.arange(6.0).astype(">f8"),
        plain_arrays.array("d", range(6)),
        memoryview(plain_arrays.array("d", range(6))),
        ropewalk.share(np.arange(6.0)),
    ],
    ids=["plain", "strided", "backwards", "big-endian", "array", "memoryview", "shared"],
)
def test_arrays_of_all_kinds_are_copied_to_one_form(given: Any) -> None:
    for store in (Store(One(given)), one()):
        store.run(_assign, given)
        items = store.snapshot().items
        assert items.dtype == np.float64
        assert items.dtype.isnative
        assert items.flags.c_contiguous
        assert items.tolist() == list(given)


@task
def _assign(root: Any, value: Any) -> None:
    root.items = value


def test_a_committed_array_is_taken_as_it_is_and_a_part_of_one_is_copied() -> None:
    store, other = one(), one(3)
    items = store.snapshot().items
    other.run(_assign, items)
    assert other.snapshot().items is items
    other.run(_assign, items.view())
    assert mapping_of(other.snapshot().items) == mapping_of(items)
    other.run(_assign, items[:3])
    assert mapping_of(other.snapshot().items) != mapping_of(items)
    assert other.snapshot().items.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.zeros(3, np.float32), r"items: an array of float32 \(3,\) was given for Shm\[float64, \"n\"\]"),
        (np.zeros((2, 3)), r"items: an array of float64 \(2, 3\)"),
        (np.array([object()]), "items: a state has no arrays of object"),
        (np.array(["a"]), "items: a state has no arrays of <U1"),
        (np.zeros(3, "f8,i4"), "items: a state has no arrays of"),
        (np.array(["2020-01-01"], "M8[D]"), "items: a state has no arrays of"),
        (np.ma.masked_array([1.0], [True]), "items: a masked array would lose its mask"),
        ([1.0, 2.0], r"items: Shm\[float64, \"n\"\] is wanted, and not an object of class list"),
        (b"12345678", "not an object of class bytes"),
        (3.0, "not an object of class float"),
        (None, "not an object of class NoneType"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(value: Any, says: str) -> None:
    with pytest.raises(StateError, match=says):
        Store(One(value))
    store = one()
    with pytest.raises(StateError, match=says):
        store.run(_assign, value)
    with pytest.raises(StateError, match=says), store.transaction() as tx:
        tx.merge("items", value)
    assert store.version == 0


def test_places_are_named_from_the_whole_state() -> None:
    store = Store(zoo())
    wrong = np.zeros(3, np.float32)
    for change, says in (
        (lambda z: setattr(z.models["a"], "weights", wrong), r"models\['a'\]\.weights: "),
        (lambda z: z.models.update(new=replace(model(), bias=np.zeros(3))), r"models\['new'\]\.bias: "),
        (lambda z: z.rows.update(x=wrong), r"rows\['x'\]: "),
        (lambda z: z.list.append(wrong), r"list\[\.\.\.\]: "),
        (lambda z: z.list.insert(0, wrong), r"list\[0\]: "),
        (lambda z: z.list.__setitem__(1, wrong), r"list\[1\]: "),
        (lambda z: setattr(z, "models", {"q": replace(model(), bias=np.zeros(3))}), r"models\['q'\]\.bias: "),
        (lambda z: setattr(z, "list", [np.zeros(2), wrong]), r"list\[1\]: "),
        (lambda z: setattr(z, "maybe", wrong), r"maybe: "),
    ):
        with pytest.raises(StateError, match=says):
            store.run(change)
    assert store.version == 0


def test_arrays_where_none_is_declared_are_refused_with_a_way_out() -> None:
    for state in ({"a": np.zeros((2, 3), np.int8)}, PMap(a=(np.zeros((2, 3), np.int8),))):
        with pytest.raises(NotFrozen, match=r'Shm\[int8, "2 3"\]'):
            Store(state)
    with pytest.raises(NotFrozen, match=r"Shm\[float32"):
        Store({"a": ropewalk.share(np.zeros(3))})
    # One that never changes may be anywhere.
    items = one().snapshot().items
    store = Store({"a": items})
    store.run(lambda root: root["a"].__setitem__(0, 7))
    assert store.snapshot()["a"].tolist() == [7, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (1,), (2, 1, 2)])
def test_arrays_of_any_shape(shape: tuple[int, ...], tmp_path: Path) -> None:
    dims = " ".join("_" for _ in shape)
    policy: Any = {"a": Shm[np.int16, dims]}
    path = tmp_path / "a.wal"
    with Store({"a": np.ones(shape, np.int16)}, policy=policy, journal=path) as store:

        def change(root: Any) -> None:
            root["a"][...] = 5
            root["a"] += 1

        store.run(change)
        found = store.snapshot()["a"]
        assert (found.shape, found.dtype, found.flags.writeable) == (shape, np.int16, False)
        assert (found == 6).all()
        assert (store.at(0)["a"] == 1).all()
        with store.transaction() as tx:
            assert tx.draft["a"].shape == shape
            if shape:
                assert len(tx.draft["a"]) == shape[0]
            else:
                assert (int(tx.draft["a"]), tx.draft["a"][()]) == (6, 6)
    with Store({"a": np.ones(shape, np.int16)}, policy=policy, journal=path) as store:
        assert store.snapshot()["a"].shape == shape
        assert (store.snapshot()["a"] == 6).all()


def test_every_type_of_items_is_kept(tmp_path: Path) -> None:
    for name in arrays.SIZES:
        policy: Any = {"a": Shm[np.dtype(name), "n"]}
        values = np.array([0, 1, 1], name)
        with Store({"a": values}, policy=policy, journal=tmp_path / name) as store:
            store.run(lambda root: root["a"].__setitem__(0, 1))
        with Store({"a": values}, policy=policy, journal=tmp_path / name) as store:
            assert store.snapshot()["a"].dtype.name == name
            assert store.snapshot()["a"].tolist() == np.ones(3, name).tolist()


def test_names_of_lengths_are_one_length_in_a_record() -> None:
    with pytest.raises(StateError, match=r"model\.bias: .*n = 2 is wanted"):
        Store(replace(zoo(), model=replace(model(2), bias=np.zeros(3, np.float32))))
    store = Store(zoo())

    def grow(z: Any, both: bool) -> None:
        z.model.weights = np.zeros((9, 256), np.float32)
        if both:
            z.model.bias = np.zeros(9, np.float32)

    with pytest.raises(StateError, match=r"model\.bias: .*n = 9 is wanted"):
        store.run(grow, False)
    store.run(grow, True)
    # Other records have other lengths under the same name.
    assert sorted(len(one.bias) for one in store.snapshot().models.values()) == [2, 3]
    with pytest.raises(StateError, match=r"rows\['z'\]: .*k = 4 is wanted"):
        store.run(lambda z: z.rows.update(z=np.arange(5)))
    store.run(lambda z: z.rows.update(z=np.arange(4)))
    # All of them may change at once.
    store.run(lambda z: setattr(z, "rows", {"x": np.arange(2), "y": np.arange(2)}))
    with pytest.raises(StateError, match=r"rows\['x'\]|rows\['y'\]"):
        store.run(lambda z: z.rows.update(x=np.arange(3)))
    with pytest.raises(StateError, match=r"models\['c'\]\.bias"):
        store.run(lambda z: z.models.update(c=replace(model(2), bias=np.zeros(1, np.float32))))
    with pytest.raises(StateError, match=r"models\['a'\]\.bias"):
        store.run(lambda z: setattr(z.models["a"], "bias", np.zeros(1, np.float32)))


@dataclass(frozen=True, slots=True)
class Table:
    head: Shm[int64, "n"]
    rows: PVector[Shm[int64, "n"]]
    square: Shm[int64, "m m"]


def test_rows_have_the_length_of_the_head() -> None:
    table = Table(np.arange(3), PVector([np.arange(3)] * 2), np.zeros((2, 2), np.int64))
    store = Store(table)
    with pytest.raises(StateError, match=r"rows\[2\]: .*n = 3 is wanted"):
        store.run(lambda t: t.rows.append(np.arange(4)))
    with pytest.raises(StateError, match=r"rows\[0\]: .*n = 4 is wanted"):
        store.run(lambda t: setattr(t, "head", np.arange(4)))
    with pytest.raises(StateError, match=r"square: .*m = 2 is wanted"):
        store.run(lambda t: setattr(t, "square", np.zeros((2, 3), np.int64)))

    def all_of_it(t: Any) -> None:
        t.head = np.arange(4)
        t.rows = [np.arange(4)] * 3

    store.run(all_of_it)
    store.run(lambda t: t.rows.append(np.arange(4)))
    assert [len(row) for row in store.snapshot().rows] == [4] * 4


# --- drafts -----------------------------------------------------------------------------------------------------------


def test_a_draft_reads_as_the_array_does() -> None:
    store = Store(zoo())
    with store.transaction() as tx:
        draft = tx.draft.model.weights
        assert draft is tx.draft.model.weights
        array = store.snapshot().model.weights
        assert (draft.shape, draft.dtype, draft.ndim, draft.size) == ((8, 256), np.float32, 2, 2048)
        assert (draft.nbytes, len(draft), draft.itemsize) == (8192, 8, 4)
        assert draft.sum() == array.sum()
        assert draft.T.shape == (256, 8)
        assert draft[3, 4] == 1
        assert type(draft[3, 4]) is np.float32
        assert draft[2].sum() == 256
        assert draft[2][5:7].tolist() == [1, 1]
        assert draft[[1, 2]].shape == (2, 256)
        assert draft[draft > 0].shape == (2048,)
        assert (draft + 1).dtype == np.float32
        assert ((1 + draft * 2) == 3).all()
        assert (draft == array).all()
        assert (-draft).sum() == -2048
        assert (draft @ np.ones(256, np.float32)).tolist() == [256] * 8
        assert np.sum(draft) == 2048
        assert np.concatenate([draft, draft[:1]]).shape == (9, 256)
        assert np.asarray(draft).base is array.base
        assert np.array(draft).flags.writeable
        assert not np.asarray(draft).flags.writeable
        assert sum(row.sum() for row in draft) == 2048
        assert 1 in draft
        assert "draft of array" in repr(draft)
        assert "draft of array" in repr(draft[1])
        assert copy.copy(draft).flags.writeable
        assert bool(tx.draft.rows["x"][1:2])
        with pytest.raises(AttributeError):
            _ = draft.nothing
        with pytest.raises(TypeError):
            hash(draft)
        assert tx.value(draft) is array
    assert store.version == 0


def test_writes_change_the_copy_and_not_the_state() -> None:
    store = Store(zoo())
    before = store.snapshot()
    with store.transaction() as tx:
        z = tx.draft
        z.model.weights[0] = 2
        z.model.weights[1, 3] = 4
        z.model.weights *= 2
        z.model.weights[2] += 5
        z.model.weights[3][4:6] *= 7
        z.model.weights[z.model.weights == 14] = 15
        z.rows["x"] += 1
        z.rows["y"][:] = z.rows["x"]
        z.list[1] -= 1
        for row in z.models["a"].weights:
            row *= 3
        np.add(z.model.bias, 1, out=z.model.bias)
        np.add.at(z.model.bias, [0, 0], 1)
        np.copyto(z.list[0], 8)
        z.rows["y"].sort()
        assert z.model.weights[0, 0] == 4
        assert before.model.weights[0, 0] == 1
    after = store.snapshot()
    assert (before.model.weights == 1).all()
    assert after.model.weights[:, [0, 3, 4, 5, 6]].tolist() == [
        [4, 4, 4, 4, 4],
        [2, 8, 2, 2, 2],
        [7, 7, 7, 7, 7],
        [2, 2, 15, 15, 2],
        *[[2, 2, 2, 2, 2]] * 4,
    ]
    assert (after.rows["x"].tolist(), after.rows["y"].tolist()) == ([1, 2, 3, 4], [1, 2, 3, 4])
    assert [item.tolist() for item in after.list] == [[8, 8], [0, 0, 0]]
    assert (after.models["a"].weights == 3).all()
    assert after.models["b"] is before.models["b"]
    assert after.model.bias.tolist() == [3, *[1] * 7]
    assert after.fixed is before.fixed
    for changed in (after.model.weights, after.rows["x"], after.list[0]):
        with pytest.raises(ValueError, match="WRITEABLE"):
            changed.flags.writeable = True


def test_a_draft_that_is_assigned_elsewhere_is_a_copy() -> None:
    store = Store(zoo())
    with store.transaction() as tx:
        z = tx.draft
        z.rows["x"][0] = 7
        z.rows["z"] = z.rows["x"]
        z.rows["x"][0] = 8
        z.rows["z"][1] = 9
        z.list.append(np.zeros(1))
        z.list[0] = z.list[1][1:]
        z.list[1][2] = 5
    rows, items = store.snapshot().rows, store.snapshot().list
    assert (rows["x"].tolist(), rows["z"].tolist()) == ([8, 1, 2, 3], [7, 9, 2, 3])
    assert [item.tolist() for item in items] == [[1, 1], [1, 1, 5], [0]]


def test_arrays_that_are_not_there() -> None:
    store = Store(zoo())
    store.run(lambda z: setattr(z, "maybe", np.zeros(3)))
    store.run(lambda z: z.maybe.fill(2))
    assert store.snapshot().maybe.tolist() == [2, 2, 2]
    store.run(lambda z: setattr(z, "maybe", None))
    assert store.snapshot().maybe is None
    store.run(lambda z: z.rows.pop("x"))
    with store.transaction() as tx:
        tx.merge("rows", {"y": DELETE, "w": np.arange(3)})
        tx.merge(None, {"maybe": np.ones(2), "model": {"bias": np.full(8, 3, np.float32)}})
    state = store.snapshot()
    assert (list(state.rows), state.maybe.tolist(), state.model.bias[0]) == (["w"], [1, 1], 3)


def test_what_a_task_returns_are_values() -> None:
    store = Store(zoo())

    def work(z: Any) -> Any:
        z.rows["x"][0] = 7
        return z.rows["x"], z.rows["x"][:2], [z.list[0]]

    whole, part, (item,) = store.run(work)
    assert whole is store.snapshot().rows["x"]
    assert (type(part), part.tolist()) == (np.ndarray, [7, 1])
    assert item is store.snapshot().list[0]


def test_a_draft_ends_with_its_transaction() -> None:
    store = one()
    with store.transaction() as tx:
        draft = tx.draft.items
        part = draft[2:]
        draft[0] = 1
    uses: list[Any] = [
        lambda: draft[0],
        lambda: draft.__setitem__(0, 2),
        lambda: draft.sum(),
        lambda: draft + 1,
        lambda: np.asarray(draft),
        lambda: len(draft),
        lambda: writable(draft),
        lambda: part[0],
        lambda: part.__setitem__(0, 2),
        lambda: part + 1,
    ]
    for use in uses:
        with pytest.raises(TransactionEnded):
            use()
    assert "has ended" in repr(draft)
    with store.transaction() as tx:
        draft = tx.draft.items
        seen: list[Any] = []

        def elsewhere() -> None:
            try:
                draft[0] = 3
            except BaseException as error:
                seen.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert isinstance(seen[0], TransactionEnded)


def test_an_array_that_leaked_changes_nothing_that_was_committed() -> None:
    store = one()
    leaked: list[Any] = []

    def work(root: Any) -> None:
        array = writable(root.items)
        array[0] = 7
        leaked.extend((array, array[1:], memoryview(array), root.items[2:]._reading()))

    store.run(work)
    committed = store.snapshot().items
    assert committed.tolist() == [7, 1, 2, 3, 4, 5]
    leaked[0][:] = -1
    leaked[1][:] = -2
    leaked[2][0] = -3.0
    leaked[3].flags.writeable = True
    leaked[3][:] = -4
    assert leaked[0].tolist() == [-3, -2, -4, -4, -4, -4]
    assert committed.tolist() == [7, 1, 2, 3, 4, 5]
    assert store.snapshot().items is committed
    # Nothing leaked: the copy itself is committed.
    copies: list[Any] = []

    def plainly(root: Any) -> None:
        root.items[0] = 8
        copies.append(mapping_of(root.items))

    store.run(plainly)
    assert mapping_of(store.snapshot().items) == copies[0]


def test_what_is_written_by_a_leaked_array_within_the_transaction_counts() -> None:
    store = one()
    with store.transaction() as tx:
        array = writable(tx.draft.items)
        array[0] = 1
        assert repr(tx.draft)  # It settles the bytes, and they go on.
        assert tx.value(tx.draft.items).tolist()[:2] == [1, 1]
        array[1] = 5
        tx.draft.items[2] = 6
        assert array[2] == 6
    assert store.snapshot().items.tolist() == [1, 5, 6, 3, 4, 5]
    array[:] = 0
    assert store.snapshot().items.tolist() == [1, 5, 6, 3, 4, 5]
    with pytest.raises(TypeError, match="takes the draft of an array"):
        writable(store.snapshot().items)


def test_a_transaction_that_is_given_up_changes_nothing() -> None:
    store = Store(zoo())
    before = store.snapshot()
    with pytest.raises(KeyError), store.transaction() as tx:
        tx.draft.model.weights[0] = 9
        writable(tx.draft.rows["x"])[:] = 9
        raise KeyError
    assert store.snapshot() is before
    assert (before.model.weights == 1).all()
    assert before.rows["x"].tolist() == [0, 1, 2, 3]


def test_savepoints_put_the_bytes_back() -> None:
    store = Store(zoo())
    with store.transaction() as tx:
        z = tx.draft
        z.rows["x"][:2] = 7
        lent = writable(z.rows["y"])
        lent[0] = 3
        with pytest.raises(KeyError), tx.savepoint():
            z.rows["x"][1:] = 8
            lent[:] = 8
            z.list[0][0] = 8
            late = writable(z.list[1])
            late[:] = 8
            with pytest.raises(ValueError, match="inner"), tx.savepoint():
                z.rows["x"][:] = 9
                lent[:] = 9
                raise ValueError("inner")
            assert (z.rows["x"].tolist(), z.rows["y"].tolist()) == ([7, 8, 8, 8], [8, 8, 8, 8])
            assert lent.tolist() == [8, 8, 8, 8]
            raise KeyError
        assert (z.rows["x"].tolist(), lent.tolist()) == ([7, 7, 2, 3], [3, 5, 6, 7])
        assert [item.tolist() for item in (z.list[0], z.list[1], late)] == [[0, 0], [1, 1, 1], [1, 1, 1]]
        lent[1] = 4
        late[0] = 2
        with tx.savepoint():
            z.rows["x"][3] = 1
    state = store.snapshot()
    assert (state.rows["x"].tolist(), state.rows["y"].tolist()) == ([7, 7, 2, 1], [3, 4, 6, 7])
    assert [item.tolist() for item in state.list] == [[0, 0], [2, 1, 1]]


def test_savepoints_note_arrays_once_for_each() -> None:
    store = Store(zoo())
    with store.transaction() as tx:
        row = tx.draft.rows["x"]
        with pytest.raises(KeyError), tx.savepoint():
            row[0] = 5
            for number in range(3):
                # A savepoint that ends leaves what is undone to the one around it.
                with tx.savepoint():
                    row[1] = number
            with pytest.raises(ValueError, match="inner"), tx.savepoint():
                row[:] = 9
                raise ValueError("inner")
            assert row.tolist() == [5, 2, 2, 3]
            with pytest.raises(ValueError, match="again"), tx.savepoint():
                row[:] = 8
                raise ValueError("again")
            assert row.tolist() == [5, 2, 2, 3]
            raise KeyError
        assert row.tolist() == [0, 1, 2, 3]
    assert store.version == 0


def test_a_lent_array_that_outlives_its_savepoint_goes_back_with_the_one_around_it() -> None:
    store = Store(zoo())
    with store.transaction() as tx:
        row = tx.draft.rows["x"]
        with pytest.raises(KeyError), tx.savepoint():
            with pytest.raises(ValueError, match="inner"), tx.savepoint():
                with pytest.raises(IndexError), tx.savepoint():
                    lent = writable(row)
                    lent[:] = 9
                    raise IndexError
                lent[0] = 8
                raise ValueError("inner")
            assert lent.tolist() == [0, 1, 2, 3]
            lent[:] = 7
            raise KeyError
        assert (lent.tolist(), row.tolist()) == ([0, 1, 2, 3], [0, 1, 2, 3])
        lent[3] = 4
    assert store.snapshot().rows["x"].tolist() == [0, 1, 2, 4]


def test_an_array_that_is_put_into_a_place_in_a_savepoint_goes_with_it() -> None:
    store = Store(zoo())
    with store.transaction() as tx:
        rows = tx.draft.rows
        old = rows["x"]
        old[0] = 5
        with pytest.raises(KeyError), tx.savepoint():
            old[1] = 6
            rows["x"] = np.ones(4, dtype=np.int64)
            new = rows["x"]
            new[0] = 2
            raise KeyError
        with pytest.raises(StateError, match="rolled back"):
            new[0] = 3
        assert rows["x"] is old
        assert old.tolist() == [5, 1, 2, 3]
    assert store.snapshot().rows["x"].tolist() == [5, 1, 2, 3]


def test_what_savepoints_keep_of_arrays_goes_with_the_outermost() -> None:
    with Store(zoo()).transaction() as tx:
        row = tx.draft.rows["x"]
        row[0] = 1
        with tx.savepoint():
            row[1] = 2
            kept = weakref.ref(next(one for one in gc.get_referents(tx._native) if type(one) is np.ndarray))
            assert kept() is not None
        gc.collect()
        assert kept() is None


@dataclass(frozen=True)
class Layer:
    """What stays as it is, with an array, and a history of such."""

    fixed: Const[One]
    history: AppendOnly[One]


@dataclass(frozen=True)
class Layers:
    """Layers."""

    layers: PMap[str, Layer]


def filled(value: float, count: int = 3) -> One:
    return One(np.full(count, float(value)))


def test_what_replaces_an_array_that_stays_has_the_same_items() -> None:
    store = Store(Layers(PMap(a=Layer(filled(1), PVector([filled(5)])))))

    def put(layer: Layer) -> None:
        store.run(lambda draft: draft.layers.__setitem__("a", layer))

    put(Layer(filled(1), PVector([filled(5), filled(6)])))
    for fixed in (filled(2), filled(1, 4)):
        with pytest.raises(ContractViolation, match=r"layers\['a'\]\.fixed, which is Const"):
            put(Layer(fixed, PVector([filled(5), filled(6)])))
    for history in ([], [filled(5)], [filled(5), filled(7)]):
        with pytest.raises(ContractViolation, match=r"layers\['a'\]\.history, which is append-only"):
            put(Layer(filled(1), PVector(history)))
    assert len(store.snapshot().layers["a"].history) == 2


@leaf
class Meddler:
    """A key that equals others of its class, and calls a function first, once."""

    hook: Callable[[], object] | None = None

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        hook, Meddler.hook = Meddler.hook, None
        if hook is not None:
            hook()
        return self is other


@dataclass(frozen=True)
class Meddled:
    """An array, and keys that call functions."""

    row: Shm[float64, "n"]
    keys: PMap[Meddler, int]


def test_arrays_are_not_used_while_a_draft_is_read_whole() -> None:
    first, second = Meddler(), Meddler()
    with Store(Meddled(np.zeros(3), PMap({first: 1}))).transaction() as tx:
        draft = tx.draft
        row = draft.row
        row[0] = 1
        draft.keys[second] = 2
        for use in (lambda: row[1], lambda: row.__setitem__(1, 2), lambda: writable(row)):
            Meddler.hook = use
            with pytest.raises(StateError, match="is being read whole"):
                tx.value(draft)
        assert Meddler.hook is None
        assert tx.value(draft).row.tolist() == [1, 0, 0]


def test_conflicts_of_arrays() -> None:
    store = Store(zoo())

    def other(z: Any) -> None:
        z.rows["x"][0] = 5

    # A read, a write of a part, which keeps the rest, and a look at the shape conflict with a write.
    for use in (
        lambda z: float(z.rows["x"][1]),
        lambda z: z.rows["x"].__setitem__(3, 1),
        lambda z: z.rows["x"].shape,
        lambda z: writable(z.rows["x"]),
    ):
        with pytest.raises(Conflict, match=r"has read rows\['x'\]"), store.transaction() as tx:
            use(tx.draft)
            store.run(other)
    # A draft that was not used, other arrays and a blind write do not.
    with store.transaction() as tx:
        _ = tx.draft.rows["x"]
        tx.draft.rows["y"][0] = 1
        store.run(other)
    with store.transaction() as tx:
        tx.draft.rows["x"] = np.full(4, 6)
        store.run(other)
    assert store.snapshot().rows["x"].tolist() == [6, 6, 6, 6]


def test_threads_that_write_parts_lose_nothing() -> None:
    store = Store(One(np.zeros(4)))

    def count(root: Any, place: int) -> None:
        root.items[place] += 1

    def work(place: int) -> None:
        for _ in range(50):
            store.run(count, place)

    threads = [threading.Thread(target=work, args=(place % 2,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.snapshot().items.tolist() == [100, 100, 0, 0]
    assert store.version == 200


def test_contracts_hold_for_arrays() -> None:
    store = Store(zoo())
    with pytest.raises(ContractViolation, match="reads model, which its contract does not declare"):
        store.run(sneaky)
    with pytest.raises(ContractViolation, match=r"writes model\.weights"):
        store.run(reads_only)
    with pytest.raises(ContractViolation, match=r"fixed\.scale, which is Const"):
        store.run(writes_const)
    with pytest.raises(ContractViolation, match=r"fixed\.scale"), store.transaction() as tx:
        tx.draft.fixed.scale = np.zeros(3)
    with pytest.raises(ContractViolation, match=r"fixed\.scale"), store.transaction() as tx:
        writable(tx.draft.fixed.scale)
    store.run(scale, 3, 2.0)
    assert store.version == 1


def test_states_of_dicts_have_arrays_by_policy() -> None:
    policy: Any = {"weights": Shm[float32, "n 4"], "nets[...].bias": Shm[float64, "n"]}
    store = Store({"weights": np.zeros((2, 4), np.float32), "nets": {}}, policy=policy)

    def add(root: Any, size: int) -> None:
        root["nets"]["a"] = {"bias": np.ones(size), "name": "a"}

    store.run(add, 2)
    store.run(lambda root: root["nets"]["a"]["bias"].__imul__(3))
    assert store.snapshot()["nets"]["a"]["bias"].tolist() == [3, 3]
    with pytest.raises(StateError, match="weights"):
        store.run(lambda root: root.update(weights=np.zeros((2, 3), np.float32)))
    with pytest.raises(NotFrozen):
        store.run(lambda root: root.update(other=np.zeros(3)))


def test_no_room_gives_the_transaction_up_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(zoo())
    before = store.snapshot()
    plainly = arrays.filled_from

    def full(_: Any) -> Any:
        raise OutOfMemory("no room")

    def at_commit(z: Any) -> Any:
        array = writable(z.rows["x"])
        array[0] = 9
        monkeypatch.setattr(arrays, "filled_from", full)
        return array.sum() and [array]

    leaked: list[Any] = []
    for change in (
        lambda z: z.rows["x"].__setitem__(0, 9),
        lambda z: z.rows.update(x=np.arange(4)),
        lambda z: leaked.append(at_commit(z)),
    ):
        monkeypatch.setattr(
            arrays, "filled_from", plainly if "leaked" in change.__code__.co_freevars else full
        )
        with pytest.raises(OutOfMemory, match="no room"):
            store.run(change)
    monkeypatch.setattr(arrays, "filled_from", plainly)
    assert store.snapshot() is before
    store.run(lambda z: z.rows["x"].__setitem__(0, 9))
    assert store.snapshot().rows["x"].tolist() == [9, 1, 2, 3]


def test_the_machine_has_no_room() -> None:
    store = Store(One(np.zeros(3)))
    huge = np.lib.stride_tricks.as_strided(np.zeros(1), (1 << 46,), (0,))
    with pytest.raises((OutOfMemory, MemoryError)):
        store.run(_assign, huge)
    assert store.version == 0


@pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="3.13t keeps classes for ever"
)
def test_cycles_through_drafts_of_arrays_are_collected() -> None:
    class Kept(dict[str, Any]):
        pass

    store = Store({"a": np.zeros(3)}, policy={"a": Shm[float64, "n"]})
    kept = Kept()
    transaction = store._begin(store._whole, kept)
    kept["draft"] = draft = transaction.root["a"]
    draft[0] = 1
    kept["transaction"] = transaction
    found = weakref.ref(kept)
    del kept, draft, transaction
    gc.collect()
    assert found() is None


def test_numpy_is_not_imported_before_there_is_an_array() -> None:
    program = """
import sys
from ropewalk.state import PMap, Shm, Store, dumps, float32
store = Store({"a": 1, "w": None}, policy={"x": Shm[float32, "n"]})
store.run(lambda root: root.update(a=2))
dumps(store.snapshot())
assert "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
