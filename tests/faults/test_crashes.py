"""A worker that dies costs the tasks that it was running, and nothing else."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest
from tests import tasks
from tests.polling import is_alive, until
from tests.tasks import Gate

import ropewalk

DEATHS = {
    "sigkill": (tasks.killed_by, (signal.SIGKILL,), signal.SIGKILL, None),
    "sigterm": (tasks.killed_by, (signal.SIGTERM,), signal.SIGTERM, None),
    "segfault": (tasks.segfault, (), signal.SIGSEGV, None),
    "abort": (os.abort, (), signal.SIGABRT, None),
    "out-of-memory": (tasks.killed_for_memory, (), signal.SIGKILL, None),
    "_exit": (tasks.leave, (3,), None, 3),
    "_exit-0": (tasks.leave, (0,), None, 0),
}


@pytest.fixture(autouse=True)
def _no_core_files() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


@pytest.mark.parametrize("death", DEATHS)
def test_only_the_task_that_ran_fails(processes: Any, gate: Gate, death: str) -> None:
    function, args, number, status = DEATHS[death]
    bystander = processes.submit(gate.hold)
    until(gate.marks)
    victim = processes.submit(function, *args)
    behind = [processes.submit(tasks.square, number) for number in range(40)]

    with pytest.raises(ropewalk.WorkerCrashed) as caught:
        victim.result(60)
    error = caught.value
    assert isinstance(error, BrokenProcessPool)
    assert error.code == "RW-WORKER-CRASHED"
    assert (error.signal, error.exit_code) == (number, status)
    assert error.task == victim.task.id
    assert error.attempt == victim.task.attempt == 1
    assert error.pid == victim.task.worker_pid
    assert not is_alive(error.pid)
    assert str(error.pid) in str(error)

    assert [future.result(60) for future in behind] == [number * number for number in range(40)]
    gate.open()
    assert bystander.result(60) == bystander.task.worker_pid != error.pid


def test_the_worker_is_replaced(processes: Any) -> None:
    before = set(
        until(lambda: len(processes.statistics().worker_pids) == 2 and processes.statistics().worker_pids)
    )
    victim = processes.submit(tasks.killed_by, signal.SIGKILL)
    assert isinstance(victim.exception(60), ropewalk.WorkerCrashed)
    after = set(
        until(
            lambda: (
                len(processes.statistics().worker_pids) == 2
                and victim.task.worker_pid not in processes.statistics().worker_pids
                and processes.statistics().worker_pids
            )
        )
    )
    assert len(before & after) == 1
    now = processes.statistics()
    assert (now.crashed, now.restarted, now.failed) == (1, 1, 1)


def test_a_pool_of_one_goes_on(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    futures = [
        pool.submit(tasks.killed_by if n % 3 == 1 else tasks.square, 9 if n % 3 == 1 else n)
        for n in range(12)
    ]
    for n, future in enumerate(futures):
        if n % 3 == 1:
            assert isinstance(future.exception(60), ropewalk.WorkerCrashed)
        else:
            assert future.result(60) == n * n
    assert pool.statistics().crashed == 4


def test_an_idle_worker_that_dies_costs_nothing(processes: Any) -> None:
    processes.submit(tasks.identity, 0).result(60)
    pids = until(lambda: len(processes.statistics().worker_pids) == 2 and processes.statistics().worker_pids)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert [processes.submit(tasks.square, n).result(60) for n in range(50)] == [n * n for n in range(50)]
    assert processes.statistics().failed == 0
    until(lambda: processes.statistics().crashed == 2)


def test_every_worker_killed_while_running(processes: Any, gate: Gate) -> None:
    futures = [processes.submit(gate.hold, "first") for _ in range(2)]
    pids = until(lambda: len(gate.marks("first")) == 2 and gate.marks("first"))
    queued = [processes.submit(tasks.square, n) for n in range(100)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert {future.exception(60).pid for future in futures} == set(pids)
    assert [future.result(60) for future in queued] == [n * n for n in range(100)]


def test_an_idempotent_task_is_run_again(processes: Any, gate: Gate) -> None:
    future = processes.options(retries=3).submit(tasks.die_until, gate, 3, signal.SIGKILL)
    assert future.result(60) == 3
    assert future.task.attempt == 3
    now = processes.statistics()
    assert (now.crashed, now.retried, now.failed, now.completed) == (2, 2, 0, 1)
    assert len(set(gate.marks("attempt"))) == 3


def test_retries_come_to_an_end(processes: Any, gate: Gate) -> None:
    future = processes.options(retries=2).submit(tasks.die_until, gate, 10, signal.SIGKILL)
    with pytest.raises(ropewalk.WorkerCrashed) as caught:
        future.result(60)
    assert caught.value.attempt == future.task.attempt == 3
    assert len(gate.marks("attempt")) == 3


def test_map_goes_on_after_a_crash(processes: Any) -> None:
    inputs = [0, 0, signal.SIGKILL, 0, 0]
    results = processes.map(_die_if, inputs, chunksize=1)
    seen: list[object] = []
    while True:
        try:
            seen.append(next(results))
        except StopIteration:
            break
        except ropewalk.WorkerCrashed as error:
            seen.append(error.signal)
    assert seen == inputs


def _die_if(number: int) -> int:
    if number:
        tasks.killed_by(number)
    return 0


def test_all_threads_of_a_worker_fail_together(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, threads=3, kind="process")
    futures = [pool.submit(gate.hold) for _ in range(3)]
    pids = until(lambda: len(gate.marks()) == 3 and gate.marks())
    assert len(set(pids)) == 1
    queued = pool.submit(tasks.square, 5)
    os.kill(pids[0], signal.SIGKILL)
    assert [type(future.exception(60)) for future in futures] == [ropewalk.WorkerCrashed] * 3
    assert len({future.exception().task for future in futures}) == 3
    assert queued.result(60) == 25
    assert pool.statistics().crashed == 1


def test_on_crash_break_breaks_the_whole_pool(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process", on_crash="break")
    running = pool.submit(gate.hold)
    (pid,) = until(gate.marks)
    other = pool.submit(gate.hold, "other")
    until(lambda: gate.marks("other"))
    queued = [pool.submit(tasks.square, n) for n in range(20)]
    os.kill(pid, signal.SIGKILL)
    for future in [running, other, *queued]:
        assert isinstance(future.exception(60), BrokenProcessPool)
    with pytest.raises(BrokenProcessPool):
        pool.submit(tasks.square, 2)
    with pytest.raises(BrokenProcessPool):
        list(pool.map(tasks.square, [2]))
    pool.shutdown()
    assert pool.statistics().worker_pids == ()


def test_a_crash_while_the_pool_shuts_down(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process")
    held = pool.submit(gate.hold)
    (pid,) = until(gate.marks)
    queued = [pool.submit(tasks.square, n) for n in range(20)]
    pool.shutdown(wait=False)
    os.kill(pid, signal.SIGKILL)
    pool.shutdown(wait=True)
    assert isinstance(held.exception(60), ropewalk.WorkerCrashed)
    assert [future.result(60) for future in queued] == [n * n for n in range(20)]


def test_a_crash_while_a_large_result_is_on_its_way(processes: Any) -> None:
    for _ in range(3):
        big = [processes.submit(tasks.pattern, 4 << 20) for _ in range(4)]
        assert isinstance(
            processes.submit(tasks.killed_by, signal.SIGKILL).exception(60), ropewalk.WorkerCrashed
        )
        assert [len(future.result(60)) for future in big] == [4 << 20] * 4


def test_a_worker_that_is_stopped_holds_up_nobody_else(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process")
    stuck = pool.options(task_timeout=3).submit(gate.hold)
    (pid,) = until(gate.marks)
    os.kill(pid, signal.SIGSTOP)
    assert [future.result(60) for future in [pool.submit(tasks.square, n) for n in range(100)]][-1] == 99 * 99
    with pytest.raises(ropewalk.TaskTimeout) as caught:
        stuck.result(60)
    assert caught.value.phase == "running"
    until(lambda: not is_alive(pid))


def test_a_stopped_idle_worker_gives_its_tasks_back(processes: Any) -> None:
    processes.submit(tasks.identity, 0).result(60)
    pids = until(lambda: len(processes.statistics().worker_pids) == 2 and processes.statistics().worker_pids)
    os.kill(pids[0], signal.SIGSTOP)
    try:
        futures = [processes.submit(tasks.square, n) for n in range(200)]
        # One may have been taken by the stopped worker the moment it was stopped; the others do not wait for it.
        until(lambda: sum(future.done() for future in futures) >= 199)
    finally:
        os.kill(pids[0], signal.SIGCONT)
    assert [future.result(60) for future in futures] == [n * n for n in range(200)]


class _EndsWhoeverReadsIt:
    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (3,)


def test_what_kills_a_worker_is_not_unpickled_by_its_parent(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    with pytest.raises(ropewalk.WorkerCrashed, match="id"):
        pool.submit(id, _EndsWhoeverReadsIt()).result(60)
    with pytest.raises(ropewalk.WorkerCrashed):
        list(pool.map(id, [_EndsWhoeverReadsIt()] * 2, chunksize=2))
    assert pool.submit(abs, -3).result(60) == 3


@pytest.mark.parametrize("retries", [0, 2])
def test_a_function_that_kills_whoever_loads_it_is_loaded_as_often_as_it_may(
    make_pool: Callable[..., Any], retries: int
) -> None:
    pool = make_pool(1, kind="process", retries=retries)
    future = pool.submit(functools.partial(print, _EndsWhoeverReadsIt()))
    behind = [pool.submit(tasks.square, number) for number in range(3)]
    error = future.exception(60)
    assert isinstance(error, ropewalk.WorkerCrashed)
    assert error.call == "functools.partial(print, ...)()"
    assert error.attempt == pool.statistics().crashed == 1 + retries
    assert [one.result(60) for one in behind] == [0, 1, 4]


def test_what_breaks_a_pool_is_not_unpickled_by_its_parent(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", on_crash="break")
    with pytest.raises(ropewalk.WorkerCrashed):
        pool.submit(_ReadInWorkers().leave).result(60)


class _ReadInWorkers:
    """Can be unpickled in a worker, and ends its sender."""

    def __reduce__(self) -> tuple[object, ...]:
        return _unless_in, (os.getpid(),)

    def leave(self) -> None:
        os._exit(4)


def _unless_in(pid: int) -> _ReadInWorkers:
    if os.getpid() == pid:
        os._exit(3)
    return _ReadInWorkers()
