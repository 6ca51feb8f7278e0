"""Histories of transactions, repeated one after the other on plain collections: every read must be the same."""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.state import plainly
from tests.unit.state.plainly import Entry, plain, repeated

from ropewalk._errors import Conflict
from ropewalk.state import PMap, PVector, Store, task

# --- threads ----------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Runs the function in threads, which begin together; the first exception comes out."""
    errors: list[BaseException] = []
    gate = threading.Barrier(count)

    def run(number: int) -> None:
        gate.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_are_those_of_one_thread(seed: int) -> None:
    state, model = plainly.start()
    store = Store(state, history=100_000, retries=seed)
    done: list[tuple[int, bool, list[Entry]]] = []

    def block(chance: random.Random, log: list[Entry]) -> int:
        while True:
            log.clear()
            try:
                with store.transaction(exclusive=chance.random() < 0.05) as tx:
                    program(chance, log, tx.draft)
            except Conflict:
                continue
            return int(tx.version)

    def program(chance: random.Random, log: list[Entry], root: Any) -> None:
        for _ in range(chance.randrange(1, 6)):
            op = plainly.random_op(chance)
            log.append(("op", op, plainly.run(root, op)))
            # Others get their turn between two operations.
            time.sleep(0)

    def work(number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        for step in range(60):
            log: list[Entry] = []
            if chance.random() < 0.5:
                done.append((block(chance, log), False, log))
                continue

            @task(label=f"{number} {step}")
            def one(root: Any, log: list[Entry]) -> None:
                log.clear()
                program(chance, log, root)

            store.run(one, log)
            done.append((0, True, log))
            labels[f"{number} {step}"] = log

    labels: dict[str, list[Entry]] = {}
    in_threads(8, work)
    logs = {id(log): version for version, is_run, log in done if not is_run}
    by_version: dict[int, list[list[Entry]]] = defaultdict(list)
    for version, is_run, log in done:
        if not is_run:
            by_version[version].append(log)
    for version in store.history(1):
        if version.meta.label is not None:
            by_version[version.number].append(labels[version.meta.label])
    assert len(logs) > 100
    assert store.version > 50
    states = {version.number: plain(version.state) for version in store.history()}
    for number in range(store.version + 1):
        writers = 0
        for log in by_version[number]:
            # A transaction that has changed nothing stands behind the version on which it was found to be right.
            if number and repeated_is(states[number - 1], log, states[number]):
                writers += 1
            else:
                assert repeated(states[number], log) == states[number]
        assert number == 0 or writers >= 1, f"nothing has made version {number} of what was there before"
    assert plain(store.snapshot()) == states[store.version]
    assert states[0] == model


def repeated_is(before: Any, log: list[Entry], after: Any) -> bool:
    try:
        return repeated(before, log) == after
    except AssertionError:
        return False


def test_no_update_is_lost() -> None:
    store = Store({"n": 0, "m": dict.fromkeys(range(4), 0), "v": [0, 0]})

    def work(number: int) -> None:
        for step in range(200):
            store.run(add, number % 4, step % 2)

    def add(root: Any, key: int, index: int) -> None:
        root["n"] += 1
        root["m"][key] += 1
        root["v"][index] += 1

    in_threads(8, work)
    assert plain(store.snapshot()) == {"n": 1600, "m": dict.fromkeys(range(4), 400), "v": [800, 800]}
    assert store.version == 1600


def test_one_doctor_stays_on_call() -> None:
    store = Store({"calls": dict.fromkeys("abcd", True), "low": 0})

    def leave(root: Any, name: str) -> None:
        if sum(root["calls"].values()) > 1:
            time.sleep(0)
            root["calls"][name] = False

    def come(root: Any, name: str) -> None:
        root["calls"][name] = True

    def work(number: int) -> None:
        for _ in range(100):
            store.run(leave, "abcd"[number % 4])
            assert any(store.snapshot()["calls"].values())
            store.run(come, "abcd"[number % 4])

    in_threads(8, work)
    assert all(any(version.state["calls"].values()) for version in store.history())


READS: dict[str, Callable[[Any], Any]] = {
    "iteration": lambda m: sorted(m),
    "values": lambda m: sum(m.values()),
    "length": len,
    "membership": lambda m: "x" in m,
    "get": lambda m: m.get("x"),
    "missing": lambda m: m.setdefault("x", 1),
    "truth": bool,
    "equality": lambda m: m == PMap(),
    "pop": lambda m: m.pop("x", None),
    "copy": lambda m: dict(m),
}


@pytest.mark.parametrize("read", READS)
def test_no_phantom_comes_in_between(read: str) -> None:
    store = Store({"m": {"a": 1}, "out": 0})
    with pytest.raises(Conflict) as caught, store.transaction("reader") as tx:  # noqa: PT012
        READS[read](tx.draft["m"])
        tx.draft["out"] = 1
        store.run(lambda root: root["m"].update(x=1))
    assert caught.value.path.startswith("['m']")
    assert store.snapshot()["out"] == 0


VECTOR_READS: dict[str, Callable[[Any], Any]] = {
    "length": len,
    "last": lambda v: v[-1],
    "iteration": list,
    "missing": lambda v: v[2:],
    "membership": lambda v: 9 in v,
    "pop": lambda v: v.pop(),
    "insert": lambda v: v.insert(0, 0),
    "equality": lambda v: v == PVector(),
    "extend itself": lambda v: v.extend(v),
}


@pytest.mark.parametrize("read", VECTOR_READS)
def test_no_phantom_comes_into_a_vector(read: str) -> None:
    store = Store({"v": [1, 2], "out": 0})
    with pytest.raises(Conflict), store.transaction() as tx:  # noqa: PT012
        VECTOR_READS[read](tx.draft["v"])
        tx.draft["out"] = 1
        store.run(lambda root: root["v"].append(3))
    assert store.snapshot()["out"] == 0


def test_what_does_not_meet_does_not_conflict() -> None:
    store = Store({"m": {"a": 1, "b": {"x": 1}}, "v": [1, 2], "out": 0})
    with store.transaction() as tx:
        assert "a" in tx.draft["m"]
        tx.draft["m"]["b"]["y"] = 2
        tx.draft["m"]["new"] = 3
        del tx.draft["m"]["a"]
        tx.draft["v"].append(4)
        tx.draft["v"][0] = 7
        store.run(lambda root: root["m"]["b"].update(z=1))
        store.run(lambda root: root["m"].update(other=1))
        store.run(lambda root: root["v"].append(3))
        store.run(lambda root: root["v"].__setitem__(1, 8))
    assert plain(store.snapshot()) == {
        "m": {"b": {"x": 1, "y": 2, "z": 1}, "new": 3, "other": 1},
        "v": [7, 8, 3, 4],
        "out": 0,
    }


def test_appends_have_no_cycle() -> None:
    """The check of lists: from what was read of each, the order of transactions is inferred, and has no cycle."""
    keys = "abc"
    store = Store({key: [] for key in keys})
    found: list[tuple[dict[str, list[int]], dict[str, list[int]]]] = []

    def one(root: Any, chance: random.Random, base: int, reads: Any, appends: Any) -> None:
        reads.clear()
        appends.clear()
        for place in range(chance.randrange(1, 5)):
            key = chance.choice(keys)
            if chance.random() < 0.5 and key not in appends:
                reads[key] = list(root[key])
            else:
                root[key].append(base + place)
                appends.setdefault(key, []).append(base + place)
            time.sleep(0)

    def work(number: int) -> None:
        chance = random.Random(number)
        for step in range(60):
            reads: dict[str, list[int]] = {}
            appends: dict[str, list[int]] = {}
            store.run(one, chance, (number * 1000 + step) * 10, reads, appends)
            found.append((reads, appends))

    in_threads(8, work)
    final = {key: list(store.snapshot()[key]) for key in keys}
    writer = {
        (key, value): tx for tx, (_, appends) in enumerate(found) for key in appends for value in appends[key]
    }
    assert sum(map(len, final.values())) == len(writer)
    edges: dict[int, set[int]] = defaultdict(set)
    for key, values in final.items():
        for one, two in itertools.pairwise(values):
            edges[writer[key, one]].add(writer[key, two])
    for tx, (reads, _) in enumerate(found):
        for key, values in reads.items():
            assert values == final[key][: len(values)], "what was read is no beginning of the list"
            if values:
                edges[writer[key, values[-1]]].add(tx)
            if len(values) < len(final[key]):
                edges[tx].add(writer[key, final[key][len(values)]])
    assert not has_cycle({tx: others - {tx} for tx, others in edges.items()})


def has_cycle(edges: dict[int, set[int]]) -> bool:
    """Whether a graph has a cycle: if not, nodes without edges into them can be taken away until none is left."""
    into: dict[int, int] = defaultdict(int)
    for others in edges.values():
        for other in others:
            into[other] += 1
    todo = [node for node in edges if not into[node]]
    gone = 0
    nodes = set(edges) | set(into)
    while todo:
        node = todo.pop()
        gone += 1
        for other in edges.get(node, ()):
            into[other] -= 1
            if not into[other]:
                todo.append(other)
    return gone < len(nodes)
