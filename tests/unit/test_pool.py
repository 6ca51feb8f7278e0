"""Pools of both kinds."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import inspect
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest
from tests import tasks
from tests.polling import descendants, is_alive, until
from tests.tasks import Gate

import ropewalk

T = TypeVar("T")


def test_arguments_go_as_they_are(pool: Any) -> None:
    assert pool.submit(tasks.capture).result(60) == ((), {})
    assert pool.submit(tasks.capture, 1, "two", [3], fn=4, self=5, timeout=6).result(60) == (
        (1, "two", [3]),
        {"fn": 4, "self": 5, "timeout": 6},
    )
    assert pool.submit(tasks.identity, None).result(60) is None


def test_functions_of_every_make(pool: Any) -> None:
    import functools
    import operator

    factor = 3

    class Callable_:
        def __call__(self, n: int) -> int:
            return n * factor

        def method(self, n: int) -> int:
            return n - factor

        @classmethod
        def of_class(cls, n: int) -> str:
            return f"{cls.__name__}{n}"

    for function, expected in [
        (abs, 5),
        (str, "-5"),
        (tasks.square, 25),
        (lambda n: n + factor, -2),
        (functools.partial(operator.add, 10), 5),
        (operator.methodcaller("__neg__"), 5),
        (Callable_(), -15),
        (Callable_().method, -8),
        (Callable_.of_class, "Callable_-5"),
        ("{}!".format, "-5!"),
    ]:
        assert pool.submit(function, -5).result(60) == expected
        assert list(pool.map(function, [-5, -5])) == [expected] * 2


def test_a_closure_is_sent_as_it_is_now(pool: Any) -> None:
    results = []
    factor = 0

    def scale(n: int) -> int:
        return n * factor

    for factor in range(5):  # noqa: B007
        results.append(pool.submit(scale, 10).result(60))  # noqa: PERF401
    assert results == [0, 10, 20, 30, 40]


def test_many_functions(pool: Any) -> None:
    functions = [lambda n, k=k: n + k for k in range(300)]
    assert [pool.submit(function, 1).result(60) for function in functions] == [1 + k for k in range(300)]


def test_workers_are_used_at_the_same_time(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(3, kind=kind)
    futures = [pool.submit(gate.hold) for _ in range(3)]
    until(lambda: len(gate.marks()) == 3)
    assert pool.statistics().running == 3
    gate.open()
    assert [future.result(60) for future in futures]


def test_the_default_is_one_worker_for_each_usable_core(make_pool: Callable[..., Any], kind: str) -> None:
    assert make_pool(kind=kind).statistics().workers == len(os.sched_getaffinity(0))
    assert make_pool(max_workers=3, kind=kind).statistics().workers == 3


def test_the_context_manager_finishes_what_it_took(make_pool: Callable[..., Any], kind: str) -> None:
    with make_pool(2, kind=kind) as pool:
        futures = [pool.submit(tasks.square, n) for n in range(100)]
        assert pool is not None
    assert all(future.done() for future in futures)
    assert [future.result(0) for future in futures] == [n * n for n in range(100)]
    assert pool.statistics().worker_pids == ()
    assert "closed" in repr(pool)


def test_the_context_manager_shuts_down_on_an_error(make_pool: Callable[..., Any], kind: str) -> None:
    with pytest.raises(KeyError), make_pool(2, kind=kind) as pool:  # noqa: PT012
        assert pool.submit(tasks.square, 3).result(60) == 9
        raise KeyError
    assert pool.statistics().worker_pids == ()
    with pytest.raises(ropewalk.PoolClosed):
        pool.submit(tasks.square, 3)


def test_shutdown_without_waiting(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    held = pool.submit(gate.hold)
    behind = [pool.submit(tasks.square, n) for n in range(10)]
    pool.shutdown(wait=False)
    assert not held.done()
    gate.open()
    assert held.result(60)
    assert [future.result(60) for future in behind] == [n * n for n in range(10)]
    until(lambda: not pool.statistics().worker_pids)


def test_shutdown_from_many_threads(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(2, kind=kind)
    futures = [pool.submit(tasks.square, n) for n in range(50)]
    threads = [threading.Thread(target=pool.shutdown) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(future.done() for future in futures)


def test_a_pool_that_nobody_has_any_more_finishes_and_goes(kind: str) -> None:
    before = set(descendants(os.getpid()))
    threads = threading.active_count()
    deadline = time.monotonic() + 30
    pool = ropewalk.Pool(2, kind=kind)
    futures = [pool.submit(tasks.square, n) for n in range(50)]
    expected = 2 if kind == "process" else 0
    while len(pids := pool.statistics().worker_pids) != expected:
        assert time.monotonic() < deadline
    gone = weakref.ref(pool)
    del pool
    gc.collect()
    assert gone() is None
    assert [future.result(60) for future in futures] == [n * n for n in range(50)]
    until(lambda: not any(is_alive(pid) for pid in pids))
    until(lambda: threading.active_count() <= threads)
    # A zygote may stay for the next pool.
    until(lambda: len(set(descendants(os.getpid())) - before) <= 1)


def test_priorities(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    held = pool.submit(gate.hold)
    until(gate.marks)
    futures = []
    for n, priority in enumerate([0, -1, 5, 0, 5, 1]):
        futures.append(pool.options(priority=priority).submit(gate.mark, f"{n}"))
    gate.open()
    for future in [held, *futures]:
        future.result(60)
    marks = sorted(
        (path for path in gate.folder.iterdir() if path.name.split(".")[0].isdigit()),
        key=lambda path: int(path.name.rsplit(".", 1)[1]),
    )
    assert [int(path.name.split(".")[0]) for path in marks] == [2, 4, 5, 0, 3, 1]


def test_a_pools_own_priority(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind, priority=3)
    held = pool.submit(gate.hold)
    until(gate.marks)
    low = pool.options(priority=2).submit(gate.mark, "low")
    usual = pool.submit(gate.mark, "usual")
    gate.open()
    assert [future.result(60) is not None for future in (held, low, usual)]
    times = [int(next(gate.folder.glob(f"{n}.*")).name.rsplit(".", 1)[1]) for n in ("usual", "low")]
    assert times == sorted(times)


def test_retries_after_an_exception(pool: Any, gate: Gate, kind: str) -> None:
    future = pool.options(retries=3).submit(tasks.raise_until, gate, 3)
    assert future.result(60) == 3
    assert future.task.attempt == 3
    assert pool.statistics().retried == 2
    assert pool.statistics().failed == 0


def test_retries_that_do_not_suffice(pool: Any, gate: Gate) -> None:
    future = pool.options(retries=1).submit(tasks.raise_until, gate, 9)
    with pytest.raises(RuntimeError, match="attempt 2"):
        future.result(60)
    assert future.task.attempt == 2
    assert len(gate.marks("attempt")) == 2


def test_without_retries_a_task_is_run_once(pool: Any, gate: Gate) -> None:
    with pytest.raises(RuntimeError, match="attempt 1"):
        pool.submit(tasks.raise_until, gate, 2).result(60)
    assert len(gate.marks("attempt")) == 1


def test_retries_of_map(pool: Any, gate: Gate) -> None:
    assert list(pool.options(retries=5).map(tasks.raise_until, [gate], [4])) == [4]


def test_options_add_up(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind, retries=1)
    view = pool.options(priority=4).options(task_timeout=60)
    assert view.submit(tasks.raise_until, gate, 2).result(60) == 2
    none = view.options(retries=0)
    with pytest.raises(RuntimeError):
        none.submit(tasks.raise_until, gate, 9).result(60)
    assert list(view.map(tasks.square, range(5))) == [0, 1, 4, 9, 16]
    assert sorted(view.map_unordered(tasks.square, range(5))) == [0, 1, 4, 9, 16]
    assert asyncio.run(_await(view)) == 49


async def _await(runner: Any) -> int:
    return await runner.run(tasks.square, 7)


def test_run(pool: Any) -> None:
    async def main() -> list[Any]:
        with pytest.raises(ValueError, match="told"):
            await pool.run(tasks.fail, "told")
        some = await asyncio.gather(*(pool.run(tasks.square, n) for n in range(100)))
        keyword = await pool.run(tasks.capture, 1, two=2)
        return [some, keyword]

    assert asyncio.run(main()) == [[n * n for n in range(100)], ((1,), {"two": 2})]


def test_run_in_several_loops(pool: Any) -> None:
    results: list[list[int]] = []

    async def main() -> list[int]:
        return await asyncio.gather(*(pool.run(tasks.square, n) for n in range(50)))

    threads = [threading.Thread(target=lambda: results.append(asyncio.run(main()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [[n * n for n in range(50)]] * 4


def test_a_loop_goes_on_while_a_task_runs(pool: Any, gate: Gate) -> None:
    async def main() -> tuple[Any, int]:
        task = asyncio.create_task(pool.run(gate.hold, "task", 5))
        turns = 0
        while not gate.marks():
            turns += 1
            await asyncio.sleep(0.001)
        gate.open()
        return await task, turns

    result, turns = asyncio.run(main())
    assert result == 5
    assert turns > 0


def test_cancelling_an_await_of_a_waiting_task(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)

    async def main() -> None:
        held = asyncio.create_task(pool.run(gate.hold, "task", 1))
        while not gate.marks():
            await asyncio.sleep(0.002)
        waiting = asyncio.create_task(pool.run(gate.mark, "never"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.open()
        assert await held == 1
        assert await pool.run(tasks.square, 3) == 9

    asyncio.run(main())
    assert gate.marks("never") == []
    assert pool.statistics().cancelled == 1


def test_initializers(make_pool: Callable[..., Any], kind: str) -> None:
    tasks.STATUS = "uninitialized"
    try:
        pool = make_pool(2, kind=kind, initializer=tasks.set_status, initargs=("ready",))
        assert [pool.submit(tasks.status).result(60) for _ in range(10)] == ["ready"] * 10
    finally:
        here, tasks.STATUS = tasks.STATUS, "uninitialized"
    assert here == ("ready" if kind == "thread" else "uninitialized")


def test_an_initializer_of_a_replacement(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", initializer=tasks.set_status, initargs=("ready",))
    pool.submit(tasks.leave, 1).exception(60)
    assert pool.submit(tasks.status).result(60) == "ready"


def test_an_initializer_of_each_thread(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process", threads=3, initializer=gate.mark, initargs=("init",))
    futures = [pool.submit(gate.hold) for _ in range(3)]
    until(lambda: len(gate.marks()) == 3)
    assert 1 <= len(gate.marks("init")) <= 3
    gate.open()
    assert len({future.result(60) for future in futures}) == 1


def test_statistics(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    empty = pool.statistics()
    assert isinstance(empty, ropewalk.PoolStatistics)
    assert (empty.kind, empty.workers, empty.threads) == (kind, 1, 1)
    assert (empty.submitted, empty.completed, empty.failed, empty.cancelled, empty.queued) == (0, 0, 0, 0, 0)
    held = pool.submit(gate.hold)
    until(gate.marks)
    waiting = [pool.submit(tasks.square, n) for n in range(5)]
    waiting[4].cancel()
    now = pool.statistics()
    assert (now.submitted, now.running, now.queued, now.cancelled) == (6, 1, 4, 1)
    gate.open()
    held.result(60)
    assert [future.result(60) for future in waiting[:4]] == [0, 1, 4, 9]
    assert pool.submit(tasks.fail, "x").exception(60)
    after = pool.statistics()
    assert (after.submitted, after.completed, after.failed, after.cancelled) == (7, 5, 1, 1)
    assert (after.running, after.queued, after.crashed, after.retried, after.restarted) == (0, 0, 0, 0, 0)
    assert after.busy_seconds > 0
    assert empty.submitted == 0, "a snapshot stays as it was"
    with pytest.raises(dataclasses.FrozenInstanceError):
        after.completed = 1
    if kind == "process":
        (worker,) = after.workers_detail
        assert isinstance(worker, ropewalk.WorkerStatistics)
        assert worker.pid == after.worker_pids[0] == held.task.worker_pid
        assert (worker.state, worker.completed) == ("idle", 6)
        assert worker.private_bytes > 0
        assert worker.resident_bytes > 0
        assert worker.busy_seconds == after.busy_seconds
        with pytest.raises(dataclasses.FrozenInstanceError):
            worker.pid = 1
    else:
        assert after.worker_pids == ()
        here = [] if kind == "thread" else [(os.getpid(), "idle", 6, 0)]
        assert here == [
            (worker.pid, worker.state, worker.completed, worker.private_bytes)
            for worker in after.workers_detail
        ]


def test_statistics_with_threads(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, threads=3, kind="process")
    futures = [pool.submit(gate.hold) for _ in range(10)]
    until(lambda: len(gate.marks()) == 6)
    now = pool.statistics()
    assert (now.workers, now.threads, now.running, now.queued) == (2, 3, 6, 4)
    assert [worker.state for worker in now.workers_detail] == ["busy", "busy"]
    gate.open()
    assert len({future.result(60) for future in futures}) == 2
    assert sum(worker.completed for worker in pool.statistics().workers_detail) == 10


def test_explain(make_pool: Callable[..., Any], kind: str) -> None:
    text = make_pool(2, kind=kind, name="mine").explain()
    assert "mine" in text
    assert "as asked for" in text
    assert "2 " in text
    assert kind in text
    assert "GIL" in make_pool(1).explain()


def test_a_pool_says_what_it_is(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(2, kind=kind, name="mine")
    assert "mine" in repr(pool)
    assert kind in repr(pool)
    assert "open" in repr(pool)


def test_environment_and_path_reach_the_workers(
    make_pool: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    make_pool(1, kind="process").submit(tasks.square, 2).result(60)
    # Whatever zygote there is already: a pool's workers see what is so when the pool is made.
    monkeypatch.setenv("ROPEWALK_TEST_VALUE", "seen")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "only_in_tmp_path.py").write_text("def f():\n    return 'imported'\n")
    pool = make_pool(1, kind="process")
    assert pool.submit(os.getenv, "ROPEWALK_TEST_VALUE").result(60) == "seen"
    assert pool.submit(os.getcwd).result(60) == str(tmp_path)
    import only_in_tmp_path  # type: ignore[import-not-found]

    try:
        assert pool.submit(only_in_tmp_path.f).result(60) == "imported"
    finally:
        del sys.modules["only_in_tmp_path"]
    monkeypatch.delenv("ROPEWALK_TEST_VALUE")
    assert make_pool(1, kind="process").submit(os.getenv, "ROPEWALK_TEST_VALUE").result(60) is None


def test_workers_have_random_numbers_of_their_own(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(3, kind="process", preload=["random"])
    futures = [pool.submit(_random, gate) for _ in range(3)]
    until(lambda: len(gate.marks()) == 3)
    gate.open()
    assert len({future.result(60) for future in futures}) == 3


def _random(gate: Gate) -> float:
    import random

    gate.hold()
    return random.random()


def test_many_pools_at_once(make_pool: Callable[..., Any], kind: str) -> None:
    pools = [make_pool(2, kind=kind) for _ in range(6)]
    futures = [pool.submit(tasks.square, n) for n in range(20) for pool in pools]
    assert [future.result(60) for future in futures] == [n * n for n in range(20) for _ in pools]


def test_subclasses(kind: str) -> None:
    class Mine(ropewalk.Pool):
        def twice(self, n: int) -> int:
            return 2 * self.submit(tasks.square, n).result(60)

    with Mine(1, kind=kind) as pool:
        assert pool.twice(3) == 18


def test_a_subclass_may_have_an_init_of_its_own(kind: Any) -> None:
    class Mine(ropewalk.Pool, Generic[T]):
        def __init__(self, factor: T, *, workers: int = 1) -> None:
            self.factor = factor
            super().__init__(workers, kind=kind)

    with Mine[int](3, workers=2) as pool:
        assert (pool.factor, pool.statistics().workers) == (3, 2)
        assert list(pool.map(tasks.square, range(5))) == [n * n for n in range(5)]
        assert pool.options(retries=1).pool is pool
        with pytest.raises(RuntimeError, match=r"Pool.__init__\(\) was called twice"):
            pool.__init__(3)  # type: ignore[misc]
        assert pool.submit(tasks.square, 3).result(60) == 9
    assert list(inspect.signature(Mine).parameters) == ["factor", "workers"]
    assert next(iter(inspect.signature(ropewalk.Pool).parameters)) == "workers"


def test_a_subclass_that_starts_no_pool_is_told() -> None:
    class Mine(ropewalk.Pool):
        def __init__(self) -> None:
            pass

    pool = Mine()
    calls: list[Callable[[], object]] = [
        lambda: pool.submit(tasks.square, 3),
        lambda: pool.map(tasks.square, [3]),
        lambda: pool.map_unordered(tasks.square, [3]),
        lambda: pool.submit_nowait(tasks.square, 3),
        lambda: asyncio.run(pool.submit_async(tasks.square, 3)),
        lambda: asyncio.run(pool.run(tasks.square, 3)),
        lambda: pool.options(retries=2),
        lambda: pool.kind,
        pool.explain,
        pool.statistics,
        pool.shutdown,
        pool.terminate,
        pool.terminate_workers,
        pool.kill_workers,
        lambda: pool.__exit__(None, None, None),
        lambda: asyncio.run(pool.__aexit__(None, None, None)),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=r"^Pool.__init__\(\) was not called$"):
            call()
    assert "Mine object" in repr(pool)


@pytest.mark.parametrize("capacity", [None, 1])
def test_no_other_method_calls_an_override_of_submit(capacity: int | None) -> None:
    seen: list[object] = []

    class Mine(ropewalk.Pool):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            seen.append(args)
            return super().submit(fn, *args, **kwargs)

        def submit_async(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            seen.append(args)
            return super().submit_async(fn, *args, **kwargs)

    async def main(pool: Any) -> None:
        assert await pool.run(tasks.square, 3) == 9
        assert await pool.options(retries=1).run(tasks.square, 3) == 9
        future = await ropewalk.Pool.submit_async(pool, tasks.square, 3)
        assert future.result(60) == 9

    with Mine(1, kind="thread", capacity=capacity) as pool:
        asyncio.run(main(pool))
        assert list(pool.map(tasks.square, [3])) == [9]
        assert pool.submit_nowait(tasks.square, 3).result(60) == 9
        assert not seen
        assert pool.submit(tasks.square, 4).result(60) == 16
        assert seen == [(4,)]
    with pytest.raises(ropewalk.PoolClosed):
        pool.map(tasks.square, [3])
    assert len(seen) == 1


def test_a_pool_whose_init_raised_leaves_nothing() -> None:
    class Mine(ropewalk.Pool):
        def __init__(self, kind: Any) -> None:
            super().__init__(1, kind=kind)
            raise LookupError("no such thing")

    before = {thread.name for thread in threading.enumerate()}
    for kind in ("thread", "process"):
        with pytest.raises(LookupError):
            Mine(kind)
    until(lambda: {thread.name for thread in threading.enumerate()} <= before)


@pytest.mark.parametrize("how", ["shutdown", "terminate", "leave"])
def test_a_task_of_a_thread_pool_cannot_wait_for_its_own_end(make_pool: Callable[..., Any], how: str) -> None:
    pool = make_pool(2, kind="thread")

    def leave() -> None:
        with pool:
            pass

    future = pool.submit(leave if how == "leave" else getattr(pool, how))
    if how == "terminate":
        assert isinstance(future.exception(60), ropewalk.PoolTerminated)
    else:
        with pytest.raises(RuntimeError, match="cannot join current thread"):
            future.result(60)
    with pytest.raises(ropewalk.PoolClosed):
        pool.submit(abs, 1)
    pool.shutdown()


def test_a_callback_may_shut_its_pool_down(pool: Any) -> None:
    called: list[object] = []
    pool.submit(abs, -1).add_done_callback(lambda _: called.append(pool.shutdown()))
    until(lambda: called)
    assert called == [None]


def test_numbers_that_are_too_large_are_refused(make_pool: Callable[..., Any]) -> None:
    for name, value in (("priority", 2**31), ("retries", 2**32), ("capacity", 2**64), ("workers", 2**64)):
        with pytest.raises(ValueError, match=f"{name} must be .* or less"):
            make_pool(1, **{name: value}) if name != "workers" else make_pool(value)


def test_a_range_longer_than_any_length(pool: Any) -> None:
    results = pool.map(abs, range(2**64), chunksize=1, buffersize=4)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    results.close()
