"""What a `__post_init__` makes of a new record is committed, and is what a journal and a worker give back."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.unit.state._derived import Pair, User, World, all_of, move, rename, shown, world

import ropewalk
from ropewalk._errors import NotFrozen
from ropewalk.state import PMap, PVector, Store


def reopened(file: Path) -> Any:
    with Store(World(Pair(0), PMap(), PVector()), journal=file) as store:
        return all_of(store.snapshot())


@pytest.mark.parametrize("compacts", [False, True])
def test_what_a_check_has_set_is_there_when_a_journal_is_opened_again(tmp_path: Path, compacts: bool) -> None:
    file = tmp_path / "world.wal"
    with Store(world(), journal=file) as store:
        with store.transaction() as tx:
            tx.draft.users["a"].name = "  BOBBY "
            tx.draft.pair.x = 3
            tx.draft.row[1].x = 7
        state = store.snapshot()
        assert (state.users["a"].name, state.users["a"].key, state.pair.y) == ("bobby!", "bob", 6000)
        if compacts:
            store.compact()
        expected = all_of(state)
    assert expected["users"]["a"]["shown"] == "bobby! (0)"
    assert reopened(file) == expected


def test_an_attribute_that_a_check_no_longer_sets_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "world.wal"
    with Store(world(), journal=file) as store:
        with store.transaction() as tx:
            tx.draft.users["a"].age = 20
        assert all_of(store.snapshot())["users"]["a"]["old"] is True
        with store.transaction() as tx:
            tx.draft.users["a"].age = 2
        expected = all_of(store.snapshot())
    assert "old" not in expected["users"]["a"]
    assert reopened(file) == expected


def test_undo_and_redo_keep_what_checks_have_set(tmp_path: Path) -> None:
    file = tmp_path / "world.wal"
    with Store(world(), journal=file) as store:
        before = all_of(store.snapshot())
        store.run(rename, "a", "Zoe")
        after = all_of(store.snapshot())
        store.undo()
        assert all_of(store.snapshot()) == before == reopened_copy(file, tmp_path)
        store.redo()
        assert all_of(store.snapshot()) == after == reopened_copy(file, tmp_path)


def reopened_copy(file: Path, folder: Path) -> Any:
    copy = folder / "copy.wal"
    copy.write_bytes(file.read_bytes())
    found = reopened(copy)
    copy.unlink()
    return found


@dataclass(frozen=True)
class Lists:
    n: int
    items: Any = ()

    def __post_init__(self) -> None:
        if self.n:
            object.__setattr__(self, "items", [self.n])


@dataclass(frozen=True)
class Beside:
    n: int

    def __post_init__(self) -> None:
        if self.n:
            object.__setattr__(self, "items", ([self.n],))


def set_five(draft: Any) -> None:
    draft["a"].n = 5


def store_elsewhere(draft: Any) -> None:
    draft["a"].n = 5
    draft["b"] = draft["a"]


@pytest.mark.parametrize("kind", [Lists, Beside])
def test_a_check_cannot_set_what_changes(kind: Any) -> None:
    store = Store({"a": kind(0)})
    with pytest.raises(NotFrozen, match=r"__post_init__ of .* has set items to a value of class"):
        store.run(set_five)
    with pytest.raises(NotFrozen, match=r"__post_init__ of .* has set items to a value of class"):
        store.run(store_elsewhere)
    assert store.version == 0


def test_what_is_beside_the_fields_is_frozen_as_they_are() -> None:
    given = Beside(1)
    store = Store({"a": given})
    kept: Any = store.snapshot()["a"]
    assert kept.items == (PVector([1]),)
    with pytest.raises(NotFrozen, match="Mutable"):
        Store({"a": with_mutable()})


class Mutable:
    pass


def with_mutable() -> Any:
    made = Beside(0)
    object.__setattr__(made, "items", Mutable())
    return made


def make_pool(kind: Any) -> Any:
    return ropewalk.Pool(1, kind=kind)


def test_workers_and_threads_commit_the_same(tmp_path: Path) -> None:
    found: list[Any] = []
    for kind in ("process", "thread"):
        file = tmp_path / f"{kind}.wal"
        with make_pool(kind) as pool, Store(world(), pool=pool, journal=file) as store:
            store.submit(rename, "a", "Zoe").result(60)
            there = all_of(store.submit(shown, "a").result(60))
            store.submit(move, "b", "c").result(60)
            again = all_of(store.submit(shown, "c").result(60))
            store.submit(rename, "c", "Eve").result(60)
            end = all_of(store.snapshot())
        assert reopened(file) == end
        found.append((there, again, end))
    assert found[0] == found[1]
    assert found[0][0]["shown"] == "zoe! (0)"


@pytest.mark.parametrize("seed", range(6))
def test_any_history_is_the_same_when_it_is_read_again(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    file = tmp_path / "world.wal"
    with Store(world(), journal=file) as store:
        for _ in range(60):
            what = dice.randrange(8)
            if what == 0 and store.version:
                with_undo(store)
            elif what == 1:
                store.compact()
            else:
                with store.transaction() as tx:
                    for _ in range(dice.randrange(1, 5)):
                        change(tx, dice)
        end = all_of(store.snapshot())
    assert reopened(file) == end


def with_undo(store: Any) -> None:
    try:
        store.undo()
    except ropewalk.HistoryGone:
        return


def change(tx: Any, dice: random.Random) -> None:
    w = tx.draft
    key = dice.choice(sorted(w.users))
    what = dice.randrange(9)
    if what == 0:
        w.users[key].name = f" N{dice.randrange(99)} "
    elif what == 1:
        w.users[key].age += dice.randrange(-5, 9)
    elif what == 2:
        w.users[dice.choice("abcdef")] = User("new", age=dice.randrange(20))
    elif what == 3:
        w.users[dice.choice("abcdef")] = w.users[key]
    elif what == 4:
        w.users[key].tags.append("t")
    elif what == 5:
        w.row.append(w.pair)
    elif what == 6:
        w.row[dice.randrange(len(w.row))].x += 1
    elif what == 7 and len(w.row) > 1:
        w.row.pop()
    else:
        with contextlib.suppress(LookupError), tx.savepoint():
            w.pair.x += 5
            w.users[key].name = "gone"
            if dice.randrange(2):
                raise LookupError
