"""`Store.run_all`: interrupts, forks, pools without time and closed ones: what is left of a run, and what is said."""

from __future__ import annotations

import gc
import linecache
import os
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from tests.polling import is_gone, until
from tests.unit.state import _bank
from tests.unit.state._run_all import LONG, State, adder, notes

import ropewalk
from ropewalk._errors import PoolClosed, QueueFull
from ropewalk.state import Store, _job_parts as parts_module, _jobs as jobs_module, _threads as threads_module

FREE_THREADED = not getattr(sys, "_is_gil_enabled", lambda: True)()
can_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def ended(note: str) -> int:
    """How many jobs have ended, by a note."""
    found = re.search(r"ended are (no jobs|jobs [\d, -]+) ?", note)
    if found is None:
        assert "no job has begun" in note
        return 0
    count = 0
    for one in re.findall(r"\d+(?:-\d+)?", found[1]):
        first, _, last = one.partition("-")
        count += int(last or first) - int(first) + 1
    return count


# --- interrupts -------------------------------------------------------------------------------------------------------


def interrupted_at(line: int, call: Callable[[], object]) -> BaseException | None:
    """Calls something, and raises an interrupt before a line of `run_all`, by number; returns what comes out."""
    files = {jobs_module.__file__, parts_module.__file__}
    left = [line]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        # The interpreter looks for signals where it calls, loops and begins, and not between a value and its return,
        # where newer ones have a line once more.
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not text.lstrip().startswith("return "):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt as error:
        return error
    finally:
        sys.settrace(before)
    return None


@pytest.mark.parametrize("names", ["aaaa", "abab"], ids=["in turn", "in parts"])
def test_an_interrupt_at_any_line_says_what_is_committed(names: str) -> None:
    tasks = {name: adder(name) for name in names}
    seen: set[int] = set()
    with Store(State()) as store:
        for line in range(1, 2000):
            before = store.version
            error = interrupted_at(line, lambda: store.run_all([tasks[name] for name in names]))
            if error is None:
                break
            made = store.version - before
            seen.add(made)
            # Before the first job there is nothing to say.
            assert ended(notes(error) or "no job has begun") == made, f"at line {line}: {notes(error)}"
    assert line > 20
    assert {0, 4} <= seen


def test_an_interrupt_in_the_wait_for_helpers_says_what_is_committed() -> None:
    a, b = adder("a"), adder("b")
    waiting, began = threading.Event(), threading.Event()
    with Store(State()) as store:
        before = parts_module.SideBySide._join
        calls: list[int] = []

        def join(self: Any) -> None:
            calls.append(1)
            waiting.set()
            if len(calls) == 1:
                raise KeyboardInterrupt
            before(self)

        def helped(own: int = threading.get_ident()) -> None:
            if threading.get_ident() == own:
                began.wait(LONG)
            else:
                began.set()
                waiting.wait(LONG)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parts_module.SideBySide, "_join", join)
            with pytest.raises(KeyboardInterrupt) as caught:
                store.run_all([(a, helped), (b, helped)])
        assert (store.version, ended(notes(caught.value))) == (2, 2)


def test_an_interrupt_waits_for_worker_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "go"
    plainly = parts_module.wait
    calls: list[int] = []

    def wait(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        file.touch()
        return plainly(*given, **named)

    with ropewalk.Pool(2, kind="process") as pool, Store(_bank.bank(), pool=pool) as store:
        monkeypatch.setattr(parts_module, "wait", wait)
        try:
            with pytest.raises(KeyboardInterrupt) as caught:
                store.run_all([(_bank.held, str(file)), (_bank.where, "a1"), (_bank.where, "a1")])
        finally:
            file.touch()
        # The second job of a part does not begin any more.
        assert notes(caught.value) == "run_all: ended are jobs 0-1 of 3, counted from 0"
        assert store.version == 2


# --- helpers without time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["own", "executor", "pool"])
def test_a_run_leaves_nothing_with_helpers_that_have_no_time(kind: str) -> None:
    class Mark:
        pass

    gate = threading.Event()
    pools: dict[str, Callable[[], Any]] = {
        "own": lambda: None,
        "executor": lambda: ThreadPoolExecutor(1),
        "pool": lambda: ropewalk.Pool(1, kind="thread"),
    }
    pool = pools[kind]()
    a, b = adder("a"), adder("b")
    with Store(State(), pool=pool) as store:
        threads = store._threads
        began = threading.Semaphore(0)

        def busy() -> None:
            began.release()
            gate.wait(LONG)

        if pool is None:
            threads.call(threads_module.Call(busy), threads_module._MOST)
        else:
            pool.submit(busy)
        for _ in range(1 if pool else threads_module._MOST):
            assert began.acquire(timeout=LONG)
        try:
            for _ in range(40):
                mark = Mark()
                known = weakref.ref(mark)
                store.run_all([(a, lambda mark=mark: mark), b])
                del mark
                assert is_gone(known)
            assert len(threads._line._calls) == 0
            assert threads._line._wakeups.qsize() == 0
            assert threads._open <= threads_module._MOST
            if isinstance(pool, ThreadPoolExecutor):
                # It keeps what was cancelled until it has time.
                assert pool._work_queue.qsize() <= threads_module._MOST + 1
        finally:
            gate.set()
        until(lambda: not threads.have_no_time())
        both = threading.Barrier(2, timeout=LONG)
        store.run_all([(a, both.wait), (b, both.wait)])
    if pool is not None:
        pool.shutdown()


def test_wake_ups_of_calls_that_were_withdrawn_go_with_them() -> None:
    line = threads_module._Line()
    one, other = threads_module.Call(lambda: None), threads_module.Call(lambda: None)
    line.put(one, 3)
    line.put(other, 1)
    assert (line.remove(one), line.remove(one)) == (3, 0)
    assert line.next() is other
    # A thread has the wake-up already; it goes on to the next one.
    line.put(one, 1)
    line._wakeups.get()
    assert line.remove(one) == 1
    line.put(one, 1)
    line.end()
    assert line.remove(one) == 1
    assert line.next() is None
    assert line.next() is None


def test_a_full_queue_leaves_the_work_to_the_caller() -> None:
    class Full(ThreadPoolExecutor):
        def submit_nowait(self, *_: Any) -> Any:
            raise QueueFull("full")

    a, b = adder("a"), adder("b")
    with Store(State(), pool=Full()) as store:
        assert store.run_all([a, b, a, b]) == [1, 1, 2, 2]


# --- forks ------------------------------------------------------------------------------------------------------------


FORKS = """\
import os, sys, threading

from tests.unit.state._run_all import State, adder, notes
from tests.unit.state.test_run_all_ends import ended

from ropewalk._errors import StateError
from ropewalk.state import Store

a, b = adder("a"), adder("b")
parent, caller = os.getpid(), threading.get_ident()
both, forked = threading.Barrier(2, timeout=30), threading.Event()
found = []


def work():
    both.wait()
    if (threading.get_ident() == caller) == (sys.argv[1] == "caller"):
        found.append(os.fork())
        forked.set()
    else:
        forked.wait(30)


store = Store(State())
try:
    # With a third part the caller might meet neither of these jobs.
    results = store.run_all([(a, work), (b, work), a, b])
except StateError as error:
    if os.getpid() == parent:
        raise
    is_said = "forked by a job" in str(error) and ended(notes(error)) == 1
    os._exit(0 if is_said else 3)
if os.getpid() != parent:
    os._exit(5)
# The child of a helper ends at once.
print(results, os.waitstatus_to_exitcode(os.waitpid(found[0], 0)[1]))
store.close()
"""


@can_fork
@pytest.mark.parametrize("where", ["caller", "helper"])
def test_a_job_that_forks(where: str) -> None:
    # In a process of its own: a child of this one would have the libraries of all tests, without their threads.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, where],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert (done.stdout.strip(), done.returncode) == ("[1, 1, 2, 2] 0", 0), done.stderr


# --- pools that are closed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["executor", "thread", "process"])
def test_a_pool_that_is_closed(kind: str) -> None:
    pool: Any = ThreadPoolExecutor(1) if kind == "executor" else ropewalk.Pool(1, kind=kind)
    pool.shutdown()
    with Store(_bank.bank(), pool=pool) as store:
        with pytest.raises((PoolClosed, RuntimeError), match="shutdown") as caught:
            store.run_all([(_bank.where, "a1"), (_bank.count, 1)])
        assert ended(notes(caught.value)) == store.version == 0
        # One part needs no pool.
        assert store.run_all([(_bank.count, 1)] * 2) == [1, 2]


def test_a_pool_that_closes_meanwhile() -> None:
    class Closing(ThreadPoolExecutor):
        """Runs the first call at once, and is closed then."""

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            if calls:
                raise RuntimeError("closed")
            calls.append(fn)
            fn(*args, **kwargs)
            return Future()

    calls: list[Any] = []
    with Store(State(), pool=Closing()) as store:
        with pytest.raises(RuntimeError, match="closed") as caught:
            store.run_all([adder("a"), adder("b"), adder("c")])
        assert notes(caught.value) == "run_all: ended are jobs 0-2 of 3, counted from 0"
        assert store.version == 3


# --- claims, and what failures keep -----------------------------------------------------------------------------------


def claimed(store: Store[State], work: Callable[[], object]) -> None:
    """Calls something in a transaction that has claimed the whole state."""
    tries: list[int] = []

    def outer(s: Any) -> None:
        tries.append(1)
        s.d = s.d + 1
        if len(tries) > 1:
            work()
            return
        other = threading.Thread(target=lambda: store.run(lambda s: setattr(s, "d", 10)))
        other.start()
        other.join()

    store.run(outer)
    assert len(tries) == 2


def test_a_helper_has_the_claim_of_its_caller_for_the_run() -> None:
    a, b, c = adder("a"), adder("b"), adder("c")
    caller = threading.get_ident()
    claims: list[int] = []
    both = threading.Barrier(2, timeout=LONG)

    with ThreadPoolExecutor(1) as pool, Store(State(), retries=0, pool=pool) as store:

        def work() -> None:
            both.wait()
            claims.append(store._held.claim)
            if threading.get_ident() != caller:
                # It would wait for the claim of its own caller.
                store.run(c)

        claimed(store, lambda: store.run_all([(a, work), (b, work)]))
        assert store.snapshot().c == 1
        assert claims[0] == claims[1] > 0
        # The thread of the pool does other things.
        assert pool.submit(lambda: store._held.claim).result(LONG) == 0


def test_jobs_under_a_claim_do_not_go_to_worker_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a worker's commit would wait for the claim")

    monkeypatch.setattr(jobs_module, "Elsewhere", refuse)
    a, b = adder("a"), adder("b")
    with ProcessPoolExecutor(1) as pool, Store(State(), retries=0, pool=pool) as store:
        claimed(store, lambda: store.run_all([a, b]))
        assert (store.snapshot().a, store.snapshot().b) == (1, 1)
        with pytest.raises(AssertionError, match="would wait"):
            store.run_all([a, b])


def test_no_job_goes_to_a_worker_process_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, Future[Any]] = {}
    script = [("a0", ValueError("no")), ("b0", None), ("c0", None)]

    def submit(task: str) -> Future[Any]:
        sent[task] = Future()
        return sent[task]

    def wait(going: Any, **_: Any) -> Any:
        name, error = script.pop(0)
        if error is None:
            sent[name].set_result(name)
        else:
            sent[name].set_exception(error)
        assert sent[name] in going
        return SimpleNamespace(done={sent[name]})

    monkeypatch.setattr(parts_module, "wait", wait)
    store: Any = SimpleNamespace(submit=submit)
    jobs: list[Any] = [(name, (), {}) for name in ("a0", "a1", "b0", "b1", "c0", "c1")]
    outcomes = parts_module.Outcomes(len(jobs))
    pool: Any = None
    failure = parts_module.Elsewhere(store, pool, jobs, outcomes).run([[0, 1], [2, 3], [4, 5]])
    assert failure is not None
    assert (failure[0], str(failure[1])) == (0, "no")
    assert list(sent) == ["a0", "b0", "c0"]
    assert outcomes.all() == [None, None, ("b0", None), None, ("c0", None), None]


@pytest.mark.skipif(FREE_THREADED, reason="counts are settled by the collector there")
def test_a_failure_that_is_not_raised_is_let_go_of() -> None:
    class Mark:
        pass

    a, b = adder("a"), adder("b")
    both = threading.Barrier(2, timeout=LONG)
    marks: list[weakref.ref[Any]] = []

    def raises() -> None:
        mark = Mark()
        marks.append(weakref.ref(mark))
        both.wait()
        raise KeyError("x")

    def run(store: Store[State]) -> None:
        try:
            store.run_all([(a, raises), (b, raises)])
        except KeyError:
            return
        raise AssertionError("it was not raised")

    with Store(State()) as store:
        gc.collect()
        gc.disable()
        try:
            run(store)
            until(lambda: all(is_gone(mark) for mark in marks), 5)
        finally:
            gc.enable()
    assert len(marks) == 2
