"""Ending a pool by force: waiting tasks are cancelled, running ones fail, and no process stays."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest
from tests import tasks
from tests.polling import is_alive, until
from tests.tasks import Gate

import ropewalk


def _held(pool: Any, gate: Gate, running: int, waiting: int) -> tuple[list[Any], list[Any]]:
    """So many tasks that run, and so many behind them."""
    held = [pool.submit(gate.hold) for _ in range(running)]
    until(lambda: len(gate.marks()) == running)
    return held, [pool.submit(tasks.square, n) for n in range(waiting)]


def test_terminate_ends_everything_now(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process")
    held, behind = _held(pool, gate, 2, 20)
    pool._engine.terminate()
    for future in held:
        with pytest.raises(ropewalk.PoolTerminated) as caught:
            future.result(60)
        assert isinstance(caught.value, BrokenProcessPool)
        assert caught.value.code == "RW-POOL-TERMINATED"
        assert future.task.worker_pid in gate.marks()
    assert all(future.cancelled() for future in behind)
    assert pool._engine.join(60)
    assert not any(is_alive(pid) for pid in gate.marks())
    with pytest.raises(ropewalk.PoolClosed):
        pool.submit(tasks.square, 2)
    now = pool.statistics()
    assert (now.failed, now.cancelled, now.crashed, now.restarted) == (2, 20, 0, 0)


def test_terminate_runs_nothing_again(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process")
    held = pool.options(retries=5).submit(gate.hold)
    until(gate.marks)
    pool._engine.terminate()
    assert isinstance(held.exception(60), ropewalk.PoolTerminated)
    assert pool._engine.join(60)
    assert len(gate.marks()) == 1


def test_terminate_of_a_pool_that_starts(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(4, kind="process")
    pool._engine.terminate()
    assert pool._engine.join(60)
    assert pool.statistics().worker_pids == ()


def test_terminate_tells_the_callers_of_threads(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="thread")
    held, behind = _held(pool, gate, 1, 3)
    pool._engine.terminate()
    assert isinstance(held[0].exception(60), ropewalk.PoolTerminated)
    assert all(future.cancelled() for future in behind)
    # The call itself cannot be ended, and the pool does not wait for it.
    assert pool._engine.join(60)
    assert [thread.is_lost() for thread in pool._runners] == [True]
    gate.open()
    until(lambda: not pool._runners[0].is_alive())


def test_an_end_with_grace_lets_a_task_finish(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    held, behind = _held(pool, gate, 1, 5)
    pool._engine.end(60.0)
    assert all(future.cancelled() for future in behind)
    assert not held[0].done()
    gate.open()
    assert held[0].result(60) == gate.marks()[0]
    assert pool._engine.join(60)


def test_an_end_without_grace_left(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    held, behind = _held(pool, gate, 1, 5)
    pool._engine.end(0.05)
    assert isinstance(held[0].exception(60), ropewalk.PoolTerminated)
    assert all(future.cancelled() for future in behind)
    gate.open()
    assert pool._engine.join(60)


def test_a_grace_that_makes_no_sense(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="thread")
    with pytest.raises(ValueError, match="grace"):
        pool._engine.end(-1.0)
    with pytest.raises(ValueError, match="grace"):
        pool._engine.end(float("nan"))
    assert pool.submit(tasks.square, 3).result(60) == 9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_workers(make_pool: Callable[..., Any], gate: Gate, number: int) -> None:
    pool = make_pool(2, kind="process", on_crash="break")
    held, behind = _held(pool, gate, 2, 20)
    pool._engine.signal_workers(number)
    assert all(isinstance(future.exception(60), ropewalk.PoolTerminated) for future in held)
    assert all(future.cancelled() for future in behind)
    assert pool._engine.join(60)
    assert not any(is_alive(pid) for pid in gate.marks())
    assert pool.statistics().crashed == 0


def _outlive_sigterm(gate: Gate) -> Any:
    signal.signal(signal.SIGTERM, lambda *_: gate.mark("signalled"))
    return gate.hold()


def test_a_worker_may_take_the_signal_and_finish(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process")
    held = pool.submit(_outlive_sigterm, gate)
    until(gate.marks)
    pool._engine.signal_workers(signal.SIGTERM)
    until(lambda: gate.marks("signalled"))
    gate.open()
    assert held.result(60) == gate.marks()[0]
    assert pool._engine.join(60)


_JOINED = """
import signal, threading, time
import ropewalk
from tests.tasks import Gate

def interrupt(*_):
    # Of the signals that are sent until one arrives, one counts: no other may end what follows.
    if joins:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

if __name__ == "__main__":
    gate = Gate({folder!r})
    pool = ropewalk.Pool(1, kind={kind!r})
    pool.submit(gate.hold)
    while not gate.marks():
        time.sleep(0.002)
    pool._engine.close(False)
    joins = False
    signal.signal(signal.SIGINT, interrupt)
    gate.mark("joins")
    try:
        joins = True
        pool._engine.join()
    except KeyboardInterrupt:
        gate.mark("interrupted")
        gate.open()
        pool._engine.join()
"""


def test_an_interrupt_ends_a_join(gate: Gate, kind: str) -> None:
    code = _JOINED.format(folder=str(gate.folder), kind=kind)
    with subprocess.Popen([sys.executable, "-c", code]) as child:
        try:
            until(lambda: gate.marks("joins"))
            # One that comes before it joins is passed over.
            while not gate.marks("interrupted"):
                child.send_signal(signal.SIGINT)
                time.sleep(0.2)
                assert child.poll() is None or gate.marks("interrupted")
            assert child.wait(60) == 0
        finally:
            child.kill()


# --- what is dropped while the engine works -------------------------------------------------------------------


class Finalized:
    """Comes back to the pool when it is dropped, and lets other threads run meanwhile."""

    def __init__(self, pool: Any, seen: list[int]) -> None:
        self.pool = pool
        self.seen = seen

    def __del__(self) -> None:
        time.sleep(0.001)
        self.seen.append(self.pool.statistics().queued)


def _ignore(*_: Any) -> None:
    """Takes what it is given."""


@pytest.mark.parametrize("how", ["cancel", "shutdown", "map", "terminate", "timeout"])
def test_finalizers_of_arguments_run_outside_of_the_lock(
    make_pool: Callable[..., Any], gate: Gate, how: str
) -> None:
    pool = make_pool(1, kind="thread")
    pool.submit(gate.hold)
    until(gate.marks)
    seen: list[int] = []
    stop = threading.Event()

    def press() -> None:
        while not stop.is_set():
            pool.statistics()

    # Another thread that wants the lock, as the one that drops has the interpreter.
    presser = threading.Thread(target=press, daemon=True)
    presser.start()
    count = 20
    if how == "map":
        results = pool.map(_ignore, [Finalized(pool, seen) for _ in range(count)], buffersize=count)
        next_one = threading.Thread(target=lambda: next(results, None), daemon=True)
        next_one.start()
        time.sleep(0.01)
        gate.open()
        next_one.join(60)
        del results
    elif how == "timeout":
        futures = [
            pool.options(task_timeout=0.05).submit(_ignore, Finalized(pool, seen)) for _ in range(count)
        ]
    else:
        futures = [pool.submit(_ignore, Finalized(pool, seen)) for _ in range(count)]
        if how == "cancel":
            assert all(future.cancel() for future in futures)
        elif how == "shutdown":
            pool.shutdown(wait=False, cancel_futures=True)
        else:
            pool._engine.terminate()
    gate.open()
    until(lambda: len(seen) == count)
    stop.set()
    presser.join(60)
    assert not presser.is_alive()
