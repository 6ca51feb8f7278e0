"""Time limits and cancellation: an overrun ends the task, and its slot becomes free."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import is_alive, until
from tests.tasks import Gate

import ropewalk


def test_an_overrun_ends_the_task(processes: Any, gate: Gate) -> None:
    future = processes.options(task_timeout=0.5).submit(gate.hold)
    with pytest.raises(ropewalk.TaskTimeout) as caught:
        future.result(60)
    error = caught.value
    assert isinstance(error, TimeoutError)
    assert (error.code, error.limit, error.phase, error.seconds) == (
        "RW-TIMEOUT",
        "task_timeout",
        "running",
        0.5,
    )
    (pid,) = gate.marks()
    assert future.task.worker_pid == pid
    until(lambda: not is_alive(pid))
    # The slot is used again, by another process.
    until(lambda: pid not in (pids := processes.statistics().worker_pids) and len(pids) == 2)
    assert [f.result(60) for f in [processes.submit(tasks.square, n) for n in range(20)]][-1] == 361
    now = processes.statistics()
    assert (now.timed_out, now.failed, now.crashed) == (1, 1, 0)


def test_an_overrun_in_a_pool_of_one(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process")
    late = pool.options(task_timeout=0.5).submit(gate.hold)
    until(gate.marks)
    behind = [pool.submit(tasks.square, n) for n in range(20)]
    assert isinstance(late.exception(60), ropewalk.TaskTimeout)
    assert [future.result(60) for future in behind] == [n * n for n in range(20)]


def test_a_deadline_covers_the_wait(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    held = pool.submit(gate.hold)
    until(gate.marks)
    late = pool.options(deadline=0.2).submit(gate.mark, "late")
    with pytest.raises(ropewalk.TaskTimeout) as caught:
        late.result(60)
    assert (caught.value.phase, caught.value.seconds) == ("queued", 0.2)
    assert caught.value.limit == "deadline"
    assert late.task.worker_pid == 0
    gate.open()
    assert held.result(60)
    assert pool.submit(tasks.square, 3).result(60) == 9
    assert gate.marks("late") == []


def test_an_overrun_in_a_thread_is_told_though_it_runs_on(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="thread")
    late = pool.options(task_timeout=0.3).submit(gate.hold)
    with pytest.raises(ropewalk.TaskTimeout) as caught:
        late.result(60)
    assert caught.value.phase == "running"
    behind = pool.submit(tasks.square, 3)
    assert not behind.done()
    gate.open()
    assert behind.result(60) == 9


def test_a_budget_that_is_kept_changes_nothing(pool: Any) -> None:
    assert [pool.options(task_timeout=60).submit(tasks.square, n).result() for n in range(20)] == [
        n * n for n in range(20)
    ]
    assert list(pool.options(task_timeout=60).map(tasks.square, range(20))) == [n * n for n in range(20)]
    assert pool.statistics().timed_out == 0


@pytest.mark.parametrize("name", ["task_timeout", "deadline", "hang_timeout"])
@pytest.mark.parametrize("value", [0, 0.0, -1, -0.5])
def test_a_limit_of_nothing_is_refused(processes: Any, name: str, value: float) -> None:
    words = f"{name} must be more than 0 seconds, or None for no limit, not {value}"
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        processes.options(**{name: value})
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        ropewalk.Pool(1, **{name: value})
    with pytest.raises(ropewalk.ConfigError, match=re.escape(words)) as caught:
        ropewalk.Runtime.check(f"[pools.a]\n{name} = {value}\n")
    assert (caught.value.key, caught.value.value) == (f"pools.a.{name}", value)
    written = ropewalk.Runtime.check(f"[pools.a]\n{name} = '1 ms'\n")
    assert written.pools["a"][name] == 0.001
    with pytest.raises(ropewalk.ConfigError, match="must be more than 0 seconds"):
        ropewalk.Runtime.check(f"[pools.a]\n{name} = '0 s'\n")


def test_the_least_limit_ends_a_task(processes: Any, gate: Gate) -> None:
    for least in ({"task_timeout": 1e-9}, {"deadline": 1e-9}):
        future = processes.options(**least).submit(gate.hold)
        assert isinstance(future.exception(60), ropewalk.TaskTimeout)


def test_a_pools_own_budget_and_one_without(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process", task_timeout=0.3)
    free = pool.options(task_timeout=None).submit(gate.hold, "free")
    assert isinstance(pool.submit(gate.hold).exception(60), ropewalk.TaskTimeout)
    assert not free.done()
    gate.open()
    assert free.result(60)


def test_a_late_task_is_not_tried_again(processes: Any, gate: Gate) -> None:
    future = processes.options(task_timeout=0.4, retries=5).submit(gate.hold)
    assert isinstance(future.exception(60), ropewalk.TaskTimeout)
    # One that has overrun once will do so again.
    assert len(gate.marks()) == 1


def test_a_late_input_of_map(processes: Any, gate: Gate) -> None:
    assert processes.submit(tasks.square, 2).result(60) == 4
    results = processes.options(task_timeout=2.0).map(_hold_if, [0, gate, 0])
    assert next(results) == 0
    with pytest.raises(ropewalk.TaskTimeout):
        next(results)
    assert next(results) == 0


def _hold_if(gate: Any) -> int:
    if gate:
        gate.hold()
    return 0


def test_many_overruns(processes: Any, gate: Gate) -> None:
    futures = [processes.options(deadline=0.5).submit(gate.hold) for _ in range(30)]
    phases = [future.exception(60).phase for future in futures]
    assert set(phases) <= {"queued", "running"}
    futures = [processes.options(task_timeout=0.05).submit(gate.hold) for _ in range(10)]
    assert {future.exception(60).phase for future in futures} == {"running"}
    assert processes.submit(tasks.square, 3).result(60) == 9


def test_cancelling_a_running_task(processes: Any, gate: Gate) -> None:
    future = processes.submit(gate.hold)
    (pid,) = until(gate.marks)
    until(future.running)
    assert not future.cancel(), "the standard library's cancel leaves a running task alone"
    assert future.cancel(running=True)
    assert future.cancelled()
    assert future.done()
    with pytest.raises(CancelledError):
        future.result(60)
    until(lambda: not is_alive(pid))
    assert [f.result(60) for f in [processes.submit(tasks.square, n) for n in range(20)]][-1] == 361
    now = processes.statistics()
    assert (now.cancelled, now.failed, now.crashed) == (1, 0, 0)


def test_cancelling_a_running_task_spares_those_behind_it(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process")
    future = pool.submit(gate.hold)
    until(gate.marks)
    behind = [pool.submit(tasks.square, n) for n in range(20)]
    assert future.cancel(running=True)
    assert [f.result(60) for f in behind] == [n * n for n in range(20)]


def test_a_running_thread_cannot_be_cancelled(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="thread")
    future = pool.submit(gate.hold)
    until(gate.marks)
    assert not future.cancel(running=True)
    gate.open()
    assert future.result(60) == os.getpid()


def test_cancelling_what_is_done(processes: Any) -> None:
    future = processes.submit(tasks.square, 3)
    assert future.result(60) == 9
    assert not future.cancel()
    assert not future.cancel(running=True)
    assert future.result() == 9


def test_cancelling_an_await_ends_the_task(processes: Any, gate: Gate) -> None:
    async def main() -> int:
        task = asyncio.create_task(processes.run(gate.hold))
        while not gate.marks():
            await asyncio.sleep(0.002)
        (pid,) = gate.marks()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await processes.run(tasks.square, 4) == 16
        return pid

    pid = asyncio.run(main())
    until(lambda: not is_alive(pid))
    assert processes.statistics().cancelled == 1


def test_an_await_with_a_timeout_of_asyncios(processes: Any, gate: Gate) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await processes.run(gate.hold)

    asyncio.run(main())
    until(lambda: all(not is_alive(pid) for pid in gate.marks()))


def test_waiting_no_longer_leaves_the_task_alone(processes: Any, gate: Gate) -> None:
    future = processes.submit(gate.hold)
    until(gate.marks)
    with pytest.raises(TimeoutError) as caught:
        future.result(timeout=0.05)
    assert not isinstance(caught.value, ropewalk.RopewalkError)
    with pytest.raises(TimeoutError):
        future.exception(timeout=0)
    gate.open()
    assert future.result(60) == gate.marks()[0]


def test_cancelled_tasks_of_every_stage(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process")
    futures = [pool.submit(gate.hold) for _ in range(50)]
    until(lambda: len(gate.marks()) == 2)
    for future in futures:
        assert future.cancel(running=True)
    assert all(future.cancelled() for future in futures)
    assert pool.submit(tasks.square, 3).result(60) == 9
    # Nothing that was cancelled while it waited was run in the meantime.
    until(lambda: pool.statistics().queued == 0)
    assert len(gate.marks()) == 2
    deadline = time.monotonic() + 30
    while len(pool.statistics().worker_pids) < 2:
        assert time.monotonic() < deadline


# --- two limits ---


def test_a_burst_of_quick_tasks_overruns_nothing(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(2, kind=kind, task_timeout=0.5)
    # Five seconds of work for two workers: the last waits for four times its timeout.
    futures = [pool.submit(time.sleep, 0.2) for _ in range(20)]
    assert [future.result(60) for future in futures] == [None] * 20
    assert list(pool.map(time.sleep, [0.2] * 20)) == [None] * 20
    assert pool.statistics().timed_out == 0


def test_an_import_does_not_count(make_pool: Callable[..., Any], tmp_path: Path, monkeypatch: Any) -> None:
    name = f"slow_to_import_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text("import time\ntime.sleep(1)\ndef answer(): return 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module(name)
    pool = make_pool(1, kind="process", task_timeout=0.5)
    assert pool.submit(module.answer).result(60) == 42


class SlowToLoad:
    """Takes longer to unpickle than its task may run."""

    def __reduce__(self) -> Any:
        return time.sleep, (1,)


def test_unpickling_does_not_count(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", task_timeout=0.5)
    assert pool.submit(tasks.identity, SlowToLoad()).result(60) is None
    with pytest.raises(ropewalk.TaskTimeout):
        pool.options(deadline=0.5).submit(tasks.identity, SlowToLoad()).result(60)


def test_what_waits_behind_others_overruns_in_its_own_time(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process")
    ahead = [pool.submit(time.sleep, 0.1) for _ in range(5)]
    late = pool.options(task_timeout=0.2).submit(gate.hold)
    behind = pool.options(task_timeout=0.2).submit(tasks.square, 3)
    # Nobody waits for any of them: the supervisor sees to it.
    until(lambda: late.task is not None)
    error = late.exception()
    assert isinstance(error, ropewalk.TaskTimeout)
    assert error.phase == "running"
    assert len(gate.marks()) == 1
    assert behind.result(60) == 9
    assert all(future.result(60) is None for future in ahead)


def test_each_run_has_the_whole_timeout(make_pool: Callable[..., Any], gate: Gate) -> None:
    # Four runs take longer than the timeout, and one takes far less, on a busy machine too. The deadline is the
    # shorter of the two limits, and counts from the submission: no run can reach its timeout before.
    pool = make_pool(1, kind="process", task_timeout=2.5, retries=3)
    assert pool.submit(_slowly_raise_until, gate, 4).result(60) == 4
    with pytest.raises(ropewalk.TaskTimeout) as caught:
        pool.options(deadline=1.5).submit(_slowly_raise_until, gate, 100).result(60)
    assert caught.value.limit == "deadline"


def _slowly_raise_until(gate: Gate, attempts: int) -> int:
    time.sleep(0.7)
    return tasks.raise_until(gate, attempts)


def _claim_the_future(lie: int) -> None:
    """Writes into the lane what the worker would: that this task began at another time."""
    import mmap
    import struct

    for line in Path("/proc/self/maps").read_text().splitlines():
        if "ropewalk-lane" not in line:
            continue
        start = int(line.split("-")[0], 16)
        # Two rings of equal size, and a small one of three pages.
        stride = (int(line.split()[0].split("-")[1], 16) - start - 3 * mmap.PAGESIZE) // 2
        assert stride % mmap.PAGESIZE == 0
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start + stride - 8)
            memory.write(struct.pack("<Q", max(1, time.monotonic_ns() + lie)))
    tasks.spin()


@pytest.mark.parametrize("lie", [10**15, -(10**15)])
def test_a_worker_that_lies_ends_its_own_task_only(make_pool: Callable[..., Any], lie: int) -> None:
    pool = make_pool(2, kind="process")
    assert pool.submit(tasks.square, 2).result(60) == 4
    liar = pool.options(task_timeout=0.5, deadline=2).submit(_claim_the_future, lie)
    honest = [pool.options(task_timeout=5).submit(time.sleep, 0.3) for _ in range(3)]
    assert isinstance(liar.exception(60), ropewalk.TaskTimeout)
    assert [future.result(60) for future in honest] == [None] * 3


def test_limits_that_make_no_sense(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="thread")
    for value in (-1, float("nan")):
        with pytest.raises(ValueError, match="deadline"):
            pool.options(deadline=value)
    with pytest.raises(TypeError, match="deadline"):
        ropewalk.Pool(1, kind="thread", deadline="soon")  # type: ignore[arg-type]
    assert pool.options(deadline=float("inf")).submit(tasks.square, 3).result(60) == 9


# --- others in the same worker ---


def test_a_timeout_spares_the_neighbours(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process", threads=8)
    neighbours = [pool.submit(_hold_for, gate, 0.8) for _ in range(7)]
    until(lambda: len(gate.marks("started")) == 7)
    late = pool.options(task_timeout=0.2).submit(gate.hold)
    until(gate.marks)
    behind = [pool.submit(tasks.square, n) for n in range(50)]
    assert isinstance(late.exception(60), ropewalk.TaskTimeout)
    # They finish, what waits is done by another worker, and the first one leaves.
    assert len({future.result(60) for future in neighbours}) == 1
    assert [future.result(60) for future in behind] == [n * n for n in range(50)]
    until(lambda: not is_alive(gate.marks()[0]))
    now = pool.statistics()
    assert (now.timed_out, now.failed, now.crashed, now.retried) == (1, 1, 0, 0)


def _hold_for(gate: Gate, seconds: float) -> int:
    gate.mark("started")
    time.sleep(seconds)
    return os.getpid()


def test_a_cancelled_await_spares_the_neighbours(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process", threads=4)

    async def main() -> None:
        others = [asyncio.create_task(pool.run(_hold_for, gate, 0.5)) for _ in range(3)]
        mine = asyncio.create_task(pool.run(gate.hold))
        while len(gate.marks("started")) < 3 or not gate.marks():
            await asyncio.sleep(0.002)
        mine.cancel()
        assert len(set(await asyncio.gather(*others))) == 1

    asyncio.run(main())
    until(lambda: not is_alive(gate.marks()[0]))


def test_what_cannot_be_saved_says_why_or_is_run_again(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process", threads=3)
    lost = pool.submit(gate.hold, "lost")
    again = pool.options(retries=1).submit(gate.hold, "again")
    late = pool.options(task_timeout=0.2).submit(gate.hold, "late")
    until(lambda: gate.marks("lost") and gate.marks("again") and gate.marks("late"))
    assert isinstance(late.exception(60), ropewalk.TaskTimeout)
    error = lost.exception(60)
    assert isinstance(error, ropewalk.WorkerCrashed)
    assert "in another of its threads, overran its time" in str(error)
    assert error.pid == gate.marks("lost")[0]
    until(lambda: len(gate.marks("again")) == 2)
    gate.open()
    assert again.result(60) == gate.marks("again")[1] != error.pid
    # It was no fault of its own: it has its retry still, and this was its first attempt that counts.
    assert again.task.attempt == 1
