"""Drafts of arrays: what a transaction reads and writes, and what outlives it."""
# ruff: noqa: F821, UP037  # The dimensions of arrays are no names of types.
# What happens in a block of a transaction is what is tested.

from __future__ import annotations

import copy
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from tests.unit.state._arrays import (  # noqa: E402
    mapping_of,
    one,
    zoo,
)

from ropewalk._errors import (  # noqa: E402
    StateError,
    TransactionEnded,
)
from ropewalk.state import (  # noqa: E402
    DELETE,
    PMap,
    Shm,
    Store,
    float64,
    leaf,
    writable,
)


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


def test_a_draft_that_isassigned_elsewhere_is_a_copy() -> None:
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
