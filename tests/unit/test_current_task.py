"""`current_task`: what the code of a running task knows and says, in pools of both kinds."""

from __future__ import annotations

import concurrent.futures
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until
from tests.tasks import Gate

import ropewalk
from ropewalk import TaskCancelled, current_task


def _facts() -> tuple[int, int, float | None, bool]:
    task = current_task()
    assert task is not None
    return task.id, task.attempt, task.deadline, task.cancelled


def _facts_of(_number: int) -> tuple[int, int, float | None, bool]:
    return _facts()


def _fail_at_first() -> int:
    task = current_task()
    assert task is not None
    if task.attempt < 3:
        raise ValueError(f"attempt {task.attempt}")
    return task.attempt


def _wait_for_the_end(gate: Gate) -> None:
    task = current_task()
    assert task is not None
    gate.mark("started")
    while True:
        task.check()


def _stop_in_peace(gate: Gate) -> str:
    task = current_task()
    assert task is not None
    gate.mark("started")
    while not task.cancelled:
        pass
    return "tidy"


def _report(gate: Gate) -> int:
    task = current_task()
    assert task is not None
    task.progress(1, 4, "one")
    gate.hold("said")
    task.progress(2.5)
    task.heartbeat()
    return 1


def test_a_program_runs_no_task() -> None:
    assert current_task() is None


def test_a_task_knows_itself(pool: Any) -> None:
    future = pool.submit(_facts)
    assert future.result(60) == (future.task.id, 1, None, False)


def test_a_task_knows_its_limits(pool: Any) -> None:
    for options in ({"task_timeout": 50}, {"deadline": 50}, {"task_timeout": 50, "deadline": 500}):
        _, _, left, _ = pool.options(**options).submit(_facts).result(60)
        assert left is not None
        assert 0 < left <= 50
    assert pool.submit(_facts).result(60)[2] is None, "they are the task's, not the worker's"


def test_a_task_knows_its_attempt(pool: Any) -> None:
    assert pool.options(retries=5).submit(_fail_at_first).result(60) == 3


def test_a_task_of_a_map_is_a_task(pool: Any) -> None:
    assert all(left is None for _, _, left, _ in pool.map(_facts_of, range(20)))


def test_a_thread_of_a_task_is_no_task_and_may_use_its_object(pool: Any) -> None:
    def run() -> tuple[bool, int]:
        task = current_task()
        assert task is not None
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.extend((current_task(), task.progress(7))))
        thread.start()
        thread.join()
        return seen[0] is None, task.id

    future = pool.submit(run)
    assert future.result(60)[0]
    assert future.progress.done == 7


def test_a_task_that_is_asked_to_stop_is_cancelled(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    future = pool.submit(_wait_for_the_end, gate)
    until(lambda: gate.marks("started"))
    assert not future.cancelled()
    assert future.request_cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(60)
    assert future.cancelled()
    assert future.request_cancel()
    assert pool.submit(abs, -1).result(60) == 1


def test_a_task_that_is_asked_to_stop_may_return(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    future = pool.options(retries=3).submit(_stop_in_peace, gate)
    until(lambda: gate.marks("started"))
    assert future.request_cancel()
    assert future.result(60) == "tidy"
    assert not future.request_cancel()


def test_the_cancellation_of_one_task_is_not_anothers(pool: Any) -> None:
    def forge() -> None:
        raise TaskCancelled("not asked to")

    with pytest.raises(TaskCancelled, match="not asked to"):
        pool.submit(forge).result(60)


def test_a_waiting_task_that_is_asked_to_stop_never_runs(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with ropewalk.Pool(1, kind="thread") as pool:
        first = pool.submit(gate.hold)
        second = pool.submit(gate.hold)
        assert second.request_cancel()
        assert second.cancelled()
        gate.open()
        first.result(60)


def test_progress_is_read_while_the_task_runs_and_afterwards(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    future = pool.submit(_report, gate)
    until(lambda: gate.marks("said"))
    # From another machine it is on its way.
    until(lambda: future.progress is not None)
    assert future.progress == ropewalk.Progress(1, 4, "one")
    assert future.progress.fraction == 0.25
    gate.open()
    assert future.result(60) == 1
    assert future.progress == ropewalk.Progress(2.5, None, None)
    assert future.progress.fraction is None
    # A worker's next task has not reported anything.
    silent = [pool.submit(abs, -1) for _ in range(20)]
    assert all(future.result(60) == 1 and future.progress is None for future in silent)


def test_the_last_progress_of_each_of_many_tasks_is_its_own(pool: Any) -> None:
    def say(number: int) -> None:
        task = current_task()
        assert task is not None
        task.progress(number, 1000, f"number {number}")

    futures = [pool.submit(say, number) for number in range(200)]
    for number, future in enumerate(futures):
        future.result(60)
        assert future.progress == ropewalk.Progress(number, 1000, f"number {number}")


def test_a_wrong_report_is_an_error_that_names_it(pool: Any) -> None:
    def attempt(*arguments: Any) -> str:
        task = current_task()
        assert task is not None
        try:
            task.progress(*arguments)
        except (TypeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        return "taken"

    for arguments, said in [
        (("half",), "TypeError: done must be a number, not 'half'"),
        ((1, "all"), "TypeError: total must be a number, not 'all'"),
        ((float("nan"),), "ValueError: done must be a finite number, not nan"),
        ((1, float("inf")), "ValueError: total must be a finite number, not inf"),
        ((1, 2, 3), "TypeError: note must be a str or None, not 3"),
        ((1, 2, "ä" * 500), "taken"),
    ]:
        assert pool.submit(attempt, *arguments).result(60) == said


def test_the_object_of_a_task_that_has_ended_says_so() -> None:
    with ropewalk.Pool(1, kind="thread") as pool:
        task = pool.submit(current_task).result(60)
        assert task is not None
        assert task.cancelled
        task.progress(1)
        task.heartbeat()
        with pytest.raises(TaskCancelled):
            task.check()
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(task)


def test_the_object_cannot_leave_its_worker() -> None:
    with (
        ropewalk.Pool(1, kind="process") as pool,
        pytest.raises(ropewalk.ResultEncodeError, match="CurrentTask"),
    ):
        pool.submit(current_task).result(60)


def test_a_fork_of_a_task_runs_no_task() -> None:
    def fork() -> int:
        child = os.fork()
        if child == 0:
            os._exit(0 if current_task() is None else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    with ropewalk.Pool(1, kind="process") as pool:
        assert pool.submit(fork).result(60) == 0


def test_an_initializer_is_no_task() -> None:
    def check() -> None:
        assert current_task() is None

    with ropewalk.Pool(1, kind="process", initializer=check) as pool:
        assert pool.submit(abs, -2).result(60) == 2


def test_the_lanes_of_a_worker_have_a_task_each(tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def run(number: int) -> None:
        task = current_task()
        assert task is not None
        task.progress(number)
        gate.hold("run")

    with ropewalk.Pool(1, kind="process", threads=3) as pool:
        futures = [pool.submit(run, number) for number in range(3)]
        until(lambda: all(future.progress is not None for future in futures))
        assert [future.progress.done for future in futures if future.progress] == [0, 1, 2]
        gate.open()
        for future in futures:
            future.result(60)
