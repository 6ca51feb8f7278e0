"""The life of the actors of `kind="ray"`: their limits, their replacement, and their number."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults import test_sessions_lost
from tests.polling import until
from tests.raycluster import local_cluster
from tests.tasks import Gate
from tests.unit import test_resize, test_worker_life
from tests.unit.test_worker_life import recycled

import ropewalk

pytest.importorskip("ray")

# Ray's own code warns of what it does.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(180)]

__all__ = ["recycled"]

#: Tests of worker processes that hold here, too.
_ALIKE = (
    test_worker_life.test_a_chunk_of_a_map_is_one_task,
    test_worker_life.test_a_worker_of_some_age_is_replaced,
    test_worker_life.test_there_are_never_fewer_ready_workers_while_all_are_recycled,
    test_worker_life.test_one_worker_is_recycled_by_its_number_or_its_process_id,
    test_worker_life.test_tasks_that_a_worker_runs_are_finished,
    test_worker_life.test_a_worker_is_warmed_up_and_probed_before_its_first_task,
    test_worker_life.test_a_replacement_that_is_not_fit_leaves_the_old_worker_at_work,
    test_resize.test_what_a_smaller_pool_has_not_started_goes_to_others,
    test_resize.test_a_map_uses_a_pool_that_has_grown,
)
for test in _ALIKE:
    globals()[test.__name__] = test


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with local_cluster(cpus=8):
        yield


@pytest.fixture
def make_pool(cluster: None, make_pool: Callable[..., Any]) -> Callable[..., Any]:
    """Makes pools on the cluster, whichever kind a test names."""
    return lambda *args, **settings: make_pool(*args, **{**settings, "kind": "ray"})


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_an_actor_has_so_many_tasks_and_no_more(make_pool: Callable[..., Any], recycled: Any) -> None:
    pool = make_pool(1, max_tasks_per_child=3, name="counted far")
    pids = [pool.submit(os.getpid).result(60) for _ in range(9)]
    assert [pids.index(pid) for pid in pids] == [0, 0, 0, 3, 3, 3, 6, 6, 6]
    events = sorted((recycled("counted far") for _ in range(3)), key=lambda event: event.worker)
    for number, event in enumerate(events):
        assert (event.pid, event.tasks, event.reason) == (pids[3 * number], 3, "max_tasks")
        assert event.private_bytes is None
    now = pool.statistics()
    assert (now.recycled["max_tasks"], now.restarted, now.crashed) == (3, 3, 0)
    until(lambda: not any(map(_is_alive, pids)))


def test_no_actor_of_a_busy_pool_has_more_tasks_than_its_limit(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, max_tasks=10, recycle_jitter=0)
    pids = [future.result(60) for future in [pool.submit(os.getpid) for _ in range(60)]]
    assert max(pids.count(pid) for pid in set(pids)) <= 10
    # The lanes of those that have left are used again, and their threads are not kept.
    assert len(pool._runners) <= 8


def test_what_a_closed_pool_runs_again_finds_an_actor(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, max_tasks_per_child=1, retries=2)

    def fails_at_first() -> int:
        gate.hold("run")
        task = ropewalk.current_task()
        assert task is not None
        if task.attempt < 3:
            raise OSError("not yet")
        return task.attempt

    future = pool.submit(fails_at_first)
    until(lambda: gate.marks("run"))
    pool.shutdown(wait=False)
    gate.open()
    assert future.result(60) == 3


def test_a_pool_of_another_size(make_pool: Callable[..., Any]) -> None:
    with ropewalk.events.subscribe("pool.resized") as events:
        pool = make_pool(1, name="resized far")
        for workers in (3, 1, 2):
            pool.resize(workers)
            until(lambda workers=workers: pool.statistics().ready == workers, 60)
            assert pool.statistics().workers == pool._max_workers == workers
            futures = [pool.submit(pow, 2, number) for number in range(10)]
            assert [future.result(60) for future in futures] == [2**number for number in range(10)]
            assert events.recv(timeout=30).workers == workers
    until(lambda: len(pool.statistics().worker_pids) == 2)
    now = pool.statistics()
    assert (now.recycled["shrunk"], now.crashed, now.failed) == (2, 0, 0)


def test_a_smaller_pool_finishes_what_it_runs(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(3)
    held = [pool.submit(gate.hold) for _ in range(3)]
    until(lambda: len(gate.marks()) == 3, 60)
    pool.resize(1)
    until(lambda: sum(worker.state == "leaving" for worker in pool.statistics().workers_detail) == 2)
    gate.open()
    assert len({future.result(60) for future in held}) == 3
    until(lambda: len(pool.statistics().worker_pids) == 1)
    assert [future.task.attempt for future in held] == [1, 1, 1]


def test_actors_that_are_not_there_yet_are_not_waited_for(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, ray_options={"num_cpus": 1})
    assert pool.submit(abs, -1).result(60) == 1
    pool.resize(20)
    until(lambda: "waits for a node with room" in pool.explain())
    pool.resize(1)
    until(lambda: len(pool.statistics().workers_detail) == 1)
    assert pool.submit(abs, -1).result(60) == 1
    assert "waits for a node" not in pool.explain()


def test_a_replacement_whose_initializer_fails_leaves_the_old_actor_at_work(
    make_pool: Callable[..., Any], tmp_path: Path
) -> None:
    obstacle = tmp_path / "obstacle"
    pool = make_pool(1, initializer=test_worker_life.fail_if_there(str(obstacle)))
    pid = pool.submit(os.getpid).result(60)
    obstacle.touch()
    pool.recycle()
    until(lambda: "its initializer failed" in pool.explain(), 60)
    assert pool.submit(os.getpid).result(60) == pid
    obstacle.unlink()
    until(lambda: pool.submit(os.getpid).result(60) != pid, 60)


def test_an_actor_that_is_due_and_lost_is_replaced_once(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, retries=1)
    first = pool.submit(os.getpid).result(60)
    pool.recycle()
    os.kill(first, 9)
    until(lambda: pool.submit(os.getpid).result(60) != first, 60)
    until(lambda: len(pool.statistics().workers_detail) == 1, 60)
    assert pool.submit(abs, -1).result(60) == 1


def test_an_object_ends_with_an_actor_that_is_replaced(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1)
    one = pool.actor(list, [1])
    assert one.pop().result(60) == 1
    pool.recycle()
    until(lambda: pool.statistics().recycled["asked"], 60)
    error = one.append(2).exception(60)
    assert isinstance(error, ropewalk.ActorDied)
    assert "has replaced worker" in str(error.__cause__)


def test_sessions_follow_when_the_pool_shrinks(make_pool: Callable[..., Any]) -> None:
    # The actors that begin first get the sessions that are opened before the others are there.
    def when_all_are_there(*args: Any, **settings: Any) -> Any:
        pool = make_pool(*args, **settings)
        until(lambda: pool.statistics().ready == pool.statistics().workers, 60)
        return pool

    test_sessions_lost.test_sessions_follow_when_the_pool_shrinks(when_all_are_there)


def test_tasks_of_a_session_run_one_at_a_time_while_its_actor_is_replaced(
    make_pool: Callable[..., Any], gate: Gate
) -> None:
    pool = make_pool(2)
    session = pool.session("one", list, mode="queue")
    held = session.submit(gate.hold, "held")
    until(lambda: gate.marks("held"), 60)
    behind = session.submit(os.getpid)
    (pid,) = gate.marks("held")
    assert pool.recycle(pid=pid) == 1
    until(lambda: any(worker.state == "leaving" for worker in pool.statistics().workers_detail), 60)
    assert not behind.done()
    gate.open()
    held.result(60)
    assert behind.result(60) != pid


def test_the_threads_of_a_pool_end_with_it(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, max_tasks=2, name="threads far")
    assert [future.result(60) for future in [pool.submit(abs, -n) for n in range(9)]] == list(range(9))
    pool.recycle()
    pool.shutdown()
    until(lambda: not [thread for thread in threading.enumerate() if "threads far" in thread.name])
