"""Sessions and actors whose workers die, are replaced or are too many."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.tasks import Gate

import ropewalk
from ropewalk import current_session

MB = 1 << 20


class Counter:
    """A state, and an actor's class."""

    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self) -> int:
        self.value += 1
        return self.value

    def pid(self) -> int:
        return os.getpid()


def _count() -> tuple[int, int]:
    state = current_session().state
    return os.getpid(), state.add()


def _hold_and_count(gate: Gate) -> tuple[int, int]:
    gate.hold()
    return _count()


def _die_in_init(path: Path) -> Counter:
    if path.exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return Counter()


def _die_once_in_init(path: Path) -> Counter:
    if path.exists():
        path.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return Counter()


def _private(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel reports no private memory")


def _trim(_number: int = 0) -> int:
    gc.collect()
    tasks.trim()
    return os.getpid()


def test_a_session_whose_worker_died_is_made_again_elsewhere(processes: Any) -> None:
    session = processes.session("counter", Counter, (10,), mode="queue")
    pid, count = session.submit(_count).result(30)
    assert count == 11
    os.kill(pid, signal.SIGKILL)

    def other() -> tuple[int, int] | None:
        # A task that the dying worker had started is lost with it.
        with suppress(ropewalk.WorkerCrashed):
            found: tuple[int, int] = session.submit(_count).result(30)
            return found if found[0] != pid else None
        return None

    assert until(other)[1] == 11
    assert session.submit(_count).result(30)[1] == 12
    assert session.generation == 2


def test_the_tasks_that_waited_go_on_in_their_order(processes: Any, gate: Gate) -> None:
    session = processes.session("counter", Counter, mode="queue")
    held = session.submit(_hold_and_count, gate)
    (pid,) = until(gate.marks)
    waiting = [session.submit(_count) for _ in range(50)]
    os.kill(pid, signal.SIGKILL)
    assert isinstance(held.exception(30), ropewalk.WorkerCrashed)
    assert [future.result(30)[1] for future in waiting] == list(range(1, 51))
    assert {future.task.session_generation for future in waiting} == {2}
    assert {future.task.attempt for future in waiting} == {1}


def test_a_worker_killed_in_init_costs_that_task(processes: Any, tmp_path: Path) -> None:
    path = tmp_path / "die"
    path.touch()
    session = processes.session("deadly", _die_in_init, (path,), mode="queue")
    for _ in range(2):
        assert isinstance(session.submit(_count).exception(30), ropewalk.WorkerCrashed)
    assert [processes.submit(tasks.square, n).result(30) for n in range(10)] == [n * n for n in range(10)]
    path.unlink()
    assert session.submit(_count).result(30)[1] == 1
    path.touch()
    once = processes.session("once", _die_once_in_init, (path,), mode="queue")
    future = once.options(retries=1).submit(_count)
    assert (future.result(30)[1], future.task.attempt) == (1, 2)


def test_a_session_follows_when_its_worker_is_replaced(processes: Any) -> None:
    session = processes.session("counter", Counter, mode="queue")
    pids = set()
    for generation in range(1, 5):
        pid, count = session.submit(_count).result(30)
        assert (count, session.generation) == (1, generation)
        assert session.submit(_count).result(30) == (pid, 2)
        pids.add(pid)
        processes.recycle(pid=pid)
        until(lambda gone=pid: gone not in processes.statistics().worker_pids)
    assert len(pids) == 4
    assert processes.statistics().crashed == 0


def test_sessions_follow_when_the_pool_shrinks(make_pool: Any) -> None:
    pool = make_pool(4, kind="process")
    sessions = [pool.session(key, Counter, mode="queue") for key in range(8)]
    assert len({session.submit(_count).result(30)[0] for session in sessions}) == 4
    pool.resize(1)
    until(lambda: len(pool.statistics().worker_pids) == 1)
    (pid,) = pool.statistics().worker_pids
    found = [session.submit(_count).result(30) for session in sessions]
    assert {where for where, _ in found} == {pid}
    assert sorted(count for _, count in found) == [1] * 6 + [2] * 2


def test_no_task_of_a_session_is_lost_while_workers_are_replaced(make_pool: Any) -> None:
    pool = make_pool(2, kind="process", max_tasks=25)
    sessions = [pool.session(key, Counter, mode=mode) for key, mode in enumerate(("queue", "prefer"))]
    futures = [(session, session.submit(_count)) for _ in range(400) for session in sessions]
    for session, future in futures:
        assert future.result(60)[1] >= 1
        assert future.task.session_generation <= session.generation
    assert sum(pool.statistics().recycled.values()) >= 10
    assert pool.statistics().completed == 800


def test_an_actor_ends_with_a_worker_that_is_replaced(processes: Any) -> None:
    counter, again = processes.actor(Counter), processes.actor(Counter, max_restarts=1)
    pids = [counter.pid().result(30), again.pid().result(30)]
    for pid in pids:
        processes.recycle(pid=pid)
        until(lambda gone=pid: gone not in processes.statistics().worker_pids)
    error = counter.add().exception(30)
    assert isinstance(error, ropewalk.ActorDied)
    assert type(error.__cause__) is ropewalk.PoolError
    assert "has replaced worker" in str(error.__cause__)
    assert again.add().result(30) == 1
    assert again.generation == 2


def test_a_lost_state_is_reported(make_pool: Any) -> None:
    pool = make_pool(1, kind="process", name="lossy")
    with ropewalk.events.subscribe("pool.session.lost") as lost:
        session = pool.session("counter", Counter, mode="queue")
        session.submit(_count).result(30)
        actor = pool.actor(Counter)
        pid = actor.pid().result(30)
        assert isinstance(pool.submit(tasks.killed_by, signal.SIGKILL).exception(30), ropewalk.WorkerCrashed)
        found = [lost.recv(timeout=30) for _ in range(2)]
    assert {(event.session.partition("-")[0], event.reason) for event in found} == {
        ("counter", "made again"),
        ("Counter", "gone for good"),
    }
    assert {(event.pool, event.pid, event.topic) for event in found} == {("lossy", pid, "pool.session.lost")}


def test_a_call_that_is_cancelled_while_it_runs_ends_the_actor(processes: Any, gate: Gate) -> None:
    actor = processes.actor(Gate, gate.folder, max_restarts=1)
    running = actor.hold()
    until(gate.marks)
    waiting = actor.hold("after")
    assert running.cancel(running=True)
    gate.open()
    assert waiting.result(30)
    assert actor.generation == 2


@pytest.mark.parametrize("kind", ["session", "actor"])
def test_many_that_are_made_and_dropped_leave_no_memory(make_pool: Any, kind: str) -> None:
    pool = make_pool(1, kind="process")

    def make_and_drop(first: int, count: int) -> None:
        for number in range(first, first + count):
            if kind == "session":
                with pool.session(number, bytearray, (4096,)) as session:
                    future = session.submit(tasks.square, number)
            else:
                future = pool.actor(Counter, number).add()
            if number % 50 == 0:
                future.result(60)
        future.result(60)
        until(lambda: pool.statistics().sessions == 0)

    make_and_drop(0, 1_000)
    pid = pool.submit(_trim).result(30)
    _trim()
    before = _private(pid), _private(os.getpid())
    make_and_drop(1_000, 10_000)
    assert pool.submit(_trim).result(30) == pid
    _trim()
    after = _private(pid), _private(os.getpid())
    # The states alone would be 40 MB.
    assert after[0] < before[0] + 4 * MB
    assert after[1] < before[1] + 8 * MB


def test_sessions_whose_states_were_dropped_are_forgotten(processes: Any) -> None:
    kept = processes.session("kept", Counter, ttl=0.01)
    for key in range(500):
        processes.session(key, Counter, ttl=0.01).submit(_count).result(30)
    assert kept.submit(_count).result(30)[1] == 1

    def settled() -> bool:
        processes.session(until_key(), Counter, ttl=0.01)
        return bool(processes.statistics().sessions < 200)

    numbers = iter(range(1_000, 100_000))

    def until_key() -> int:
        return next(numbers)

    until(settled)
    assert processes.session("kept", Counter, ttl=0.01).key == "kept"


def test_a_pool_with_a_session_of_itself_is_collected() -> None:
    import weakref

    def make() -> weakref.ref[Any]:
        pool = ropewalk.Pool(1, kind="thread")
        holder = [pool]
        session = pool.session("circle", holder.count, (pool,))
        actor = pool.actor(Counter)
        holder += [session, actor]  # type: ignore[list-item]
        assert actor.add().result(30) == 1
        pool.shutdown()
        return weakref.ref(pool)

    there = make()
    gc.collect()
    assert there() is None
