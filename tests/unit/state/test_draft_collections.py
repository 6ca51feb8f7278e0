"""The methods of drafts of maps and vectors that touch all entries, and what they cost."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from ropewalk import Conflict, ContractViolation
from ropewalk.state import Counter, PMap, Store, leaf, task


@leaf
class Counted:
    """A key that counts how often it is hashed."""

    hashed = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        Counted.hashed += 1
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counted) and other.number == self.number


def test_popitem_does_not_look_at_all_keys_each_time() -> None:
    count = 300
    store = Store({"m": {Counted(number): number for number in range(count)}})
    with store.transaction() as tx:
        values = tx.draft["m"]
        for number in range(count, 2 * count):
            values[Counted(number)] = number
        Counted.hashed = 0
        popped = [values.popitem() for _ in range(2 * count)]
        assert Counted.hashed < 20 * count
        assert sorted(value for _, value in popped) == list(range(2 * count))
        assert {key.number for key, _ in popped} == set(range(2 * count))
        with pytest.raises(KeyError):
            values.popitem()
        assert len(values) == 0
    assert store.snapshot() == {"m": {}}


def test_popitem_and_clear_give_what_a_dict_has() -> None:
    choose = random.Random(7)
    for _ in range(60):
        model = {number: number for number in range(choose.randrange(20))}
        store = Store({"m": model})
        with store.transaction() as tx:
            values = tx.draft["m"]
            for _ in range(40):
                key = choose.randrange(25)
                match choose.randrange(7):
                    case 0 | 1 if model:
                        popped = values.popitem()
                        assert model.pop(popped[0]) == popped[1]
                    case 2:
                        values[key] = model[key] = choose.randrange(9)
                    case 3:
                        assert values.pop(key, None) == model.pop(key, None)
                    case 4 if choose.random() < 0.2:
                        values.clear()
                        model.clear()
                    case 5:
                        with pytest.raises(ZeroDivisionError), tx.savepoint():  # noqa: PT012 - the block is undone.
                            values[key] = 1
                            values.popitem()
                            values.clear()
                            raise ZeroDivisionError
                    case _:
                        assert (key in values) == (key in model)
                assert len(values) == len(model)
                assert dict(values) == model
        assert store.snapshot() == {"m": model}


@pytest.mark.parametrize("method", ["clear", "popitem"])
def test_both_read_which_keys_there_are(method: str) -> None:
    store = Store({"m": {"a": 1}})
    with pytest.raises(Conflict), store.transaction() as tx:  # noqa: PT012 - the block commits.
        getattr(tx.draft["m"], method)()
        store.run(lambda draft: draft["m"].__setitem__("b", 2))
    assert store.snapshot() == {"m": {"a": 1, "b": 2}}


def test_clear_of_a_map_that_may_only_be_read_deletes_nothing() -> None:
    store = Store({"m": {"a": 1}})

    @task(reads=["m"])
    def clear(draft: dict[str, dict[str, int]]) -> None:
        draft["m"].clear()

    with pytest.raises(ContractViolation):
        store.run(clear)
    assert store.snapshot() == {"m": {"a": 1}}


@dataclass(frozen=True)
class Hits:
    """Counters by name."""

    hits: PMap[str, Counter]


def test_popitem_takes_counters_that_were_counted() -> None:
    store = Store(Hits(PMap(c=5)))
    with store.transaction() as tx:
        hits: Any = tx.draft.hits
        before = hits["b"]
        hits["a"].add(1)
        assert len(hits) == 2
        assert {hits.popitem()[0] for _ in range(2)} == {"a", "c"}
        with pytest.raises(KeyError, match="no entries"):
            hits.popitem()
        # A counter that was deleted is there again once it is counted, and so is one that was 0 before.
        hits["c"].add(7)
        before.add(2)
        assert len(hits) == 2
        gone = hits.popitem()[0]
        kept = {"b": "c", "c": "b"}[gone]
        with pytest.raises(ValueError, match="back"), tx.savepoint():  # noqa: PT012
            hits.clear()
            assert list(hits) == []
            raise ValueError("back")
        assert list(hits) == [kept]
        with pytest.raises(ValueError, match="back"), tx.savepoint():  # noqa: PT012
            assert hits.popitem()[0] == kept
            raise ValueError("back")
        with tx.savepoint():
            hits[kept].add(10)
    assert store.snapshot() == Hits(PMap({kept: {"b": 12, "c": 17}[kept]}))


def test_clear_deletes_counters() -> None:
    store = Store(Hits(PMap(a=1, b=2)))
    with store.transaction() as tx:
        hits: Any = tx.draft.hits
        hits.clear()
        hits["b"].add(3)
        assert (len(hits), list(hits)) == (1, ["b"])
    assert store.snapshot() == Hits(PMap(b=3))
