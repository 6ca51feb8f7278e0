"""How long workers live: their limits, their replacement, and what a new one must pass."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until

import ropewalk

MIB = 2**20
KEPT: list[bytearray] = []
STEPS: list[str] = []


def leak(number: int) -> int:
    KEPT.append(bytearray(os.urandom(64) * (MIB // 64)))
    return number


def note(step: str) -> None:
    STEPS.append(step)


def warm_up() -> None:
    note("warmup")


def probe() -> None:
    note("probe")


def steps() -> list[str]:
    return STEPS


def refuse() -> bool:
    return False


def fail() -> None:
    raise LookupError("there is no model")


def fail_if_there(path: str) -> Callable[[], None]:
    def check() -> None:
        if Path(path).exists():
            raise LookupError(f"{path} is in the way")

    return check


@pytest.fixture
def recycled() -> Iterator[Callable[[str], ropewalk.PoolEvent]]:
    """The next worker that a pool has recycled."""
    with ropewalk.events.subscribe("pool.worker.recycled") as subscription:

        def next_of(pool: str) -> ropewalk.PoolEvent:
            while True:
                event: ropewalk.PoolEvent = subscription.recv(timeout=30)
                if event.pool == pool:
                    return event

        yield next_of


class Watch:
    """The least number of ready workers while it looks."""

    def __init__(self, pool: ropewalk.Pool) -> None:
        self.least = pool.statistics().ready
        self._pool = pool
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._ends.is_set():
            self.least = min(self.least, self._pool.statistics().ready)

    def end(self) -> int:
        self._ends.set()
        self._thread.join()
        return self.least


def ready(pool: ropewalk.Pool, workers: int) -> None:
    until(lambda: pool.statistics().ready == workers)


def test_a_worker_has_so_many_tasks_and_no_more(make_pool: Callable[..., Any], recycled: Any) -> None:
    pool = make_pool(1, kind="process", max_tasks_per_child=3, name="counted")
    pids = [pool.submit(os.getpid).result(60) for _ in range(9)]
    assert [pids.index(pid) for pid in pids] == [0, 0, 0, 3, 3, 3, 6, 6, 6]
    # Each leaves by itself: on a busy machine a later one may be gone first.
    events = sorted((recycled("counted") for _ in range(3)), key=lambda event: event.worker)
    for number, event in enumerate(events):
        assert (event.pid, event.worker, event.tasks) == (pids[3 * number], number + 1, 3)
        assert event.reason == "max_tasks"
        # Not known of a worker that is gone before the report of the zygote that it is there.
        assert event.private_bytes is None or event.private_bytes > 0
    now = pool.statistics()
    assert (now.recycled["max_tasks"], now.restarted, now.crashed) == (3, 3, 0)


def test_no_worker_of_a_busy_pool_has_more_tasks_than_its_limit(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process", max_tasks=5, recycle_jitter=0)
    pids = [future.result(60) for future in [pool.submit(os.getpid) for _ in range(500)]]
    assert max(pids.count(pid) for pid in set(pids)) <= 5


def test_a_chunk_of_a_map_is_one_task(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", max_tasks_per_child=1)
    pids = list(pool.map(lambda _: os.getpid(), range(8), chunksize=4))
    assert len(set(pids[:4])) == len(set(pids[4:])) == 1
    assert pids[0] != pids[4]


def test_a_worker_of_some_age_is_replaced(make_pool: Callable[..., Any], recycled: Any) -> None:
    pool = make_pool(1, kind="process", max_age=0.05, name="aged")
    first, second = recycled("aged"), recycled("aged")
    assert (first.reason, second.reason, first.worker, second.worker) == ("max_age", "max_age", 1, 2)
    assert pool.submit(os.getpid).result(60) not in (first.pid, second.pid)


def test_only_the_worker_that_grew_is_replaced_and_nothing_is_lost(
    make_pool: Callable[..., Any], recycled: Any
) -> None:
    pool = make_pool(1, kind="process", max_rss=64 * MIB, name="leaking")
    largest = 0
    for turn in range(6):
        for number, answer in enumerate(pool.map(leak, range(100), chunksize=1)):
            assert answer == number
            if number % 20 == 0:
                largest = max(largest, *(worker.private_bytes for worker in pool.statistics().workers_detail))
        # The pool looks a few times a second. On a machine that is busy a worker may do all of this meanwhile.
        until(lambda turn=turn: pool.statistics().recycled["max_rss"] > turn)
    event = recycled("leaking")
    assert event.reason == "max_rss"
    assert event.private_bytes > 50 * MIB
    assert largest < 400 * MIB
    assert pool.statistics().failed == 0
    assert "max_rss" not in pool.explain(), "many tasks have filled each"


def test_a_limit_that_each_new_worker_exceeds_replaces_none_that_has_run_nothing(
    make_pool: Callable[..., Any],
) -> None:
    pool = make_pool(1, kind="process", max_rss=1)
    ready(pool, 1)
    pid = pool.statistics().worker_pids[0]
    until(lambda: pool.statistics().workers_detail[0].age_seconds > 0.3)
    assert pool.statistics().worker_pids == (pid,)
    pool.submit(int).result(60)
    until(lambda: pool.statistics().recycled["max_rss"])


def test_a_limit_below_what_one_task_needs_is_told_once(make_pool: Callable[..., Any]) -> None:
    with ropewalk.events.subscribe("pool.limit.low") as told:
        pool = make_pool(1, kind="process", max_rss=1000, recycle_jitter=0, name="tight")
        for number in range(1, 6):
            assert "max_rss" not in pool.explain() or number > 3
            pool.submit(int).result(60)
            until(lambda number=number: pool.statistics().recycled["max_rss"] == number)
        event = told.recv(timeout=60)
        with pytest.raises(TimeoutError):
            told.recv(timeout=0)
    assert (event.pool, event.worker) == ("tight", 3)
    assert event.private_bytes > 1000
    assert event.reason.startswith("max_rss=1000 is below what one task needs")
    assert f"the last one had {event.private_bytes} bytes" in event.reason
    assert event.reason in pool.explain()


def test_there_are_never_fewer_ready_workers_while_all_are_recycled(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(3, kind="process")
    ready(pool, 3)
    watch = Watch(pool)
    try:
        futures = [pool.submit(time.sleep, 0.001) for _ in range(1000)]
        assert pool.recycle() == 3
        until(lambda: pool.statistics().recycled["asked"] == 3)
        for future in futures:
            assert future.result(60) is None
    finally:
        least = watch.end()
    assert least == 3
    now = pool.statistics()
    assert (now.completed, now.failed, now.crashed) == (1000, 0, 0)
    assert {worker.id for worker in now.workers_detail} == {4, 5, 6}


def test_one_worker_is_recycled_by_its_number_or_its_process_id(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process", name="named")
    ready(pool, 2)
    first, second = pool.statistics().workers_detail
    assert {first.id, second.id} == {1, 2}
    assert pool.recycle(first.id) == 1
    until(lambda: first.pid not in pool.statistics().worker_pids)
    assert second.pid in pool.statistics().worker_pids
    assert pool.recycle(pid=second.pid) == 1
    until(lambda: second.pid not in pool.statistics().worker_pids)
    for wrong in ({"worker": first.id}, {"pid": second.pid}):
        with pytest.raises(ValueError, match="named has no worker with the"):
            pool.recycle(**wrong)
    with pytest.raises(TypeError, match="not both"):
        pool.recycle(1, pid=1)


def test_tasks_that_a_worker_runs_are_finished(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    future = pool.submit(time.sleep, 0.2)
    until(future.running)
    pool.recycle()
    assert future.result(60) is None
    assert future.task.attempt == 1


def test_a_worker_is_warmed_up_and_probed_before_its_first_task(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(
        1, kind="process", initializer=note, initargs=("initializer",), warmup=warm_up, probe=probe
    )
    assert pool.submit(steps).result(60) == ["initializer", "warmup", "probe"]


def test_a_thread_is_warmed_up_and_probed_too(make_pool: Callable[..., Any]) -> None:
    seen: list[str] = []
    pool = make_pool(
        *(1,), kind="thread", warmup=lambda: seen.append("warmup"), probe=lambda: seen.append("probe")
    )
    pool.submit(int).result(60)
    assert seen == ["warmup", "probe"]


@pytest.mark.parametrize(
    ("checks", "why"),
    [
        ({"probe": refuse}, "its probe returned False"),
        ({"probe": fail}, "its probe raised LookupError: there is no model"),
        ({"warmup": fail}, "its warmup raised LookupError: there is no model"),
    ],
)
@pytest.mark.parametrize("kind", ["process", "thread"])
def test_a_pool_of_which_no_worker_is_fit_says_why(
    make_pool: Callable[..., Any], kind: str, checks: dict[str, Any], why: str
) -> None:
    pool = make_pool(1, kind=kind, **checks)
    with pytest.raises(ropewalk.PoolBroken, match=why):
        pool.submit(int).result(60)


def test_a_replacement_that_is_not_fit_leaves_the_old_worker_at_work(
    make_pool: Callable[..., Any], tmp_path: Path
) -> None:
    obstacle = tmp_path / "obstacle"
    pool = make_pool(1, kind="process", probe=fail_if_there(str(obstacle)))
    ready(pool, 1)
    obstacle.touch()
    pid = pool.submit(os.getpid).result(60)
    pool.recycle()
    until(lambda: "is in the way" in pool.explain())
    assert pool.submit(os.getpid).result(60) == pid
    obstacle.unlink()
    until(lambda: pool.submit(os.getpid).result(60) != pid)
    assert "is in the way" not in pool.explain()


def test_a_process_has_a_title(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", name="a pool with a long name é")
    pid = pool.submit(os.getpid).result(60)
    (zygote,) = {pool.submit(os.getppid).result(60)}

    def shown(process: int) -> tuple[str, str]:
        proc = Path(f"/proc/{process}")
        title = proc.joinpath("cmdline").read_bytes().rstrip(b"\0").decode()
        return proc.joinpath("comm").read_text().rstrip("\n"), title

    assert shown(pid) == ("a pool with  w1", "ropewalk: a pool with a long name é worker 1")
    assert shown(zygote) == ("ropewalk-zygote", "ropewalk: zygote")


@pytest.mark.parametrize(
    ("settings", "error", "told"),
    [
        ({"max_tasks": 0}, ValueError, "max_tasks must be 1 or more"),
        ({"max_tasks": 1.5}, TypeError, "max_tasks must be a whole number"),
        ({"max_tasks_per_child": 0}, ValueError, "max_tasks_per_child must be 1 or more"),
        ({"max_tasks": 1, "max_tasks_per_child": 1}, TypeError, "not both"),
        ({"max_age": 0}, ValueError, "max_age must be more than 0"),
        ({"max_age": "1h"}, TypeError, "max_age must be a number of seconds"),
        ({"max_rss": "1G"}, TypeError, "max_rss must be a whole number"),
        ({"recycle_jitter": 1.1}, ValueError, "recycle_jitter must be a number from 0 to 1"),
        ({"recycle_jitter": True}, ValueError, "recycle_jitter must be a number from 0 to 1"),
        ({"warmup": 1}, TypeError, "warmup must be a callable"),
        ({"probe": "x"}, TypeError, "probe must be a callable"),
        ({"max_tasks": 1, "kind": "thread"}, ValueError, 'max_tasks needs worker processes.*kind="process"'),
        ({"max_rss": 1, "kind": "thread"}, ValueError, "max_rss needs worker processes"),
    ],
)
def test_limits_that_make_no_sense_are_refused(
    settings: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        ropewalk.Pool(**settings)


def test_threads_are_not_recycled(make_pool: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="no worker processes to recycle"):
        make_pool(1, kind="thread").recycle()
