"""`Store.run_all`: what is raised and what is committed when something fails."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.polling import is_gone, until
from tests.unit.state._run_all import LONG, P, State, adder, fail, journal_file, notes

import ropewalk
from ropewalk._errors import ContractViolation, StateError, StoreClosed
from ropewalk.result import Err
from ropewalk.state import Store, _job_parts as parts_module, paths, task


@pytest.fixture
def path() -> Iterator[Path]:
    with journal_file() as found:
        yield found


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
        before = parts_module.SideBySide.run

        def run(self: Any, parts: Any) -> Any:
            seen.append(self)
            return before(self, parts)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parts_module.SideBySide, "run", run)
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
        interrupts: list[int] = []
        before = parts_module.SideBySide._join

        def join(self: Any) -> None:
            waiting.append(self)
            before(self)

        def heard(*_: object) -> None:
            if not interrupts:
                interrupts.append(1)
                raise KeyboardInterrupt

        def again() -> bool:
            # One may come between the interpreter's look for signals and the wait, which then goes on.
            os.kill(os.getpid(), signal.SIGINT)
            return len(waiting) == 2

        def interrupt() -> None:
            began.set()
            until(lambda: waiting)
            # The caller has seen it, and waits again, for this job.
            until(again)

        def first(first_thread: int = threading.get_ident()) -> None:
            # Whichever part this thread takes, the other one is with a helper.
            if threading.get_ident() == first_thread:
                began.wait(LONG)
            else:
                interrupt()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parts_module.SideBySide, "_join", join)
            usual = signal.signal(signal.SIGINT, heard)
            try:
                with pytest.raises(KeyboardInterrupt):
                    store.run_all([(a, first), (b, first)])
            finally:
                signal.signal(signal.SIGINT, usual)
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
