"""Maps of counters and of append-only vectors: new keys, and keys that go."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from ropewalk import Pool
from ropewalk._errors import Conflict, ContractViolation
from ropewalk.state import AppendOnly, Counter, PMap, PVector, Store, paths, task


@dataclass(frozen=True, slots=True)
class Site:
    hits: PMap[str, Counter]
    logs: PMap[str, AppendOnly[int]]
    total: int = 0


P = paths(Site)


def site() -> Store[Site]:
    return Store(Site(PMap(a=1, b=2), PMap(a=PVector([1]))))


def together(store: Store[Site], first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Site:
    """Runs one transaction within another one, which commits behind it."""
    with store.transaction() as tx:
        second(tx.draft)
        store.run(first)
    return store.snapshot()


def delete(key: str) -> Callable[[Any], None]:
    def work(d: Any) -> None:
        del d.hits[key]

    return work


def count(key: str) -> Callable[[Any], None]:
    def work(d: Any) -> None:
        d.hits[key] += 5

    return work


def add(key: str, *values: int) -> Callable[[Any], None]:
    def work(d: Any) -> None:
        d.logs[key] = list(values)

    return work


def undone(tx: Any, work: Callable[[Any], Any]) -> None:
    with suppress(ZeroDivisionError), tx.savepoint():
        work(tx.draft)
        raise ZeroDivisionError


# --- append-only ------------------------------------------------------------------------------------------------------


def test_a_new_key_takes_a_vector_and_then_grows() -> None:
    store = site()

    def work(d: Any) -> None:
        d.logs["new"] = PVector([7])
        d.logs["new"].append(8)
        d.logs.setdefault("other", []).append(9)
        d.logs.setdefault("a", []).append(2)
        d.logs.update({"third": [3]})

    store.run(task(writes=[P.logs], reads=[P.logs])(work))
    expected = PMap(a=PVector([1, 2]), new=PVector([7, 8]), other=PVector([9]), third=PVector([3]))
    assert store.snapshot().logs == expected
    store.run(task(writes=[P.logs[...]])(add("more", 1)))
    assert store.snapshot().logs["more"] == PVector([1])


def test_what_is_there_is_not_replaced() -> None:
    store = site()

    def twice(d: Any) -> None:
        add("new", 1)(d)
        with pytest.raises(ContractViolation, match=r"logs\['new'\], which is append-only"):
            add("new", 2)(d)

    store.run(twice)
    assert store.snapshot().logs["new"] == PVector([1])
    for refused in (add("a", 2), add("a"), lambda d: d.logs.pop("a")):
        with pytest.raises(ContractViolation, match=r"logs\['a'\], which is append-only"):
            store.run(refused)
    with pytest.raises(TypeError, match=r"logs\['x'\] is declared as .*, and was given an int, 5"):
        store.run(lambda d: d.logs.update(x=5))
    assert store.version == 1


def test_a_contract_says_whether_a_key_may_be_added() -> None:
    store = site()
    with pytest.raises(ContractViolation, match=r"logs\['new'\]"):
        store.run(task(reads=[P.logs])(add("new", 1)))


def test_two_transactions_that_add_one_key_conflict() -> None:
    store = site()
    with pytest.raises(Conflict):
        together(store, add("new", 1), add("new", 2))
    assert store.snapshot().logs["new"] == PVector([1])
    assert together(store, add("x", 1), add("y", 2)).logs["y"] == PVector([2])


def test_a_savepoint_takes_a_new_key_back() -> None:
    store = site()
    with store.transaction() as tx:
        undone(tx, add("new", 1))
        assert "new" not in tx.draft.logs
        add("new", 2)(tx.draft)
    assert store.snapshot().logs["new"] == PVector([2])


# --- counters ---------------------------------------------------------------------------------------------------------


def test_a_key_is_deleted() -> None:
    store = site()

    def work(d: Any) -> None:
        del d.hits["a"]
        assert "a" not in d.hits
        assert (list(d.hits), len(d.hits)) == (["b"], 1)
        with pytest.raises(KeyError):
            del d.hits["a"]
        with pytest.raises(KeyError):
            del d.hits["never"]
        assert d.hits["peeked"] == 0
        with pytest.raises(KeyError):
            del d.hits["peeked"]
        assert d.hits.pop("b") == 2
        assert d.hits == {}

    store.run(work)
    assert store.snapshot().hits == PMap()
    with pytest.raises(ContractViolation, match=r"hits\['a'\]"):
        site().run(task(reads=[P.hits])(delete("a")))
    store = site()
    store.run(task(writes=[P.hits[...]])(delete("a")))
    assert store.snapshot().hits == PMap(b=2)


def test_a_key_that_was_deleted_counts_from_zero() -> None:
    store = site()

    def work(d: Any) -> None:
        del d.hits["a"]
        assert d.hits["a"] == 0
        assert "a" not in d.hits
        d.hits["a"] += 4
        assert "a" in d.hits
        assert (sorted(d.hits), len(d.hits), d.hits["a"]) == (["a", "b"], 2, 4)
        del d.hits["a"]
        assert "a" not in d.hits
        d.hits["a"] -= 3

    store.run(work)
    assert store.snapshot().hits == PMap(a=-3, b=2)
    with store.transaction() as tx:
        del tx.draft.hits["a"]
        undone(tx, count("a"))
        assert "a" not in tx.draft.hits
    assert store.snapshot().hits == PMap(b=2)


def test_a_deletion_and_a_count_do_not_conflict() -> None:
    # In the order of versions: the count, then the deletion.
    assert together(site(), count("a"), delete("a")).hits == PMap(b=2)
    # The deletion, then the count, from 0.
    assert together(site(), delete("a"), count("a")).hits == PMap(a=5, b=2)

    def again(d: Any) -> None:
        delete("a")(d)
        count("a")(d)

    assert together(site(), count("a"), again).hits == PMap(a=5, b=2)
    assert together(site(), delete("a"), lambda d: d.hits["a"]).hits == PMap(b=2)


def test_a_deletion_conflicts_with_what_has_read_the_key() -> None:
    def read(d: Any) -> None:
        d.total = int(d.hits["a"])

    def look(d: Any) -> None:
        d.total = "a" in d.hits

    def both(d: Any) -> None:
        if d.hits["a"] == 1:
            del d.hits["a"]

    for second in (read, look, delete("a"), both):
        with pytest.raises(Conflict):
            together(site(), delete("a"), second)
    with pytest.raises(Conflict):
        together(site(), count("a"), both)


def test_the_journal_and_workers_do_the_same(tmp_path: Any) -> None:
    def work(d: Any) -> None:
        del d.hits["a"]
        d.hits["a"] += 4
        del d.hits["b"]
        d.logs["new"] = [1]
        d.logs["new"].append(2)

    expected = Site(PMap(a=4), PMap(a=PVector([1]), new=PVector([1, 2])))
    with Store(site().snapshot(), journal=tmp_path / "wal") as store:
        store.run(work)
        assert store.snapshot() == expected
    with Store(site().snapshot(), journal=tmp_path / "wal") as store:
        assert store.snapshot() == expected
    with Pool(1) as pool, Store(site().snapshot(), pool=pool) as store:
        store.submit(task(writes=[P.hits, P.logs])(work)).result()
        assert store.snapshot() == expected
