"""`Store.run_all`: what runs side by side and what in turn, and what jobs see."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from tests.unit.state._run_all import LONG, NAMES, P, State, adder, helpers, journal_file

import ropewalk
from ropewalk.state import Counter, PMap, Store, task


@pytest.fixture
def path() -> Iterator[Path]:
    with journal_file() as found:
        yield found


# --- side by side -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["own", "executor", "pool"])
def test_disjoint_jobs_meet_while_both_run(kind: str) -> None:
    pools: dict[str, Callable[[], Any]] = {
        "own": lambda: None,
        "executor": lambda: ThreadPoolExecutor(2),
        "pool": lambda: ropewalk.Pool(2, kind="thread"),
    }
    pool = pools[kind]()
    a, b = adder("a"), adder("b")
    gate = threading.Barrier(2, timeout=LONG)
    with Store(State(), pool=pool) as store:
        # Each waits, with what it has read, until the other one has read too; and again until both are about to write.
        assert store.run_all([(a, gate.wait), (b, gate.wait)] * 3) == [1, 1, 2, 2, 3, 3]
        assert (store.snapshot().a, store.snapshot().b, store.version) == (3, 3, 6)
    assert (len(a.calls), len(b.calls)) == (3, 3), "a job has run again"
    if pool is not None:
        pool.shutdown()


def test_counting_and_appending_do_not_conflict() -> None:
    gate = threading.Barrier(3, timeout=LONG)
    tries = []

    def work(s: Any, name: str) -> None:
        tries.append(name)
        s.hits += 1
        s.log.append(name)
        gate.wait()

    tasks = [task(writes=[P.hits, P.log], label=name)(lambda s, name: work(s, name)) for name in "xyz"]
    with Store(State()) as store:
        store.run_all([(one, name) for one, name in zip(tasks, "xyz", strict=True)])
        assert (store.snapshot().hits, sorted(store.snapshot().log)) == (3, list("xyz"))
    assert sorted(tries) == list("xyz")


def test_readers_of_the_same_do_not_conflict() -> None:
    gate = threading.Barrier(2, timeout=LONG)

    def look(s: Any) -> int:
        gate.wait()
        return int(s.a)

    one, two = (task(reads=[P.a], label=label)(lambda s: look(s)) for label in "12")
    with Store(State(7)) as store:
        assert store.run_all([one, two]) == [7, 7]


def test_a_reader_of_what_another_writes_is_in_its_part() -> None:
    seen: list[tuple[str, int]] = []

    @task(reads=[P.a], writes=[P.b])
    def copy(s: Any) -> int:
        seen.append(("copy", threading.get_ident()))
        s.b = s.a
        return int(s.a)

    @task(reads=[P.b], writes=[P.c])
    def pass_on(s: Any) -> int:
        seen.append(("pass_on", threading.get_ident()))
        s.c = s.b
        return int(s.b)

    a = adder("a")
    with Store(State()) as store:
        assert store.run_all([pass_on, a, copy, pass_on, a, copy, copy, pass_on]) == [0, 1, 1, 1, 2, 2, 2, 2]
    # `a` and `pass_on` touch nothing in common, but both touch what `copy` does.
    assert [name for name, _ in seen] == ["pass_on", "copy", "pass_on", "copy", "copy", "pass_on"]
    assert {thread for _, thread in seen} == {threading.get_ident()}


def test_jobs_of_one_part_run_in_order() -> None:
    a, b = adder("a"), adder("b")
    order: dict[str, list[int]] = {"a": [], "b": []}
    jobs = []
    for number in range(200):
        one, name = random.Random(number).choice([(a, "a"), (b, "b")])
        jobs.append((one, lambda name=name, number=number: order[name].append(number)))
    with Store(State()) as store:
        store.run_all(jobs)
        assert store.version == 200
    assert order["a"] == sorted(order["a"])
    assert order["b"] == sorted(order["b"])
    assert len(order["a"]) + len(order["b"]) == 200
    assert len(a.calls) + len(b.calls) == 200


@pytest.mark.parametrize("kind", ["plain", "without a contract", "loose", "warn", "one task", "one part"])
def test_one_part_runs_in_the_calling_thread(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    threads: set[int] = set()

    def note() -> None:
        threads.add(threading.get_ident())

    def plain(s: Any, before: Callable[[], object]) -> int:
        before()
        return 0

    a, b = adder("a"), adder("b")
    others: dict[str, Any] = {
        "plain": plain,
        "without a contract": task(plain),
        "loose": task(reads=[P.d], strict=False)(plain),
        "warn": task(reads=[P.d], strict="warn")(plain),
        "one part": task(writes=[P.a, P.b])(plain),
    }
    with Store(State()) as store:
        before = len(helpers())
        jobs = [(a, note)] * 3 if kind == "one task" else [(a, note), (others[kind], note), (b, note)]
        store.run_all(jobs)
        assert len(helpers()) == before
    assert threads == {threading.get_ident()}


def test_parts_of_a_mapping() -> None:
    gate = threading.Barrier(2, timeout=LONG)

    def work(root: Any, name: str) -> None:
        root[name]["x"] += 1
        gate.wait()

    one = task(writes=["left"])(lambda root: work(root, "left"))
    two = task(writes=["right"])(lambda root: work(root, "right"))
    # Keys that the policy names have numbers of their own; all others of a mapping are one place.
    policy = {"left.hits": Counter, "right.hits": Counter}
    with Store({"left": {"x": 0}, "right": {"x": 0}}, policy=policy) as store:
        store.run_all([one, two])
        assert store.snapshot() == PMap({"left": PMap(x=1), "right": PMap(x=1)})


def test_more_parts_than_threads() -> None:
    fields = {f"f{number}": 0 for number in range(100)}

    def writer(name: str) -> Any:
        def add(root: Any) -> None:
            root[name] += 1

        return task(writes=[name])(add)

    tasks = [writer(name) for name in fields]
    with Store(fields, policy=dict.fromkeys(fields, Counter)) as store:
        store.run_all(tasks * 3)
        assert set(store.snapshot().values()) == {3}
        assert store.version == 300
        assert 0 < len(helpers()) <= 32


# --- the outcome is that of the jobs in turn --------------------------------------------------------------------------


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("quick_switches")
@pytest.mark.parametrize("seed", range(6))
def test_the_outcome_is_that_of_the_jobs_one_after_the_other(seed: int) -> None:
    chance = random.Random(seed)
    calls: list[int] = []
    tasks: list[tuple[Any, list[str], list[str]]] = []
    for number in range(6):
        writes = chance.sample(NAMES, chance.randrange(0, 3))
        reads = chance.sample(NAMES, chance.randrange(0, 2))

        def work(s: Any, value: int, reads: Any = reads, writes: Any = writes) -> tuple[int, ...]:
            calls.append(value)
            seen = tuple(getattr(s, name) for name in (*reads, *writes))
            time.sleep(0)
            for name in writes:
                setattr(s, name, (sum(seen) * 31 + value) % 1_000_003)
            s.hits += 1
            return seen

        declared = {
            "reads": [getattr(P, name) for name in reads],
            "writes": [getattr(P, name) for name in writes],
        }
        made = task(reads=declared["reads"], writes=[*declared["writes"], P.hits], label=str(number))(work)
        tasks.append((made, reads, writes))
    picked = [chance.randrange(6) for _ in range(120)]
    model: dict[str, int] = dict.fromkeys(NAMES, 0)
    expected = []
    for value, place in enumerate(picked):
        _, reads, writes = tasks[place]
        seen = tuple(model[name] for name in (*reads, *writes))
        model.update(dict.fromkeys(writes, (sum(seen) * 31 + value) % 1_000_003))
        expected.append(seen)
    with Store(State(), history=10_000) as store:
        assert store.run_all([(tasks[place][0], value) for value, place in enumerate(picked)]) == expected
        state = store.snapshot()
        assert {name: getattr(state, name) for name in NAMES} == model
        assert (state.hits, store.version, len(calls)) == (120, 120, 120)


@pytest.mark.usefixtures("quick_switches")
def test_others_commit_meanwhile() -> None:
    a, b = adder("a"), adder("b")
    with Store(State(), history=10_000) as store:

        def others() -> None:
            for _ in range(100):
                store.run(lambda s: setattr(s, "a", s.a + 1))

        thread = threading.Thread(target=others)
        thread.start()
        for _ in range(10):
            store.run_all([a, b] * 10)
        thread.join()
        assert (store.snapshot().a, store.snapshot().b) == (200, 100)


@pytest.mark.usefixtures("quick_switches")
def test_many_threads_run_jobs_at_once() -> None:
    tasks = [adder(name) for name in NAMES]
    with Store(State(), history=10_000) as store:
        threads = [threading.Thread(target=lambda: store.run_all(tasks * 20)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [getattr(store.snapshot(), name) for name in NAMES] == [80] * 4


# --- around -----------------------------------------------------------------------------------------------------------


def test_jobs_see_the_callers_context() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="none")
    gate = threading.Barrier(2, timeout=LONG)
    seen: dict[str, list[str]] = {"a": [], "b": []}

    def look(name: str) -> Callable[[], None]:
        def looks() -> None:
            gate.wait()
            seen[name].append(variable.get())
            variable.set(f"{name}{len(seen[name])}")

        return looks

    a, b = adder("a"), adder("b")
    token = variable.set("caller")
    with Store(State()) as store:
        store.run_all([(a, look("a")), (b, look("b"))] * 2)
    assert seen == {"a": ["caller", "a1"], "b": ["caller", "b1"]}
    assert variable.get() == "caller"
    variable.reset(token)


def test_effects_run_once_and_in_the_order_of_versions(path: Path) -> None:
    seen: list[int] = []

    def worker(name: str) -> Any:
        def work(s: Any) -> None:
            setattr(s, name, getattr(s, name) + 1)
            s.on_commit(lambda: seen.append(len(store.history())))
            s.hits += 1

        return task(writes=[getattr(P, name), P.hits])(work)

    with Store(State(), history=1000) as store:
        store.run_all([worker("a"), worker("b"), worker("c")] * 10)
    # All were committed before the first one was delivered.
    assert seen == [31] * 30


def test_a_change_is_seen_by_watchers() -> None:

    async def main() -> list[int]:
        a, b = adder("a"), adder("b")
        found = []
        with Store(State()) as store:
            watch = store.changes(P.a)

            async def listen() -> None:
                async for change in watch:
                    found.append(change.new)  # noqa: PERF401 - the list is looked at meanwhile

            listening = asyncio.create_task(listen())
            await asyncio.sleep(0)
            await asyncio.to_thread(store.run_all, [a, b] * 3)
            while len(found) < 3:
                await asyncio.sleep(0.001)
            store.close()
            await listening
        return found

    assert asyncio.run(main()) == [1, 2, 3]
