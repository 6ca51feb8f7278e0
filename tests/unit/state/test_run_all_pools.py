"""`Store.run_all`: the threads that help, and worker processes."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
from tests.polling import is_gone, until
from tests.unit.state import _bank
from tests.unit.state._run_all import LONG, State, adder, helpers, notes

import ropewalk
from ropewalk._errors import ContractViolation
from ropewalk.state import Store

# --- threads ----------------------------------------------------------------------------------------------------------


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


def test_help_takes_no_place_from_a_task_that_waits(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="thread", capacity=1, overflow="drop_oldest")
    gate, running = threading.Event(), threading.Event()
    busy = pool.submit(lambda: running.set() or gate.wait(LONG))
    assert running.wait(LONG)
    waiting = pool.submit(int)
    with Store(State(), pool=pool) as store:
        store.run_all([adder("a"), adder("b")])
        gate.set()
        assert (busy.result(LONG), waiting.result(LONG)) == (True, 0)


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
