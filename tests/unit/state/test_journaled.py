"""Stores with a journal: what is there when it is opened again."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import pickle
import shutil
import sys
import tempfile
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.polling import is_gone, until
from tests.unit.state import plainly
from tests.unit.state.plainly import plain

from ropewalk._errors import HistoryGone, JournalCorrupt, JournalLocked, NotAJournal, StateError
from ropewalk.flows import Flows, flow
from ropewalk.journal import Journal
from ropewalk.state import AppendOnly, Const, Counter, PMap, PVector, Store, Transient

EMPTY: PVector[Any] = PVector()


@dataclass(frozen=True, slots=True)
class Range:
    low: int = 0
    high: int = 10

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("empty")


class Pair(NamedTuple):
    a: int
    b: Any = None


PAIR = Pair(1)


@dataclass(frozen=True, slots=True)
class State:
    items: PMap[Any, Any]
    range: Range = Range()
    pair: Pair = PAIR
    log: AppendOnly[Any] = EMPTY
    hits: Counter = 0
    cursor: Transient[int] = 0


@dataclass(frozen=True, slots=True)
class Other:
    items: PMap[Any, Any]


@dataclass(frozen=True, slots=True)
class Inner:
    most: Const[int]


@dataclass(frozen=True, slots=True)
class Limited:
    limit: Const[int]
    inner: Inner
    n: int = 0


@pytest.fixture
def path() -> Iterator[Path]:
    """A journal in memory, where a sync costs nothing: nothing loses power here."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        yield Path(folder) / "state.wal"


def new() -> State:
    return State(PMap({"a": 1, 1000: Range(), (1, "x"): PMap({"deep": PVector([1, 2, 3])})}))


def opened(path: Path, **options: Any) -> Store[State]:
    return Store(new(), journal=path, **options)


def work(s: Any, n: int) -> None:
    """Changes something of everything."""
    s.items["n"] = n
    s.items[n] = {"list": [n, {"x": n}]}
    if n > 1:
        s.items[n - 1]["list"][1]["x"] += 1
        s.items[n - 1]["list"].append(n)
        s.items[n - 1]["list"].pop(0)
    if n > 2:
        del s.items[n - 2]
    # Each of the fields alone does not fit to the old other one.
    s.range.low, s.range.high = 100 * n, 100 * n + 10
    s.items[1000].low, s.items[1000].high = 100 * n, 100 * n + 10
    s.pair.a += 1
    s.pair.b = [s.range, s.pair.a]
    s.items[(1, "x")]["deep"].reverse()
    s.log.append({"n": n})
    s.log += [n]
    s.hits += n
    s.cursor = n


def without_transient(state: State) -> Any:
    return tuple(getattr(state, name) for name in State.__slots__ if name != "cursor")


def commits(store: Store[State], first: int, last: int) -> None:
    for n in range(first, last):
        store.run(work, n)


# --- recovery ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", ["always", "group", "interval"])
def test_a_closed_store_is_opened_again(path: Path, sync: Any) -> None:
    with opened(path, sync=sync) as store:
        commits(store, 1, 6)
        state = store.snapshot()
        assert str(path) in repr(store)
    with opened(path, sync=sync) as store:
        assert without_transient(store.snapshot()) == without_transient(state)
        assert (store.version, store.snapshot().cursor, state.cursor) == (5, 0, 5)
        assert type(store.snapshot().range) is Range
        commits(store, 6, 8)
        state = store.snapshot()
    with opened(path) as store:
        assert without_transient(store.snapshot()) == without_transient(state)
        assert store.version == 7


def test_a_store_that_nobody_has_closed(path: Path) -> None:
    copy = path.with_name("copy.wal")
    store = opened(path)
    commits(store, 1, 4)
    shutil.copy(path, copy)
    with opened(copy) as again:
        assert without_transient(again.snapshot()) == without_transient(store.snapshot())
    state = store.snapshot()
    asyncio.run(store.arun(lambda s: setattr(s.pair, "a", 99)))
    known = weakref.ref(store)
    del store
    gc.collect()
    until(lambda: is_gone(known))
    with opened(path) as again:
        assert (again.snapshot().pair.a, again.version) == (99, 4)
        assert again.snapshot().log == state.log


def test_a_journal_that_ends_at_any_byte_is_a_beginning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    first = {"n": 0, "v": []}
    states = []
    with Store(first, journal=path) as store:
        states.append(store.snapshot())
        for _ in range(3):
            store.run(lambda d: (d.update(n=d["n"] + 1), d["v"].append(d["n"])))
            states.append(store.snapshot())
        store.undo()
        states.append(store.snapshot())
    whole = path.read_bytes()
    cut = path.with_name("cut.wal")
    found = []
    for size in range(64, len(whole) + 1):
        cut.write_bytes(whole[:size])
        with Store(first, journal=cut) as store:
            version = store.version
            assert store.snapshot() == states[version], size
            found.append(version)
            store.run(lambda d: d.update(more=1))
        with Store(first, journal=cut) as store:
            assert store.snapshot() == states[version].set("more", 1)
    assert found == sorted(found)
    assert set(found) == set(range(len(states)))


def test_random_programs_are_recovered(path: Path) -> None:
    import random

    for seed in range(30):
        chance = random.Random(seed)
        state, model = plainly.start()
        for _ in range(3):
            with Store(state, journal=path) as store:
                assert plain(store.snapshot()) == model
                for _ in range(10):
                    ops = [plainly.random_op(chance) for _ in range(chance.randrange(1, 6))]
                    store.run(lambda root, ops: [plainly.run(root, op) for op in ops], ops)
                    for op in ops:
                        plainly.run(model, op)
                    if chance.random() < 0.1:
                        store.compact()
                    if chance.random() < 0.1:
                        with contextlib.suppress(HistoryGone):
                            store.undo()
                        model = plain(store.snapshot())
                assert plain(store.snapshot()) == model
        path.unlink()


def test_damage_is_refused_with_its_place(path: Path) -> None:
    with opened(path) as store:
        commits(store, 1, 10)
    whole = bytearray(path.read_bytes())
    place = len(whole) // 2
    whole[place] ^= 0xFF
    path.write_bytes(whole)
    with pytest.raises(JournalCorrupt, match=r"\d+"):
        opened(path)
    assert path.read_bytes() == whole


def records(path: Path) -> list[bytes]:
    with Journal(path) as journal:
        return [record.payload for record in journal.records()]


def test_other_journals_are_refused(path: Path) -> None:
    @flow
    def one(run: Any) -> int:
        return 1

    flows = path.with_name("flows.wal")
    with Flows(flows) as running:
        assert running.start(one, 1, id="one").result() == 1
    plainest = path.with_name("plain.wal")
    with Journal(plainest) as journal:
        journal.append(b"hello")
    empty = path.with_name("bytes.wal")
    with Journal(empty) as journal:
        journal.append(b"")
    text = path.with_name("text.wal")
    text.write_text("no journal at all, but long enough to be one of them" * 10)
    for foreign in (flows, plainest, empty):
        before = records(foreign)
        with pytest.raises(StateError):
            opened(foreign)
        assert records(foreign) == before
    with pytest.raises(NotAJournal):
        opened(text)


def test_another_class_is_refused(path: Path) -> None:
    with opened(path) as store:
        commits(store, 1, 2)
    for other in (Other(PMap()), {"items": {}}):
        with pytest.raises(StateError, match="class"):
            Store(other, journal=path)
    with opened(path) as store:
        assert store.version == 1


def test_two_stores_of_one_file(path: Path) -> None:
    with opened(path) as store:
        with pytest.raises(JournalLocked):
            opened(path)
        store.run(work, 1)
    opened(path).close()


def test_values_that_cannot_be_pickled_change_nothing(path: Path) -> None:
    from ropewalk.state import leaf

    @leaf
    class Local:
        pass

    with opened(path) as store:
        with pytest.raises(StateError, match="picklable"):
            store.run(lambda s: s.items.update(bad=Local()))
        with pytest.raises(StateError, match="picklable"):
            store.run(lambda s: s.on_commit(lambda: None))
        assert (store.version, "bad" in store.snapshot().items) == (0, False)
        store.run(work, 1)
    with opened(path) as store:
        assert store.version == 1


def test_undo_is_recovered_and_its_history_is_not(path: Path) -> None:
    with opened(path) as store:
        commits(store, 1, 4)
        store.undo()
        store.undo()
        store.redo()
        state = store.snapshot()
    with opened(path) as store:
        assert without_transient(store.snapshot()) == without_transient(state)
        assert store.version == 6
        with pytest.raises(HistoryGone):
            store.undo()
        store.run(lambda s: s.hits.add(5))
        store.undo()
        assert without_transient(store.snapshot()) == without_transient(state)


# --- classes that change ----------------------------------------------------------------------------------------------

HEAD = """
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from ropewalk.state import PMap, PVector
"""
BEFORE = """
@dataclass(frozen=True, slots=True)
class Part:
    a: int
    b: int

class Pair(NamedTuple):
    a: int
    b: int

@dataclass(frozen=True, slots=True)
class Whole:
    part: Part
    pair: Pair
    parts: PMap[str, Part]
    old: int = 0
"""
AFTER = """
@dataclass(frozen=True, slots=True)
class Part:
    b: int
    c: int = 7
    d: Any = field(default_factory=list)

class Pair(NamedTuple):
    b: int
    c: int = 8

@dataclass(frozen=True, slots=True)
class Whole:
    parts: PMap[str, Part]
    part: Part
    pair: Pair
    new: str = "new"
"""


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    made = types.ModuleType("changing_classes")
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def test_classes_that_have_changed(path: Path, module: Any) -> None:
    exec(HEAD + BEFORE, module.__dict__)

    def first() -> Any:
        return module.Whole(module.Part(1, 2), module.Pair(1, 2), PMap({"x": module.Part(3, 4)}))

    with Store(first(), journal=path) as store:
        store.run(lambda w: w.parts.update(y=module.Part(5, 6)))
        store.run(lambda w: setattr(w.parts["x"], "b", 40))
    exec(HEAD + AFTER, module.__dict__)

    def second() -> Any:
        return module.Whole(PMap(), module.Part(0), module.Pair(0))

    with Store(second(), journal=path) as store:
        found = store.snapshot()
        assert found.parts == PMap({"x": module.Part(40, 7, PVector()), "y": module.Part(6, 7, PVector())})
        assert (found.part, found.pair, found.new) == (module.Part(2, 7, PVector()), module.Pair(2, 8), "new")
        store.run(lambda w: w.part.d.append(1))
        # The records of the old class are gone.
        store.compact()
    exec(HEAD + AFTER.replace("c: int = 7", "c: int").replace("b: int\n    c", "c"), module.__dict__)
    with Store(module.Whole(PMap(), module.Part(1), module.Pair(0)), journal=path) as store:
        assert store.snapshot().part == module.Part(7, PVector([1]))
    needed = AFTER.replace('new: str = "new"', "needed: str")
    exec(HEAD + needed, module.__dict__)
    before = records(path)
    with pytest.raises(StateError, match=r"class Whole .* no field needed, .* Whole\.needed a default"):
        Store(module.Whole(PMap(), module.Part(0), module.Pair(0), "n"), journal=path)
    assert records(path) == before
    del module.Part
    with pytest.raises(StateError, match="Part"):
        Store(Other(PMap()), journal=path)


def test_a_default_goes_when_the_state_was_written_anew(path: Path, module: Any) -> None:
    without = "@dataclass(frozen=True, slots=True)\nclass Whole:\n    a: int\n"
    with_default, needed = without + "    b: int = 7\n", without + "    b: int\n"
    exec(HEAD + without, module.__dict__)
    Store(module.Whole(1), journal=path).close()
    exec(HEAD + with_default, module.__dict__)
    with Store(module.Whole(0), journal=path) as store:
        store.run(lambda w: setattr(w, "a", 2))
    exec(HEAD + needed, module.__dict__)
    content = path.read_bytes()
    with pytest.raises(StateError, match=r"Whole\.b a default\. .* call compact\(\)"):
        Store(module.Whole(0, 0), journal=path)
    assert path.read_bytes() == content
    exec(HEAD + with_default, module.__dict__)
    with Store(module.Whole(0), journal=path) as store:
        store.compact()
    exec(HEAD + needed, module.__dict__)
    with Store(module.Whole(0, 0), journal=path) as store:
        assert store.snapshot() == module.Whole(2, 7)


# --- refused files ----------------------------------------------------------------------------------------------------


def left(path: Path, open_it: Callable[[], object], error: type[Exception], match: str) -> None:
    """Opens a store on a file, which must be refused and left as it is."""
    os.utime(path, ns=(10**18, 10**18))
    content, stat = path.read_bytes(), path.stat()
    with pytest.raises(error, match=match):
        open_it()
    assert path.read_bytes() == content
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (stat.st_mtime_ns, stat.st_ino)


@pytest.mark.parametrize("end", ["closed", "open", "torn"])
def test_a_refused_journal_is_not_changed(tmp_path: Path, end: str) -> None:
    foreign, other = tmp_path / "foreign", tmp_path / "other"

    def write(file: Path, fill: Callable[[], Any]) -> None:
        # The copy is that of a writer that has died.
        source = file.with_suffix(".source")
        filled = fill()
        if end == "closed":
            filled.close()
            shutil.copy(source, file)
        else:
            shutil.copy(source, file)
            filled.close()
        if end == "torn":
            with file.open("ab") as tail:
                tail.write(b"x" * 100)

    def journal() -> Journal:
        made = Journal(foreign.with_suffix(".source"))
        made.append(pickle.dumps(("a", 1)))
        return made

    def store() -> Store[Other]:
        made = Store(Other(PMap()), journal=other.with_suffix(".source"))
        made.run(lambda d: d.items.update(x=1))
        return made

    write(foreign, journal)
    write(other, store)
    left(foreign, lambda: opened(foreign), StateError, "not one of a store")
    left(
        other, lambda: opened(other), StateError, "a state of class Other, and the program gives one of State"
    )
    left(other, lambda: Store(Other(PMap()), journal=other, policy={"a": Const}), TypeError, "policy")
    text = tmp_path / "text"
    text.write_text("no journal")
    left(text, lambda: opened(text), NotAJournal, "text")
    with Store(Other(PMap()), journal=other) as found:
        assert found.snapshot() == Other(PMap(x=1))


def test_awaited_commits(path: Path) -> None:
    async def main() -> None:
        with opened(path) as store:
            await asyncio.gather(*(store.arun(lambda s: s.hits.add(1)) for _ in range(50)))
            with pytest.raises(KeyError):
                await store.arun(lambda s: s.items["none"])
            # Without an await in between nobody waits for it, and it is written all the same.
            waiting = asyncio.ensure_future(store.arun(lambda s: s.hits.add(1)))
            await asyncio.sleep(0)
            store.close()
            await asyncio.wait_for(waiting, 30)

    asyncio.run(main())
    with opened(path) as store:
        assert (store.snapshot().hits, store.version) == (51, 51)


def test_a_commit_whose_store_is_closed_meanwhile_does_not_wait_for_ever(path: Path) -> None:
    async def main() -> None:
        store = opened(path)
        await store.arun(lambda s: s.hits.add(1))
        done = store._execute(lambda s: s.hits.add(1), (), {})[1]
        store.close()
        assert done is not None
        await asyncio.wait_for(store._syncer.settled(done), 30)

    asyncio.run(main())
    with opened(path) as store:
        assert store.version == 2


def test_constants_that_the_program_gives_otherwise_are_logged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Store(Limited(3, Inner(7)), journal=path):
        pass
    with Store(Limited(3, Inner(7), 1), journal=path):
        assert not caplog.records
    with Store(Limited(4, Inner(8)), journal=path) as store:
        assert store.snapshot() == Limited(3, Inner(7))
    (record,) = caplog.records
    assert "limit, inner.most" in record.getMessage()
    caplog.clear()
    given = {"fee": 1, "n": 0}
    file = path.with_suffix(".policy")
    with Store(given, journal=file, policy={"fee": Const}):
        pass
    with Store({"fee": 2, "n": 3}, journal=file, policy={"fee": Const}) as policed:
        assert policed.snapshot()["fee"] == 1
    assert "values that it has of fee," in caplog.text
