"""`current_task` and calls of the program with `kind="ray"`: the suites of the other kinds, over Ray's actors."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until
from tests.raycluster import local_cluster
from tests.tasks import Gate
from tests.unit import test_current_task, test_task_calls

import ropewalk
from ropewalk import current_task

pytest.importorskip("ray")

# Ray's own code warns of what it does.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(180)]

#: Tests of what is different here, and of pools of threads alone: a task cannot set handlers of signals.
_NOT_HERE = {
    "test_a_call_in_a_signals_handler_is_an_error_while_the_task_waits",
    "test_a_thread_does_not_make_the_calls_of_another_threads_task",
}


def _tests_of(module: Any) -> dict[str, Callable[..., None]]:
    """The tests whose pools come from a fixture."""
    fixtures = {"pool", "calling", "make_pool"}
    return {
        name: test
        for name, test in vars(module).items()
        if name.startswith("test_") and name not in _NOT_HERE and fixtures & _arguments_of(test)
    }


def _arguments_of(test: Callable[..., None]) -> set[str]:
    marked = getattr(test, "pytestmark", ())
    names = set(test.__code__.co_varnames[: test.__code__.co_argcount])
    # Those that name a kind of their own have it from a mark.
    return names if not any(mark.args[:1] == ("kind",) for mark in marked) else set()


for suite in (test_current_task, test_task_calls):
    globals().update(_tests_of(suite))

calling = test_task_calls.calling


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with local_cluster(cpus=4):
        yield


@pytest.fixture
def kind() -> str:
    return "ray"


@pytest.fixture
def make_pool(cluster: None, make_pool: Callable[..., Any]) -> Callable[..., Any]:
    """Makes pools on the cluster, whichever kind a test names."""
    return lambda *args, **settings: make_pool(*args, **{**settings, "kind": "ray"})


@pytest.fixture
def pool(make_pool: Callable[..., Any]) -> Any:
    return make_pool(2)


def test_the_object_cannot_leave_its_actor(pool: Any) -> None:
    with pytest.raises(ropewalk.ResultEncodeError, match="CurrentTask"):
        pool.submit(current_task).result(60)


def test_a_fork_of_a_task_runs_none(pool: Any) -> None:
    def fork() -> int:
        task = current_task()
        assert task is not None
        child = os.fork()
        if child == 0:
            task.progress(7)
            os._exit(0 if current_task() is None and task.cancelled else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    future = pool.submit(fork)
    assert future.result(60) == 0
    assert future.progress is None


def test_what_a_task_reports_often_is_heard_while_it_runs(pool: Any, gate: Gate) -> None:
    def report() -> None:
        task = current_task()
        assert task is not None
        number = 0
        while not task.cancelled:
            number += 1
            task.progress(number, None, "x" * 1000)
        gate.hold("stopped")

    future = pool.submit(report)
    seen = until(lambda: future.progress)
    until(lambda: future.progress.done > seen.done)
    assert seen.note == "x" * 160
    future.request_cancel()
    until(lambda: gate.marks("stopped"))
    # The last report is heard without another one.
    last = future.progress.done
    gate.open()
    future.result(60)
    assert future.progress.done >= last


def _steps(gate: Gate) -> Iterator[int]:
    task = current_task()
    assert task is not None
    yield task.attempt
    task.progress(1, 2, "one")
    gate.hold("between")
    task.progress(2, 2, "two")


def test_a_generator_is_a_task(pool: Any, gate: Gate) -> None:
    stream = pool.stream(_steps, gate)
    assert next(stream) == 1
    until(lambda: stream.future.progress == ropewalk.Progress(1, 2, "one"))
    gate.open()
    assert list(stream) == []
    assert stream.future.progress == ropewalk.Progress(2, 2, "two")


def _until_cancelled(gate: Gate) -> Iterator[int]:
    task = current_task()
    assert task is not None
    yield 1
    gate.mark("waits")
    while True:
        task.check()


def test_a_generator_that_is_asked_to_stop_stops_before_its_next_item(pool: Any, gate: Gate) -> None:
    stream = pool.stream(_until_cancelled, gate)
    assert next(stream) == 1
    until(lambda: gate.marks("waits"))
    assert stream.future.request_cancel()
    until(stream.future.cancelled)
    assert pool.submit(abs, -1).result(60) == 1


def test_a_task_that_was_asked_to_stop_is_not_run_again(make_pool: Callable[..., Any], gate: Gate) -> None:
    def dies() -> None:
        gate.hold("first")
        os._exit(3)

    future = make_pool(1, retries=3).submit(dies)
    until(lambda: gate.marks("first"))
    assert future.request_cancel()
    gate.open()
    until(future.cancelled)
    assert len(gate.marks("first")) == 1


def test_a_request_that_comes_before_the_task_begins_reaches_it(
    make_pool: Callable[..., Any], gate: Gate
) -> None:
    pool = make_pool(1)
    for _ in range(20):
        future = pool.submit(test_current_task._wait_for_the_end, gate)
        until(future.running)
        # Its call may not have come to the actor yet.
        assert future.request_cancel()
        until(future.cancelled)


def test_an_actor_that_dies_while_its_task_calls_costs_that_alone(
    make_pool: Callable[..., Any], tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    pool = make_pool(
        1, retries=1, calls={"kill": lambda pid: os.kill(pid, 9), "slow": gate.hold, "fast": abs}
    )

    def calls_and_dies() -> int:
        task = current_task()
        assert task is not None
        if task.attempt == 1:
            threading.Thread(target=lambda: until(lambda: gate.marks()) and os.kill(os.getpid(), 9)).start()
            task.call("slow")
        answer: int = task.call("fast", -task.attempt)
        return answer

    future = pool.submit(calls_and_dies)
    assert future.result(60) == 2
    # The answer to the first attempt's call comes now, to nobody.
    gate.open()
    assert pool.submit(test_task_calls.call_often, "fast", 20).result(60) == list(range(20))


def test_the_methods_of_a_session_know_their_task(pool: Any) -> None:
    pool.expose("double", lambda n: 2 * n)
    session = pool.session("one", list, mode="queue")
    future = session.submit(test_task_calls.call, "double", 4)
    assert future.result(60) == 8


def test_the_tasks_of_an_actor_run_in_one_thread(pool: Any) -> None:
    one = pool.session("one", list, mode="queue")
    assert len({one.submit(threading.get_native_id).result(60) for _ in range(20)}) == 1


def test_functions_that_refer_to_their_pool_are_collected_with_it(make_pool: Callable[..., Any]) -> None:
    test_task_calls.test_functions_that_refer_to_their_pool_are_collected_with_it(make_pool, "ray")


def test_tasks_of_a_dropped_pool_call_its_functions(cluster: None, tmp_path: Path) -> None:
    test_task_calls.test_tasks_of_a_dropped_pool_call_its_functions("ray", tmp_path)


def test_a_coroutine_whose_loop_is_closed_is_an_error(make_pool: Callable[..., Any]) -> None:
    test_task_calls.test_a_coroutine_whose_loop_is_closed_is_an_error(make_pool, "ray")
