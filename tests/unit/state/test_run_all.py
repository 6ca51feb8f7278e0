"""`Store.run_all`: what runs side by side, what in turn, and what is committed when something fails."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from tests.polling import is_gone, until
from tests.unit.state import _bank

import ropewalk
from ropewalk._errors import ContractViolation, JournalFailed, StateError, StoreClosed
from ropewalk.result import Err
from ropewalk.state import AppendOnly, Counter, PMap, PVector, Store, _jobs as jobs_module, paths, task
from ropewalk.state._syncer import Syncer

EMPTY: PVector[Any] = PVector()
#: Seconds after which a test that waits for another thread fails.
LONG = 30


@dataclass(frozen=True, slots=True)
class State:
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    log: AppendOnly[Any] = EMPTY
    hits: Counter = 0


P = paths(State)
NAMES = ("a", "b", "c", "d")


def adder(name: str, **options: Any) -> Any:
    """A task that adds to one field, counts its calls, and first calls what it is given."""
    calls: list[int] = []

    @task(writes=[getattr(P, name)], label=name, **options)
    def add(s: Any, before: Callable[[], object] | None = None) -> int:
        calls.append(1)
        value = getattr(s, name)
        if before is not None:
            before()
        setattr(s, name, value + 1)
        return int(value + 1)

    add.calls = calls  # type: ignore[attr-defined]
    return add


@pytest.fixture
def path() -> Iterator[Path]:
    """A journal in memory, where a sync costs nothing: nothing loses power here."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        yield Path(folder) / "state.wal"


def helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("ropewalk-jobs")]


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


# --- failures ---------------------------------------------------------------------------------------------------------


def fail(error: BaseException) -> Callable[[], None]:
    def raises() -> None:
        raise error

    return raises


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


def test_the_exception_of_the_first_job_is_raised() -> None:
    a, b, c = adder("a"), adder("b"), adder("c")
    gate = threading.Barrier(3, timeout=LONG)

    def late(then: Callable[[], object] = lambda: None) -> Callable[[], None]:
        def waits() -> None:
            gate.wait()
            then()

        return waits

    with Store(State()) as store:
        with pytest.raises(KeyError) as caught:
            store.run_all(
                [
                    (c, late()),
                    (a, late(fail(KeyError("first")))),
                    (b, late(fail(ValueError("second")))),
                    (c, late()),
                    (a, late()),
                    (b, late()),
                ]
            )
        # The job of another part had begun, and has committed; no job has begun after that.
        assert "job 1 of 6" in notes(caught.value)
        assert (len(a.calls), len(b.calls)) == (1, 1)
        assert store.snapshot().c == len(c.calls) == store.version
        assert ("ended are jobs 0," in notes(caught.value)) == (len(c.calls) == 1)
        gate.abort()
        assert store.run_all([a, b, c]) == [1, 1, len(c.calls)]


def test_what_has_ended_before_a_failure_in_turn() -> None:
    a = adder("a")
    with Store(State()) as store:
        with pytest.raises(KeyError) as caught:
            store.run_all([a, a, lambda s: Err("no"), (a, fail(KeyError("x"))), a])
        assert (
            notes(caught.value) == "run_all: job 3 of 5 has raised this; ended are jobs 0-2, counted from 0"
        )
        assert store.version == 2
        with pytest.raises(KeyError) as caught:
            store.run_all([(a, fail(KeyError("x")))])
        assert "ended are no jobs" in notes(caught.value)


def test_no_job_begins_after_a_failure_was_seen() -> None:
    a, b = adder("a"), adder("b")
    failed = threading.Event()

    def fails() -> None:
        failed.set()
        raise KeyError("x")

    with Store(State()) as store:

        def wait() -> None:
            failed.wait(LONG)
            # The failure is seen once the thread of the other part has ended.
            until(lambda: seen and seen[0]._is_over)

        seen: list[Any] = []
        before = jobs_module._SideBySide.run

        def run(self: Any, parts: Any) -> Any:
            seen.append(self)
            return before(self, parts)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jobs_module._SideBySide, "run", run)
            with pytest.raises(KeyError) as caught:
                store.run_all([(a, wait), (b, fails), a, a, b])
        assert (store.version, len(a.calls), len(b.calls)) == (1, 1, 1)
        assert "ended are jobs 0," in notes(caught.value)


def test_an_interrupt_goes_before_errors() -> None:
    a, b = adder("a"), adder("b")
    gate = threading.Barrier(2, timeout=LONG)

    def late(error: BaseException) -> Callable[[], None]:
        def raises() -> None:
            gate.wait()
            raise error

        return raises

    with Store(State()) as store:
        for error in (KeyboardInterrupt(), SystemExit(3)):
            with pytest.raises(type(error)):
                store.run_all([(a, late(KeyError("x"))), (b, late(error))])
        assert store.version == 0


def test_ctrl_c_waits_for_what_has_begun_and_for_the_disk(path: Path) -> None:
    a, b = adder("a"), adder("b")
    began = threading.Event()
    with Store(State(), journal=path) as store:
        waiting: list[Any] = []
        before = jobs_module._SideBySide._join

        def join(self: Any) -> None:
            waiting.append(self)
            before(self)

        def interrupt() -> None:
            began.set()
            until(lambda: waiting)
            os.kill(os.getpid(), signal.SIGINT)
            # The caller has seen it, and waits again, for this job.
            until(lambda: len(waiting) == 2)

        def first(first_thread: int = threading.get_ident()) -> None:
            # Whichever part this thread takes, the other one is with a helper.
            if threading.get_ident() == first_thread:
                began.wait(LONG)
            else:
                interrupt()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jobs_module._SideBySide, "_join", join)
            with pytest.raises(KeyboardInterrupt):
                store.run_all([(a, first), (b, first)])
        assert (store.snapshot().a, store.snapshot().b) == (1, 1)
        assert store._durable()[0] == 2, "a commit was not waited for"
    with Store(State(), journal=path) as store:
        assert store.version == 2


def test_jobs_that_cannot_run_are_found_before_the_first_one() -> None:
    @dataclass(frozen=True, slots=True)
    class Other:
        x: int = 0

    a = adder("a")
    foreign = task(writes=[paths(Other).x])(lambda s: None)
    with Store(State()) as store:
        for wrong, error in (
            (3, TypeError),
            ((None, 1), TypeError),
            ((), TypeError),
            (foreign, StateError),
            (task(writes=["none"])(lambda s: None), LookupError),
        ):
            with pytest.raises((error, ropewalk.RopewalkError)):
                store.run_all([a, wrong, a])
        assert (a.calls, store.version) == ([], 0)
        assert store.run_all([]) == []
        assert store.run_all(iter([a, a])) == [1, 2]


def test_contracts_are_enforced_in_parts() -> None:
    sneaky = task(reads=[P.b])(lambda s: setattr(s, "c", 1))
    a = adder("a")
    with Store(State()) as store:
        with pytest.raises(ContractViolation):
            store.run_all([a, sneaky])
        assert store.snapshot().c == 0


def test_errors_keep_nothing_alive() -> None:
    class Mark:
        pass

    a, b = adder("a"), adder("b")
    for jobs in ((a, b), (a, a)):
        mark = Mark()
        known = weakref.ref(mark)

        def raises(mark: Any = mark) -> None:
            raise KeyError("x")

        with Store(State()) as store, pytest.raises(KeyError):
            store.run_all([(jobs[0], raises), jobs[1]])
        del mark, raises
        # pytest keeps the exception that it has caught.
        gc.collect()
        assert is_gone(known)


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


def test_within_a_transaction_that_has_claimed() -> None:
    store = Store(State(), retries=0)
    a, b = adder("a"), adder("b")
    tries: list[int] = []

    def outer(s: Any) -> None:
        tries.append(1)
        s.d = s.d + 1
        if len(tries) == 1:
            other = threading.Thread(target=lambda: store.run(lambda s: setattr(s, "d", 10)))
            other.start()
            other.join()
        gate = threading.Barrier(2, timeout=LONG)
        store.run_all([(a, gate.wait), (b, gate.wait)])

    store.run(outer)
    state = store.snapshot()
    # The first attempt has no claim, the second one has; the inner transactions of both are committed.
    assert (len(tries), state.a, state.b, state.d) == (2, 2, 2, 11)
    # The threads have given the claim back.
    assert store.run_all([a, b]) == [3, 3]
    store.close()


def test_undo_within_a_transaction_that_has_claimed() -> None:
    store = Store(State(), retries=0)
    tries: list[int] = []

    def outer(s: Any) -> None:
        tries.append(s.d)
        if len(tries) == 1:
            other = threading.Thread(target=lambda: store.run(lambda s: setattr(s, "d", 10)))
            other.start()
            other.join()
        else:
            store.run(lambda s: setattr(s, "a", 7))
            store.undo()
        s.b = 1

    store.run(outer)
    assert (tries, store.snapshot()) == ([0, 10], State(b=1, d=10))


def test_within_an_exclusive_block() -> None:
    with Store(State()) as store, store.transaction(exclusive=True):
        with pytest.raises(StateError, match="exclusive"):
            store.run_all([adder("a"), adder("b")])


def test_a_job_that_closes_the_store() -> None:
    a, b = adder("a"), adder("b")
    gate = threading.Barrier(2, timeout=LONG)
    for closing in (0, 1):
        store = Store(State())

        def close(store: Store[State] = store) -> None:
            gate.wait()
            store.close()

        jobs = [(a, gate.wait), (b, gate.wait), a, b]
        jobs[closing] = (jobs[closing][0], close)
        with pytest.raises(StoreClosed):
            store.run_all(jobs)
        assert store.closed


def test_a_closed_store_runs_nothing() -> None:
    store = Store(State())
    store.close()
    a, b = adder("a"), adder("b")
    with pytest.raises(StoreClosed):
        store.run_all([a, b])
    assert (a.calls, b.calls) == ([], [])


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
    import asyncio

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


def test_threads_are_kept_and_end_with_the_store() -> None:
    a, b = adder("a"), adder("b")
    gate = threading.Barrier(2, timeout=LONG)
    before = set(helpers())
    with Store(State()) as store:
        for _ in range(20):
            store.run_all([(a, gate.wait), (b, gate.wait)])
        mine = set(helpers()) - before
        assert 0 < len(mine) <= 2
        assert all(thread.daemon for thread in mine)
    assert not any(thread.is_alive() for thread in mine)
    with Store(State()) as store:
        store.run_all([a, a])
        assert set(helpers()) <= before


def test_threads_do_not_keep_a_store() -> None:
    store = Store(State())
    before = set(helpers())
    store.run_all([adder("a"), adder("b")])
    known = weakref.ref(store)
    mine = set(helpers()) - before
    del store
    until(lambda: gc.collect() + 1 and is_gone(known))
    until(lambda: not any(thread.is_alive() for thread in mine))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    store = Store(State())
    a, b = adder("a"), adder("b")
    gate = threading.Barrier(2, timeout=LONG)
    store.run_all([(a, gate.wait), (b, gate.wait)])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            gate = threading.Barrier(2, timeout=LONG)
            found = store.run_all([(a, gate.wait), (b, gate.wait)])
            code = 0 if found == [2, 2] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.close()


def test_a_full_pool_leaves_the_work_to_the_caller() -> None:
    a, b = adder("a"), adder("b")
    stop = threading.Event()
    with ThreadPoolExecutor(1) as executor, Store(State(), pool=executor) as store:
        executor.submit(stop.wait, LONG)
        try:
            assert store.run_all([a, b, a, b]) == [1, 1, 2, 2]
        finally:
            stop.set()
        # A job that runs jobs itself, on the one thread of the pool.
        assert executor.submit(store.run_all, [a, b]).result(LONG) == [3, 3]


# --- worker processes -------------------------------------------------------------------------------------------------


@pytest.fixture(params=["process", "stdlib-process"])
def processes(request: pytest.FixtureRequest) -> Iterator[Any]:
    kinds: dict[str, Callable[[], Any]] = {
        "process": lambda: ropewalk.Pool(2, kind="process"),
        "stdlib-process": lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn")),
    }
    with kinds[request.param]() as pool:
        yield pool


def test_parts_go_to_worker_processes(processes: Any) -> None:
    with Store(_bank.bank(), pool=processes) as store:
        found = store.run_all([(_bank.where, "a1"), (_bank.count, 1), (_bank.where, "a1"), (_bank.count, 2)])
        assert os.getpid() not in (found[0], found[2])
        assert found[1::2] == [1, 3]
        state = store.snapshot()
        assert (state.accounts["a1"].balance, state.hits, store.version) == (102, 3, 4)
        # One part stays here.
        assert store.run_all([(_bank.where, "a1")] * 2) == [os.getpid()] * 2


def test_failures_in_worker_processes(processes: Any) -> None:
    with Store(_bank.bank(), pool=processes) as store:
        with pytest.raises(ValueError, match="no") as caught:
            store.run_all([_bank.fails, (_bank.count, 1), _bank.fails, _bank.fails])
        assert "job 0 of 4" in notes(caught.value)
        assert store.version <= 1
        with pytest.raises(ContractViolation):
            store.run_all([_bank.sneaky, (_bank.where, "a0")])


# --- the disk ---------------------------------------------------------------------------------------------------------


def test_jobs_share_the_disk(path: Path) -> None:
    a, b = adder("a"), adder("b")
    with Store(State(), journal=path) as store:
        with pytest.raises(KeyError):
            store.run_all([a, lambda s: s.none["x"] if False else fail(KeyError("x"))(), a])
        assert store.version == 1
        assert store.run_all([a, b] * 50)[-2:] == [51, 50]
        assert store._durable()[0] == 101
    with Store(State(), journal=path) as store:
        assert (store.snapshot().a, store.snapshot().b, store.version) == (51, 50, 101)


@pytest.mark.parametrize("sides", [1, 2])
def test_each_failure_of_the_disk_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, sides: int
) -> None:
    a, b = adder("a"), adder("b")
    with Store(State(), journal=path) as store:
        commits = iter([(1, 0), (2, 0), (2, 1), (3, 1)])
        waited: list[tuple[int, int]] = []

        def wait(version: int, epoch: int) -> None:
            waited.append((version, epoch))
            if (version, epoch) in lost:
                raise JournalFailed("lost")

        lost: set[tuple[int, int]] = set()
        monkeypatch.setattr(store, "_attempt", lambda *_: ("done", next(commits)))
        monkeypatch.setattr(store, "_wait", wait)
        jobs = [a] * 4 if sides == 1 else [a, b] * 2
        assert store.run_all(jobs) == ["done"] * 4
        # A later commit of one epoch takes the earlier ones along, and none of another epoch.
        assert sorted(waited) == [(2, 0), (3, 1)]
        waited.clear()
        commits = iter([(1, 0), (2, 0), (2, 1), (3, 1)])
        lost.add((2, 0))
        with pytest.raises(JournalFailed) as caught:
            store.run_all([a] * 4)
        assert set(waited) == {(1, 0), (2, 0), (2, 1), (3, 1)}
        assert notes(caught.value) == "run_all: on the disk are jobs 0, 2-3 of 4"


# --- coroutines that share a wake-up ----------------------------------------------------------------------------------


def test_coroutines_of_one_turn_are_waited_for_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    turns: list[int] = []
    before = Syncer._hand_over

    def hand_over(self: Syncer, turn: Any) -> None:
        turns.append(len(turn.waiting))
        before(self, turn)

    monkeypatch.setattr(Syncer, "_hand_over", hand_over)
    a = adder("a")

    async def main() -> None:
        with Store(State(), journal=path) as store:
            assert await asyncio.gather(*(store.arun(a) for _ in range(20))) == list(range(1, 21))
            assert turns == [20]
            assert store._durable()[0] == 20
            # One that is cancelled leaves the others alone.
            running = [asyncio.ensure_future(store.arun(a)) for _ in range(3)]
            await asyncio.sleep(0)
            running[1].cancel()
            assert (await running[0], await running[2]) == (21, 23)
            with pytest.raises(asyncio.CancelledError):
                await running[1]
            assert store.snapshot().a == 23

    asyncio.run(main())


def test_loops_of_two_threads_wait_at_once(path: Path) -> None:
    import asyncio

    tasks = [adder("a"), adder("b")]
    with Store(State(), journal=path, history=10_000) as store:

        def loop(one: Any) -> None:
            async def main() -> None:
                for _ in range(20):
                    await asyncio.gather(*(store.arun(one) for _ in range(5)))

            asyncio.run(main())

        threads = [threading.Thread(target=loop, args=(one,)) for one in tasks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (store.snapshot().a, store.snapshot().b) == (100, 100)


def test_each_coroutine_hears_of_its_own_failure(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    async def main() -> None:
        with Store(State(), journal=path) as store:

            def wait(version: int, epoch: int) -> None:
                if (version, epoch) in ((2, 0), (3, 0)):
                    raise JournalFailed(f"lost {version}")

            monkeypatch.setattr(store, "_wait", wait)
            commits = [(1, 0), (2, 0), (3, 0), (2, 1)]
            waiting = [store._syncer.settled(done) for done in commits]
            found = await asyncio.gather(*waiting, return_exceptions=True)
            assert [str(one) for one in found] == ["None", "lost 2", "lost 3", "None"]
            monkeypatch.undo()

    asyncio.run(main())
