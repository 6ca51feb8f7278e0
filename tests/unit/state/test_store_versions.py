"""The versions of a `Store`, undo and redo, effects, its end, and the kinds of states."""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import logging
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from tests.polling import is_gone

import ropewalk
from ropewalk._errors import HistoryGone, NotFrozen, StateError, StoreClosed
from ropewalk.state import AppendOnly, Counter, PMap, PVector, Store, Transient, task


@dataclass(frozen=True, slots=True)
class Inner:
    n: int
    cursor: Transient[int] = 0


MANY = PMap({"a": Inner(0)})
EMPTY: PVector[Any] = PVector()


@dataclass(frozen=True, slots=True)
class State:
    n: int = 0
    inner: Inner = Inner(0)
    log: AppendOnly[int] = EMPTY
    hits: Counter = 0
    cursor: Transient[int] = 0
    many: PMap[str, Inner] = MANY


def put(s: Any, n: int) -> None:
    s.n = n


# --- versions ---------------------------------------------------------------------------------------------------------


def test_history_and_at() -> None:
    store = Store(State(), history=5)
    for n in range(1, 4):
        store.run(put, n)
    with store.transaction("named", who="me", why="a test") as tx:
        tx.draft.n = 4
    assert tx.version == 4
    assert [(one.number, one.state.n) for one in store.history()] == [(n, n) for n in range(5)]
    assert [one.number for one in store.history(3)] == [3, 4]
    assert store.history(99) == []
    meta = store.history()[-1].meta
    assert (meta.label, meta.who, meta.why, meta.task) == ("named", "me", "a test", None)
    assert store.history(3)[0].meta.task == "put"
    assert store.history(1)[0].at > 1e9
    assert store.at(2).n == 2
    store.run(put, 5)
    store.run(put, 6)
    assert [one.number for one in store.history()] == [2, 3, 4, 5, 6]
    for gone in (1, 7, -1):
        with pytest.raises(HistoryGone, match="2 to 6"):
            store.at(gone)


def test_undo_and_redo_walk_the_branches() -> None:
    store = Store(State())
    with pytest.raises(HistoryGone, match="nothing to undo"):
        store.undo()
    with pytest.raises(HistoryGone, match="nothing to redo"):
        store.redo()
    for n in (1, 2, 3):
        store.run(put, n)
    with pytest.raises(HistoryGone):
        store.redo()

    def walk(steps: str) -> list[int]:
        found = []
        for step in steps:
            _ = store.undo() if step == "u" else store.redo()
            found.append(store.snapshot().n)
        return found

    assert walk("uurruuu") == [2, 1, 2, 3, 2, 1, 0]
    with pytest.raises(HistoryGone):
        store.undo()
    assert walk("rr") == [1, 2]
    # A commit after an undo begins a branch; what was undone is out of reach.
    store.run(put, 7)
    with pytest.raises(HistoryGone):
        store.redo()
    assert walk("uurr") == [2, 1, 2, 7]
    assert store.version == 3 + 7 + 2 + 1 + 4
    assert store.undo("because") == store.version
    assert store.history()[-1].meta.label == "undo"
    assert store.history()[-1].meta.why == "because"


def test_undo_beyond_what_is_kept() -> None:
    store = Store(State(), history=3)
    for n in range(1, 6):
        store.run(put, n)
    store.undo()
    with pytest.raises(HistoryGone, match="kept"):  # noqa: PT012
        for _ in range(5):
            store.undo()
    assert store.snapshot().n >= 3


def test_undo_goes_as_far_as_versions_are_kept() -> None:
    store = Store(State(), history=10)
    for n in range(1, 31):
        store.run(put, n)
    # Each undo makes a version of its own, and takes none of the older ones away.
    for n in range(29, 20, -1):
        store.undo()
        assert store.snapshot().n == n
    with pytest.raises(HistoryGone, match="version 20 is kept no longer"):
        store.undo()
    for n in range(22, 31):
        store.redo()
        assert store.snapshot().n == n
    assert len(store.history()) == 10


def test_commits_of_transient_places_alone_are_no_steps_of_undo() -> None:
    store = Store(State())

    def look(s: Any, cursor: int) -> None:
        s.cursor = cursor
        s.inner.cursor = cursor

    store.run(put, 1)
    store.run(put, 2)
    store.run(look, 7)
    store.undo()
    assert (store.snapshot().n, store.snapshot().cursor, store.snapshot().inner.cursor) == (1, 7, 7)
    # It does not come between an undo and its redo either.
    store.run(look, 8)
    store.redo()
    assert (store.snapshot().n, store.snapshot().cursor, store.snapshot().inner.cursor) == (2, 8, 8)
    store.undo()
    store.undo()
    assert (store.snapshot().n, store.snapshot().cursor) == (0, 8)


def test_transient_places_are_not_undone() -> None:
    store = Store(State())

    def work(s: Any) -> None:
        s.n += 1
        s.inner.n += 1
        s.cursor += 1
        s.inner.cursor += 1
        s.many["a"].n += 1
        s.many["a"].cursor += 1
        s.log.append(1)
        s.hits += 1

    store.run(work)
    store.run(work)
    store.undo()
    found = store.snapshot()
    assert (found.n, found.inner, found.cursor, found.hits, len(found.log)) == (1, Inner(1, 2), 2, 1, 1)
    assert found.many == PMap({"a": Inner(1, 2)})
    store.redo()
    found = store.snapshot()
    assert (found.n, found.inner, found.cursor, found.hits, len(found.log)) == (2, Inner(2, 2), 2, 2, 2)
    assert found.many == PMap({"a": Inner(2, 2)})


def test_transient_places_of_a_policy_are_not_undone() -> None:
    policy = {"cursor": Transient, "late": Transient, "view.zoom": Transient, "rows[...].open": Transient}
    start = {"n": 0, "cursor": 1, "gone": 1, "view": {"zoom": 1, "n": 0}, "rows": {"x": {"open": 0, "n": 0}}}
    store = Store(start, policy=policy)

    def work(root: Any) -> None:
        root["n"] += 1
        root["cursor"] += 1
        root["late"] = 7
        del root["gone"]
        root["view"].update(zoom=5, n=1)
        root["rows"]["x"].update(open=5, n=1)

    store.run(work)
    after = store.snapshot()
    store.undo()
    kept = {"cursor": 2, "late": 7, "view": {"zoom": 5, "n": 0}, "rows": {"x": {"open": 5, "n": 0}}}
    assert store.snapshot() == Store({**start, **kept}).snapshot()
    store.redo()
    assert store.snapshot() == after
    store.run(lambda root: root.pop("late"))
    store.undo()
    # There is nothing to undo in a commit that has changed transient places alone: the one before it was undone.
    assert store.snapshot() == Store({**start, **kept}, policy=policy).snapshot().delete("late")
    store.redo()
    assert store.snapshot() == after.delete("late")


def test_a_state_is_swapped_as_it_is() -> None:
    @dataclass(frozen=True, slots=True)
    class Plain:
        n: int = 0
        hits: Counter = 0

    store = Store(Plain(), invariants=[lambda s: s.n < 5])
    store.run(put, 1)
    store.run(lambda s: s.hits.add(1))
    states = [version.state for version in store.history()]
    store.undo()
    assert store.snapshot() is states[1]
    store.undo("why")
    assert store.snapshot() is states[0]
    store.redo()
    store.redo()
    assert store.snapshot() is states[2]
    assert [version.meta[:3:2] for version in store.history(3)] == [
        ("undo", None),
        ("undo", "why"),
        ("redo", None),
        ("redo", None),
    ]
    with pytest.raises(HistoryGone, match="nothing to redo"):
        store.redo()
    store.close()
    with pytest.raises(StoreClosed):
        store.undo()


def test_undo_while_others_commit() -> None:
    store = Store(State(), history=10_000)

    def work(number: int) -> None:
        for _ in range(100):
            store.run(lambda s: s.log.append(number))
            store.undo()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = store.history()
    assert [one.number for one in kept] == list(range(801))
    for one, two in itertools.pairwise(kept):
        grown = len(two.state.log) - len(one.state.log)
        assert grown <= 0 if two.meta.label == "undo" else grown == 1


# --- effects ----------------------------------------------------------------------------------------------------------


def test_effects_run_after_the_commit_and_in_order() -> None:
    store = Store(State())
    seen: list[Any] = []

    def effect(name: str) -> None:
        seen.append((name, store.snapshot().n))

    def work(s: Any, n: int) -> None:
        s.on_commit(effect, f"a{n}")
        s.n = n
        s.inner.on_commit(effect, f"b{n}")

    store.run_all([(work, 1), (work, 2)])
    assert seen == [("a1", 2), ("b1", 2), ("a2", 2), ("b2", 2)]
    store.run(lambda s: s.on_commit(effect, "alone"))
    assert seen[-1] == ("alone", 2)
    assert store.version == 3


def test_effects_that_commit_themselves() -> None:
    store = Store(State())
    seen: list[int] = []

    def again(n: int) -> None:
        seen.append(n)
        if n < 5:
            store.run(lambda s: (put(s, n + 1), s.on_commit(again, n + 1)))
        seen.append(-n)

    store.run(lambda s: s.on_commit(again, 1))
    assert seen == [1, -1, 2, -2, 3, -3, 4, -4, 5, -5]


def test_an_effect_gets_the_values_of_drafts_and_a_key() -> None:
    store = Store(State())
    seen: list[Any] = []

    def effect(inner: Any, *, key: str) -> None:
        seen.append((inner, key))

    def work(s: Any) -> None:
        s.inner.n = 5
        s.on_commit(effect, s.inner)
        s.inner.n = 6
        s.on_commit(effect, s.inner)

    store.run(work)
    assert [inner for inner, _ in seen] == [Inner(5), Inner(6)]
    assert len({key for _, key in seen}) == 2


def test_an_effect_that_fails_is_logged_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    store = Store(State())
    seen: list[int] = []

    def fail() -> None:
        raise ArithmeticError("effect")

    def work(s: Any) -> None:
        s.on_commit(fail)
        s.on_commit(seen.append, 1)

    with caplog.at_level(logging.ERROR, "ropewalk.state"):
        store.run(work)
    assert seen == [1]
    assert "fail" in caplog.text
    assert "ArithmeticError" in caplog.text


def test_an_interrupted_delivery_goes_on_with_the_next_commit() -> None:
    store = Store(State())
    seen: list[int] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    def work(s: Any) -> None:
        s.on_commit(interrupt)
        s.on_commit(seen.append, 1)

    with pytest.raises(KeyboardInterrupt):
        store.run(work)
    assert store.version == 1
    store.run(lambda s: s.on_commit(seen.append, 2))
    assert seen == [1, 2]


@pytest.mark.parametrize("wrong", [None, 3, "print"])
def test_on_commit_takes_functions(wrong: Any) -> None:
    with pytest.raises(TypeError, match="on_commit takes a function"):
        Store(State()).run(lambda s: s.on_commit(wrong))


async def sent() -> None:
    pass


class Sender:
    async def __call__(self) -> None:
        pass


@pytest.mark.parametrize("wrong", [sent, functools.partial(sent), Sender()], ids=repr)
def test_on_commit_takes_no_coroutine_functions(wrong: Any) -> None:
    store = Store(State())
    with pytest.raises(TypeError, match="no event loop awaits it"):
        store.run(lambda s: s.on_commit(wrong))
    with store.transaction() as tx, pytest.raises(TypeError, match="no event loop awaits it"):
        tx.on_commit(wrong)


@pytest.mark.filterwarnings("error")
def test_an_effect_that_returns_a_coroutine_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    Store(State()).run(lambda s: s.on_commit(lambda: sent()))
    assert "has failed" in caplog.text
    assert "which nothing awaits" in caplog.text


def test_effects_are_not_kept() -> None:
    class Mark:
        def method(self) -> None:
            pass

    mark = Mark()
    known = weakref.ref(mark)
    store = Store(State())
    store.run(lambda s, m: s.on_commit(m.method), mark)
    store.run(lambda s, m: s.on_commit(lambda: m), mark)
    del mark
    gc.collect()
    assert is_gone(known)


# --- the end ----------------------------------------------------------------------------------------------------------


def test_a_closed_store() -> None:
    store = Store(State())
    with store.transaction() as tx:
        tx.draft.n = 1
    kept = store.history()
    with store:
        assert "version 1" in repr(store)
    assert store.closed
    assert "closed" in repr(store)
    store.close()
    for use in (
        store.snapshot,
        lambda: store.version,
        lambda: store.run(put, 2),
        lambda: store.run_all([(put, 2)]),
        lambda: store.transaction().__enter__(),
        store.undo,
    ):
        with pytest.raises(StoreClosed):
            use()
    assert store.history() == kept


def test_a_store_that_is_closed_within_a_transaction() -> None:
    store = Store(State())
    with pytest.raises(StoreClosed), store.transaction() as tx:  # noqa: PT012
        tx.draft.n = 1
        store.close()
    assert store.history()[-1].number == 0


def test_a_store_is_collected_with_what_refers_to_it() -> None:
    store = Store(State())
    store.run(put, 1)
    known = weakref.ref(store)
    hold = [store]
    hold.append(hold)  # type: ignore[arg-type]
    store.itself = (store, hold)  # type: ignore[attr-defined]
    del store, hold
    gc.collect()
    assert is_gone(known)


@pytest.mark.parametrize(
    "options", [{"history": 0}, {"retries": -1}, {"history": "x"}, {"retries": 1.5}, {"sync": "allways"}]
)
def test_wrong_options(options: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        Store(State(), **options)


# --- kinds of states --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loose:
    """A record without slots, with a field that follows from another one."""

    a: int
    double: int = field(init=False, default=0)
    extra: Any = None

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("negative")
        object.__setattr__(self, "double", 2 * self.a)


class Pair(NamedTuple):
    a: int
    extra: Any = None


@pytest.mark.parametrize("make", [Loose, Pair])
def test_records(make: Any) -> None:
    store = Store({"one": make(1), "many": [make(2)]})

    def work(d: Any) -> None:
        d["one"].a += 1
        d["one"].extra = {"x": [1]}
        d["one"].extra["x"].append(2)
        d["many"][0].a = 7
        d["many"].append(make(3))
        d["many"][1].a = 4

    store.run(work)
    found = store.snapshot()
    assert found["one"] == make(2)._replace(extra=found["one"].extra) if make is Pair else True
    assert (found["one"].a, found["one"].extra) == (2, PMap({"x": PVector([1, 2])}))
    assert [one.a for one in found["many"]] == [7, 4]
    if make is Loose:
        assert (found["one"].double, found["many"][1].double) == (4, 8)
        with pytest.raises(ValueError, match="negative"):
            store.run(lambda d: setattr(d["many"][1], "a", -1))
    assert store.version == 1


def test_fields_are_checked_together() -> None:
    @dataclass(frozen=True, slots=True)
    class Range:
        low: int
        high: int

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("empty")

    store = Store(Range(1, 2))

    def move(r: Any, low: int, high: int) -> None:
        r.low = low
        r.high = high

    store.run(move, 10, 20)
    with pytest.raises(ValueError, match="empty"):
        store.run(move, 30, 20)
    assert store.snapshot() == Range(10, 20)
    store.undo()
    assert store.snapshot() == Range(1, 2)


def test_structs() -> None:
    msgspec = pytest.importorskip("msgspec")

    class Struct(msgspec.Struct, frozen=True):  # type: ignore[name-defined, misc]
        low: int
        high: int
        extra: Any = None

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("empty")

    of_records(Struct)


def test_models() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        model_config = pydantic.ConfigDict(frozen=True, arbitrary_types_allowed=True)
        low: int
        high: int
        extra: Any = None

        @pydantic.model_validator(mode="after")
        def check(self) -> Any:
            if self.low > self.high:
                raise ValueError("empty")
            return self

    of_records(Model)


def test_models_with_cached_properties() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        model_config = pydantic.ConfigDict(frozen=True, extra="forbid")
        low: int
        high: int

        @functools.cached_property
        def width(self) -> int:
            return self.high - self.low

    store = Store({"r": Model(low=1, high=2)})
    assert store.snapshot()["r"].width == 1

    def widen(d: Any) -> None:
        d["r"].high = 9

    store.run(widen)
    assert store.snapshot()["r"].width == 8


def of_records(kind: Any) -> None:
    store = Store({"r": kind(low=1, high=2)})

    def move(d: Any, low: int, high: int) -> None:
        d["r"].low = low
        d["r"].high = high
        d["r"].extra = [d["r"].low]

    store.run(move, 10, 20)
    with pytest.raises(ValueError, match="empty"):
        store.run(move, 30, 20)
    found = store.snapshot()["r"]
    assert (type(found), found.low, found.high, found.extra) == (kind, 10, 20, PVector([10]))
    store.undo()
    assert store.snapshot()["r"].low == 1


def test_states_that_are_none() -> None:
    for wrong in (3, "text", [1], None, (1, 2), {1, 2}):
        with pytest.raises(StateError, match="record or a mapping"):
            Store(wrong)
    with pytest.raises(NotFrozen):
        Store({"x": object()})
    given = {"x": [1]}
    store = Store(given)
    given["x"].append(2)
    assert store.snapshot() == PMap({"x": PVector([1])})


def test_who_and_why_of_tasks() -> None:
    store = Store(State())
    other = Store(State())
    with store.by("eve", why="a"):
        store.run(put, 1)
        with store.by(why="b"), other.by("bob"):
            store.run_all([(put, 2)])
            other.run(put, 1)
            asyncio.run(store.arun(put, 3))
        with store.transaction("t", who="ann") as tx:
            tx.draft.n = 4
        store.undo()
        store.undo("c")
        # A thread has a context of its own.
        thread = threading.Thread(target=lambda: store.run(put, 5))
        thread.start()
        thread.join()
    store.run(put, 6)
    assert [(one.who, one.why) for one in store.audit()] == [
        ("eve", "a"),
        ("eve", "b"),
        ("eve", "b"),
        ("ann", "a"),
        ("eve", "a"),
        ("eve", "c"),
        (None, None),
        (None, None),
    ]
    assert [one.who for one in other.audit()] == ["bob"]


def test_an_audit_with_a_gap_is_refused() -> None:
    store = Store(State(), history=5)
    for n in range(1, 11):
        store.run(put, n)
    assert [one.version for one in store.audit()] == [7, 8, 9, 10]
    assert [one.version for one in store.audit(7)] == [7, 8, 9, 10]
    assert not list(store.audit(11))
    for first in (1, 6, 12):
        with pytest.raises(HistoryGone):
            store.audit(first)


def test_what_is_set_on_a_transaction_itself_is_refused() -> None:
    store = Store(State())
    block = store.transaction("t")
    assert "write with store.transaction() as tx" in repr(block)
    with pytest.raises(AttributeError, match="has not begun"):
        _ = block.draft
    with store.transaction() as tx:
        with pytest.raises(AttributeError, match=r"tx\.draft\.n"):
            tx.n = 3  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match=r"tx\.draft\.n"):
            _ = tx.n
        with pytest.raises(AttributeError, match="cannot be set"):
            tx.draft = 3
        tx.draft.n = 3
    assert store.snapshot().n == 3


def test_labels() -> None:
    store = Store(State())
    store.run(task(label="mine")(put), 1)
    store.run(lambda s: put(s, 2))
    assert [one.meta.label for one in store.history(1)] == ["mine", "test_labels.<locals>.<lambda>"]


def test_the_package_exports_what_its_stores_raise_and_hides_no_path() -> None:
    import ropewalk.state as package

    for name in ("Conflict", "StoreClosed", "InvariantBroken", "HistoryGone", "TransactionEnded"):
        assert name in package.__all__
        assert getattr(package, name) is getattr(ropewalk, name)
    assert "Path" not in package.__all__
    assert package.Path is package.paths(State).__class__
