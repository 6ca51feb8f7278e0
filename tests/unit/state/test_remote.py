"""Tasks of a store on pools: of threads, of processes, of the standard library."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import sysconfig
import threading
import weakref
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from tests.polling import is_gone, until
from tests.unit.state._bank import OPEN, Account, bank, fails, held, last, sneaky, total, transfer, where

import ropewalk
from ropewalk.result import Err, Ok
from ropewalk.state import Store
from ropewalk.state._remote import Remote


@pytest.fixture(params=["process", "thread", "stdlib-process", "stdlib-thread"])
def pool(request: pytest.FixtureRequest) -> Any:
    kinds: dict[str, Any] = {
        "process": lambda: ropewalk.Pool(2, kind="process"),
        "thread": lambda: ropewalk.Pool(2, kind="thread"),
        "stdlib-process": lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn")),
        "stdlib-thread": lambda: ThreadPoolExecutor(2),
    }
    with kinds[request.param]() as pool:
        pool.name_of_kind = request.param
        yield pool


def test_a_task_runs_there_and_is_committed_here(pool: Any) -> None:
    with Store(bank(), pool=pool) as store:
        assert store.submit(transfer, "a0", "a1", 30).result(60) == Ok(Account("o0", 70))
        assert store.submit(transfer, "a0", "a1", 300).result(60) == Err("poor")
        there = store.submit(where, "a2").result(60)
        assert (there == os.getpid()) == ("thread" in pool.name_of_kind)
        state = store.snapshot()
        assert (state.accounts["a1"].balance, state.hits, list(state.log)) == (130, 1, [30])
        assert store.version == 2
        assert [version.meta.task for version in store.history(1)] == ["transfer", "where"]


def test_nothing_is_lost_and_nothing_is_done_twice(pool: Any) -> None:
    with Store(bank(3), pool=pool) as store:
        moves = [(f"a{number % 3}", f"a{(number + 1) % 3}") for number in range(60)]
        results = [store.submit(transfer, *move, 1) for move in moves]
        assert all(isinstance(result.result(60), Ok) for result in results)
        state = store.snapshot()
        assert total(state) == 300
        assert (state.hits, len(state.log), store.version) == (60, 60, 60)


def test_errors_come_back_and_change_nothing(pool: Any) -> None:
    with Store(bank(), pool=pool) as store:
        with pytest.raises(ValueError, match="no"):
            store.submit(fails).result(60)
        with pytest.raises(ropewalk.ContractViolation):
            store.submit(sneaky).result(60)
        assert store.version == 0


def test_a_worker_gets_the_declared_fields_once_and_then_what_has_changed() -> None:
    with ropewalk.Pool(1, kind="process") as pool, Store(bank(2000), pool=pool) as store:
        store.submit(transfer, "a0", "a1", 1).result(60)
        remote = store._remote
        assert isinstance(remote, Remote)
        assert {name for name, _ in remote._checkpoints} == {"limit", "accounts", "log", "hits"}
        first = {place: checkpoint.version for place, checkpoint in remote._checkpoints.items()}
        for number in range(20):
            store.submit(transfer, f"a{number}", f"a{number + 1}", 1).result(60)
        assert {place: checkpoint.version for place, checkpoint in remote._checkpoints.items()} == first
        accounts = ("accounts", True)
        assert len(remote._changes[accounts].data) < remote._checkpoints[accounts].size / 20
        # A large change is a new checkpoint.
        with store.transaction() as tx:
            for number in range(1500):
                tx.draft.accounts[f"a{number}"].balance = 5
        store.submit(transfer, "a0", "a1", 1).result(60)
        assert remote._checkpoints[accounts].version > first[accounts]


def test_commits_of_workers_are_in_the_journal(tmp_path: Path) -> None:
    file = tmp_path / "bank.wal"
    with ropewalk.Pool(2, kind="process") as pool, Store(bank(), pool=pool, journal=file) as store:
        for result in [store.submit(transfer, "a0", "a1", 1) for _ in range(10)]:
            result.result(60)
        state = store.snapshot()
    with Store(bank(), journal=file) as store:
        assert store.snapshot() == state
        assert store.version == 10


def test_without_a_pool_there_is_nothing_to_submit_to() -> None:
    with Store(bank()) as store:
        with pytest.raises(ropewalk.StateError, match="has no pool"):
            store.submit(transfer, "a0", "a1", 1)
        with pytest.raises(TypeError, match="pool must be an executor"):
            Store(bank(), pool=ProcessPoolExecutor)  # type: ignore[arg-type]


def test_a_closed_store_takes_no_tasks() -> None:
    with ropewalk.Pool(1, kind="process") as pool:
        store = Store(bank(), pool=pool)
        store.submit(transfer, "a0", "a1", 1).result(60)
        store.close()
        with pytest.raises(ropewalk.StoreClosed):
            store.submit(transfer, "a0", "a1", 1)


def test_an_effect_of_a_task_may_close_the_store() -> None:
    with ropewalk.Pool(1, kind="process") as pool:
        store = Store(bank(), pool=pool)
        OPEN.append(store)
        store.submit(last).result(60)
        until(lambda: store.closed)
        OPEN.clear()


def test_submitted_tasks_are_awaited(pool: Any) -> None:
    async def main() -> None:
        with Store(bank(), pool=pool) as store:
            with store.by("eve"):
                results = await asyncio.gather(*[store.submit(where, "a0") for _ in range(5)])
            assert len(results) == 5
            assert store.snapshot().accounts["a0"].balance == 105
            assert {version.meta.who for version in store.history(1)} == {"eve"}
            with pytest.raises(ValueError, match="no"):
                await store.submit(fails)

    asyncio.run(asyncio.wait_for(main(), 100))


def test_calls_that_meet_each_other_run_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    send = Remote._send

    def counted(self: Remote, one: Any) -> None:
        sent.append(one.attempt)
        send(self, one)

    monkeypatch.setattr(Remote, "_send", counted)
    with ropewalk.Pool(2, kind="process") as pool, Store(bank(), pool=pool) as store:
        futures = [store.submit(where, "a0") for _ in range(40)]
        for future in futures:
            future.result(60)
        assert store.snapshot().accounts["a0"].balance == 140
        assert not store._remote._lines  # type: ignore[union-attr]
    # Each runs once more at most, but for the few that a call meets which was not yet in the line.
    assert len(sent) < 40 * 3


def test_an_exception_that_leaves_the_block_waits_for_no_task(pool: Any, tmp_path: Path) -> None:
    go = tmp_path / "go"
    try:
        with pytest.raises(KeyboardInterrupt), Store(bank(), pool=pool) as store:  # noqa: PT012
            futures = [store.submit(held, str(go)) for _ in range(6)]
            raise KeyboardInterrupt
        assert store.closed
        if "thread" not in pool.name_of_kind:
            assert all(future.done() for future in futures)
    finally:
        # The pool is the program's, and its tasks go on.
        go.touch()
    assert store._durable()[0] == 0


@pytest.mark.skipif(
    sys.version_info < (3, 14) and bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="3.13 without a global lock keeps every class once there was a second thread",
)
def test_a_store_that_has_submitted_is_collected(tmp_path: Path) -> None:
    path = tmp_path / "bank.wal"

    def names() -> list[str]:
        return [thread.name for thread in threading.enumerate()]

    with ropewalk.Pool(1, kind="process") as pool:
        store = Store(bank(), pool=pool, journal=path)
        # The thread ends between them, and another one begins.
        for number in range(2):
            store.submit(transfer, "a0", "a1", 1).result(60)
            until(lambda: "ropewalk-commits" not in names())
            assert store.version == number + 1
        known = weakref.ref(store)
        del store
        until(lambda: gc.collect() + 1 and is_gone(known))
        with Store(bank(), pool=pool, journal=path) as again:
            assert again.version == 2
            again.submit(transfer, "a0", "a1", 1).result(60)
            assert again.version == 3
