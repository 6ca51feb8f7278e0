"""Arrays in states: what is stored, where, and what readers get."""
# The dimensions of arrays are no names of types.
# What happens in a block of a transaction is what is tested.

from __future__ import annotations

import array as plain_arrays
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from tests.unit.state._arrays import (  # noqa: E402
    One,
    assign,
    mapping_of,
    model,
    one,
    zoo,
)

import ropewalk  # noqa: E402
from ropewalk._errors import (  # noqa: E402
    NotFrozen,
    StateError,
)
from ropewalk.state import (  # noqa: E402
    PMap,
    Shm,
    Store,
    _arrays as arrays,
    float32,
    float64,
)


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
        store.run(assign, given)
        items = store.snapshot().items
        assert items.dtype == np.float64
        assert items.dtype.isnative
        assert items.flags.c_contiguous
        assert items.tolist() == list(given)


def test_a_committed_array_is_taken_as_it_is_and_a_part_of_one_is_copied() -> None:
    store, other = one(), one(3)
    items = store.snapshot().items
    other.run(assign, items)
    assert other.snapshot().items is items
    other.run(assign, items.view())
    assert mapping_of(other.snapshot().items) == mapping_of(items)
    other.run(assign, items[:3])
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
        store.run(assign, value)
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
