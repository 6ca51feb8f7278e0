"""Arrays in states: versions, journals, and histories as NumPy has them."""
# ruff: noqa: F722, F821, PT012, UP037  # The dimensions of arrays are no names of types.
# What happens in a block of a transaction is what is tested.

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from tests.unit.state._arrays import (  # noqa: E402
    Zoo,
    zoo,
)

from ropewalk._errors import (  # noqa: E402
    Conflict,
    NotJson,
    StateError,
)
from ropewalk.journal import Journal  # noqa: E402
from ropewalk.state import (  # noqa: E402
    PVector,
    Shm,
    Store,
    _arrays as arrays,
    dumps,
    float64,
    int64,
    loads,
    writable,
)
from ropewalk.state._codec import dumps as pickled  # noqa: E402


@dataclass(frozen=True, slots=True)
class One:
    """One array of any length."""

    items: Shm[float64, "n"]
    other: int = 0


def one(size: int = 6) -> Store[One]:
    return Store(One(np.arange(float(size))))


@dataclass(frozen=True, slots=True)
class Table:
    head: Shm[int64, "n"]
    rows: PVector[Shm[int64, "n"]]
    square: Shm[int64, "m m"]


def test_versions_have_their_arrays() -> None:
    store = Store(zoo())
    for number in range(1, 4):
        store.run(lambda z, number: z.rows["x"].__setitem__(0, number), number)
    assert [store.at(version).rows["x"][0] for version in range(4)] == [0, 1, 2, 3]
    (change,) = store.diff(1, 3)
    assert (change["op"], change["path"], change["value"]) == ("replace", "/rows/x", store.at(3).rows["x"])
    assert change["value"] is store.at(3).rows["x"], "nothing is copied"
    store.undo()
    assert store.snapshot().rows["x"] is store.at(2).rows["x"]
    store.undo()
    store.redo()
    assert store.snapshot().rows["x"].tolist() == [2, 1, 2, 3]
    entry = next(iter(store.audit(1)))
    assert [one["path"] for one in (*entry.patch, *entry.inverse)] == ["/rows/x", "/rows/x"]
    assert entry.inverse[0]["value"] is store.at(0).rows["x"]


def test_json_of_arrays() -> None:
    store = Store(zoo(1))
    text = dumps(store.snapshot())
    state = loads(text, Zoo)
    other = Store(state)
    assert (other.snapshot().model.weights == 1).all()
    assert dumps(other.snapshot()) == text
    with store.transaction() as tx, pytest.raises(NotJson, match="a draft"):
        dumps(tx.draft.rows["x"])


def test_a_snapshot_is_pickled_by_value() -> None:
    items = pickle.loads(pickle.dumps(one().snapshot())).items
    assert (type(items), items.tolist()) == (np.ndarray, [0, 1, 2, 3, 4, 5])
    assert arrays.sealed_memory(items) is None


def test_a_small_change_is_a_small_record(tmp_path: Path) -> None:
    path = tmp_path / "a.wal"
    size = 1 << 17
    start = One(np.zeros(size))
    #: Each with the bytes that its record has.
    changes: list[Any] = [
        (lambda root: root.items.__setitem__(5, np.nan), 4096),
        (lambda root: root.items.__setitem__(slice(512 * 3 - 1, 512 * 4 + 1), 1), 3 * 4096),
        (lambda root: root.items.__setitem__(-1, -0.0), 4096),
        (lambda root: root.items.__setitem__(slice(0, size // 4), 4), size * 2),
        (lambda root: root.items.fill(2), size * 8),
        (lambda root: root.items.__setitem__(0, 2), 0),
        (lambda root: setattr(root, "items", np.ones(size)), size * 8),
    ]
    states: list[Any] = []
    with Store(start, journal=path) as store:
        for change, _ in changes:
            store.run(change)
            states.append(store.snapshot().items)
        store.undo()
        states.append(store.snapshot().items)
    records = [len(record.payload) for record in Journal(path).records()]
    expected = [size * 8, *(grown for _, grown in changes), size * 8]
    assert len(records) == len(expected)
    for found, wanted in zip(records, expected, strict=True):
        assert wanted <= found < wanted + 1000
    with Store(start, journal=path) as store:
        assert store.version == len(states)
        assert store.snapshot().items.tobytes() == states[-1].tobytes()
        store.compact()
        with pytest.raises(ValueError, match="WRITEABLE"):
            store.snapshot().items.flags.writeable = True
    with Store(start, journal=path) as store:
        assert store.snapshot().items.tobytes() == states[-1].tobytes()


def test_a_journal_with_arrays_that_was_cut_is_a_beginning(tmp_path: Path) -> None:
    path, cut = tmp_path / "a.wal", tmp_path / "cut.wal"
    start = Table(np.arange(3), PVector([np.arange(3)]), np.zeros((1, 1), np.int64))
    with Store(start, journal=path) as store:
        states = [store.snapshot()]
        for number in range(3):
            store.run(_change_table, number)
            states.append(store.snapshot())
    whole = path.read_bytes()
    ends: list[int] = []
    for size in sorted({*range(64, len(whole), 13), len(whole)}):
        cut.write_bytes(whole[:size])
        with Store(start, journal=cut) as store:
            ends.append(store.version)
            assert _plain(store.snapshot()) == _plain(states[store.version])
    assert sorted(set(ends)) == [0, 1, 2, 3]
    assert ends == sorted(ends)


def _change_table(table: Any, number: int) -> None:
    table.head[number] = 9
    table.rows.append(np.arange(number, number + 3))
    table.square = np.full((number + 1, number + 1), number)


def _plain(table: Table) -> Any:
    return [table.head.tolist(), [row.tolist() for row in table.rows], table.square.tolist()]


def test_damaged_changes_are_refused(tmp_path: Path) -> None:
    start = One(np.zeros(1024))
    for number, change in enumerate(
        (
            (5, ("items",), ("float64", (1024,), ((8192 - 1, b"12"),))),
            (5, ("items",), ("float64", (1024,), ((-1, b"12"),))),
            (5, ("items",), ("float64", (1024,), ((0, 3),))),
            (5, ("items",), ("float64", (1023,), ())),
            (5, ("items",), ("int64", (1024,), ())),
            (5, ("items",), ()),
            (5, ("other",), ("float64", (1024,), ())),
            (0, ("items",), np.zeros(3, np.float32)),
            (0, ("items",), np.array([object()])),
        )
    ):
        path = tmp_path / str(number)
        with Store(start, journal=path):
            pass
        with Journal(path) as journal:
            journal.append(pickled(("commit", 1, (None, None, None, None), [change], (), 0.0)))
        with pytest.raises(StateError):
            Store(start, journal=path)
    for parts in (("object", (1,), b"12345678"), ("float64", (1,), b"1"), ("float64", [1], b"12345678")):
        with pytest.raises(StateError):
            arrays.restored(*parts)
    for parts in (
        ("float64", (-1, -1), b"12345678"),
        ("V8", (1,), b"12345678"),
        ("float64", (True,), b"12345678"),
    ):
        with pytest.raises(StateError):
            arrays.restored(*parts)


def test_a_journal_of_other_arrays_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.wal"
    policy: Any = {"items": Shm[float64, "n"]}
    with Store({"items": np.zeros(3)}, policy=policy, journal=path) as store:
        store.run(lambda root: root["items"].fill(2))
    with pytest.raises(
        StateError, match=r"\['items'\]: an array of float64 \(3,\) was given for Shm\[float64, \"4\"\]"
    ):
        Store({"items": np.zeros(4)}, policy={"items": Shm[float64, "4"]}, journal=path)
    with Store({"items": np.zeros(3)}, policy=policy, journal=path) as store:
        assert store.snapshot()["items"].tolist() == [2, 2, 2]


def test_effects_get_arrays_of_their_own(tmp_path: Path) -> None:
    came: list[Any] = []
    with Store(One(np.zeros(3)), journal=tmp_path / "a.wal") as store, store.transaction() as tx:
        tx.draft.items[0] = 1
        tx.on_commit(_note, tx.draft.items, np.ones(2))
    came = list(_NOTED)
    assert came[0][0].tolist() == [1, 0, 0]
    assert came[0][1].tolist() == [1, 1]


_NOTED: list[Any] = []


def _note(*values: Any) -> None:
    _NOTED.append(values)


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_are_those_of_numpy(seed: int, tmp_path: Path) -> None:
    """Slices are written with savepoints, conflicts, undo and redo, and the journal is opened again."""
    draw = random.Random(seed)
    path = tmp_path / "a.wal"
    size = draw.choice([40, 5000])
    start = One(np.zeros(size))
    store = Store(start, journal=path)
    history = [np.zeros(size)]
    #: The states to go back to, and where it stands in them.
    line, place = [history[0]], 0

    def change(draft: Any, model: Any) -> None:
        first, last = sorted(draw.choices(range(size + 1), k=2))
        value = draw.randrange(100)
        how = draw.randrange(6)
        if how == 0:
            draft.items[first:last] = value
            model[first:last] = value
        elif how == 1:
            draft.items[first:last] += value
            model[first:last] += value
        elif how == 2:
            draft.items *= 2
            model *= 2
            np.remainder(draft.items, 1009, out=draft.items)
            np.remainder(model, 1009, out=model)
        elif how == 3:
            draft.items[draft.items > value] = value
            model[model > value] = value
        elif how == 4:
            writable(draft.items)[first:last] = value
            model[first:last] = value
        else:
            draft.items = model[::-1]
            model[:] = model[::-1].copy()
        assert draft.items.tolist() == model.tolist()

    for _ in range(60):
        event = draw.randrange(10)
        now = history[-1]
        if event < 6:
            model = now.copy()
            with store.transaction() as tx:
                for _ in range(draw.randrange(1, 4)):
                    if draw.random() < 0.4:
                        kept = model.copy()
                        with pytest.raises(KeyError), tx.savepoint():
                            change(tx.draft, model)
                            raise KeyError
                        model = kept
                        assert tx.draft.items.tolist() == model.tolist()
                    else:
                        change(tx.draft, model)
                tx.draft.other += 1
        elif event == 6:
            with pytest.raises(Conflict), store.transaction() as tx:
                assert tx.draft.items[0] == now[0]
                change(tx.draft, now.copy())
                store.run(lambda root: root.items.__setitem__(0, -5))
            model = now.copy()
            model[0] = -5
        elif event == 7 and place > 0:
            store.undo()
            place -= 1
            model = line[place]
            history.append(model)
            assert store.snapshot().items.tolist() == model.tolist()
            continue
        elif event == 8 and place < len(line) - 1:
            store.redo()
            place += 1
            model = line[place]
            history.append(model)
            assert store.snapshot().items.tolist() == model.tolist()
            continue
        elif event == 9:
            store.close()
            store = Store(start, journal=path)
            line, place = [now], 0
            assert store.snapshot().items.tolist() == now.tolist()
            continue
        else:
            continue
        line, place = [*line[: place + 1], model], place + 1
        history.append(model)
        assert store.snapshot().items.tolist() == model.tolist()
    first = store.history()[0].number
    for version, model in enumerate(history):
        if version >= first:
            assert store.at(version).items.tolist() == model.tolist()
    store.close()
    with Store(start, journal=path) as again:
        assert again.snapshot().items.tolist() == history[-1].tolist()
