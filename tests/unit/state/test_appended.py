"""What was appended stays as it is, also for a task that only appends."""
# ruff: noqa: UP037  # The dimensions of arrays are no names of types.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ropewalk.state import (
    AppendOnly,
    ContractViolation,
    PMap,
    PVector,
    Shm,
    Store,
    float64,
    paths,
    task,
    writable,
)

np = pytest.importorskip("numpy")


@dataclass(frozen=True, slots=True)
class Entry:
    number: int
    values: Shm[float64, "3"]
    names: PVector[str]


@dataclass(frozen=True, slots=True)
class Log:
    arrays: AppendOnly[Shm[float64, "3"]]
    entries: AppendOnly[Entry]
    lists: AppendOnly[PVector[int]]
    maps: AppendOnly[PMap[str, int]]
    numbers: AppendOnly[int]


P = paths(Log)
WRITES = (P.arrays, P.entries, P.lists, P.maps, P.numbers)


def log() -> Store[Log]:
    entry = Entry(1, np.zeros(3), PVector(["a"]))
    return Store(Log([np.zeros(3)], [entry], [[1]], [{"a": 1}], [1]))


CHANGES: dict[str, Callable[[Any], object]] = {
    "an item": lambda s: s.arrays[0].__setitem__(0, 1),
    "all items": lambda s: s.arrays[0].__setitem__(slice(None), 1),
    "in place": lambda s: s.arrays[0].__iadd__(1),
    "lent": lambda s: writable(s.arrays[0]),
    "an array of a record": lambda s: s.entries[0].values.__setitem__(0, 1),
    "a field": lambda s: setattr(s.entries[0], "number", 2),
    "a list of a record": lambda s: s.entries[0].names.append("b"),
    "a list": lambda s: s.lists[0].append(2),
    "a map": lambda s: s.maps[0].__setitem__("b", 2),
    "a replacement": lambda s: s.numbers.__setitem__(0, 2),
    "a deletion": lambda s: s.numbers.pop(),
}


@pytest.mark.parametrize("declared", ["writes", "reads and writes", "nothing"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_there_stays(change: Callable[[Any], object], declared: str) -> None:
    def changing(s: Any) -> None:
        change(s)

    run: Any = {
        "writes": task(writes=WRITES)(changing),
        "reads and writes": task(reads=WRITES, writes=WRITES)(changing),
        "nothing": changing,
    }[declared]
    store = log()
    with pytest.raises(ContractViolation):
        store.run(run)
    assert store.version == 0


def test_a_task_that_appends_has_not_declared_to_read() -> None:
    @task(writes=WRITES)
    def reading(s: Any) -> None:
        s.numbers.append(2)
        s.numbers[0]

    store = log()
    with pytest.raises(ContractViolation, match=r"reads numbers\[0\]"):
        store.run(reading)

    @task(writes=WRITES)
    def appending(s: Any) -> None:
        s.numbers.append(2)
        s.lists.append([3])
        s.arrays.append(np.ones(3))

    store.run(appending)
    assert list(store.snapshot().numbers) == [1, 2]


def test_the_same_by_a_policy() -> None:
    store = Store({"log": [[1]], "other": 0}, policy={"log": AppendOnly})

    def append_below(s: Any) -> None:
        s["log"][0].append(2)

    def append(s: Any) -> None:
        s["log"].append([2])

    with pytest.raises(ContractViolation):
        store.run(append_below)
    with pytest.raises(ContractViolation):
        store.run(task(writes=["log"])(append_below))
    store.run(task(writes=["log"])(append))
    store.run(append)
    assert [list(one) for one in store.snapshot()["log"]] == [[1], [2], [2]]
