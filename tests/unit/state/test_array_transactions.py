"""Transactions on arrays: savepoints, conflicts, contracts, and no room."""
# ruff: noqa: PT012  # The dimensions of arrays are no names of types.
# What happens in a block of a transaction is what is tested.

from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from tests.unit.state._arrays import (  # noqa: E402
    One,
    assign,
    reads_only,
    scale,
    sneaky,
    writes_const,
    zoo,
)

from ropewalk._errors import (  # noqa: E402
    Conflict,
    ContractViolation,
    OutOfMemory,
    StateError,
)
from ropewalk.state import (  # noqa: E402
    AppendOnly,
    Const,
    PMap,
    PVector,
    Store,
    _arrays as arrays,
    writable,
)


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
        store.run(assign, huge)
    assert store.version == 0
