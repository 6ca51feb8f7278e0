"""A task that hangs costs itself and its worker, and nothing else; the error says where it was."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import children, is_alive, until
from tests.tasks import Gate

import ropewalk

LIMIT = 0.3


def loop_in_python(folder: str) -> None:
    _leave_mark(folder)
    tasks.spin()


def sleep_with_the_interpreter(folder: str) -> None:
    """Sits in C code that does not release the GIL, as a faulty extension does."""
    _leave_mark(folder)
    library = ctypes.PyDLL(None)
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:  # A signal cuts `sleep` short.
        library.sleep(100)


def stop_itself(folder: str) -> None:
    _leave_mark(folder)
    os.kill(os.getpid(), signal.SIGSTOP)
    tasks.spin()


def _leave_mark(folder: str) -> None:
    (Path(folder) / f"{os.getpid()}-{time.monotonic_ns()}").touch()


def _is_settled(pool: Any, total: int) -> bool:
    now = pool.statistics()
    assert now.submitted == total
    return bool(now.completed + now.failed + now.cancelled == total)


@pytest.mark.parametrize("hang", [loop_in_python, sleep_with_the_interpreter, stop_itself])
def test_a_hung_task_fails_alone_and_says_where_it_was(
    make_pool: Callable[..., Any], gate: Gate, tmp_path: Path, hang: Callable[[str], None]
) -> None:
    pool = make_pool(2, kind="process", preload=["tests.faults.test_hangs"])
    bystander = pool.submit(gate.hold)
    until(gate.marks)
    marks = tmp_path / "marks"
    marks.mkdir()
    hung = pool.options(hang_timeout=LIMIT).submit(hang, str(marks))
    behind = [pool.submit(tasks.square, n) for n in range(50)]
    with pytest.raises(ropewalk.TaskHung) as caught:
        hung.result(60)
    error = caught.value
    assert isinstance(error, TimeoutError)
    assert (error.code, error.limit, error.seconds, error.phase) == (
        "RW-TASK-HUNG",
        "hang_timeout",
        LIMIT,
        "running",
    )
    assert (error.task, error.attempt, error.pid) == (hung.task.id, 1, hung.task.worker_pid)
    assert error.call is not None
    assert f"{hang.__name__}(" in error.call
    if hang is stop_itself:
        assert error.stack is None
        assert "is stopped, by SIGSTOP" in str(error)
    else:
        assert error.stack is not None
        assert f"in {hang.__name__}" in error.stack
        assert error.stack in str(error)
    until(lambda: not is_alive(error.pid))
    assert [future.result(60) for future in behind] == [n * n for n in range(50)]
    gate.open()
    assert bystander.result(60) != error.pid
    until(lambda: _is_settled(pool, 52))
    now = pool.statistics()
    assert (now.hung, now.failed, now.completed, now.crashed, now.timed_out) == (1, 1, 51, 0, 0)
    assert len(list(marks.iterdir())) == 1, "it ran once"
    until(lambda: len(pool.statistics().worker_pids) == 2)


def test_a_hung_task_is_run_again_if_it_may_be(make_pool: Callable[..., Any], tmp_path: Path) -> None:
    pool = make_pool(1, kind="process", hang_timeout=LIMIT, retries=1)
    future = pool.submit(_hang_once, str(tmp_path))
    assert future.result(60) == "the second time"
    assert future.task.attempt == 2
    now = pool.statistics()
    assert (now.hung, now.retried, now.completed, now.failed, now.crashed) == (1, 1, 1, 0, 0)
    assert len(list(tmp_path.glob("run*"))) == 2


def _hang_once(folder: str) -> str:
    path = Path(folder) / f"run{os.getpid()}"
    path.touch()
    if len(list(Path(folder).glob("run*"))) == 1:
        tasks.spin()
    return "the second time"


def test_what_a_hung_task_answers_is_not_believed(make_pool: Callable[..., Any]) -> None:
    # The signal that asks for the stack cuts the sleep short, and the call returns.
    pool = make_pool(1, kind="process", hang_timeout=LIMIT)
    future = pool.submit(_sleep_in_c)
    assert isinstance(future.exception(60), ropewalk.TaskHung)
    assert pool.statistics().completed == 0
    assert pool.submit(tasks.square, 3).result(60) == 9


def _sleep_in_c() -> int:
    return int(ctypes.CDLL(None).sleep(100))


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_signs_of_life_keep_a_task_alive(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(1, kind=kind, hang_timeout=LIMIT)
    assert pool.submit(_beat, 4 * LIMIT).result(60) == "alive"
    # Each input of a chunk is one.
    pauses = [LIMIT / 3] * 9
    assert list(pool.map(time.sleep, pauses, chunksize=9)) == [None] * 9
    assert pool.statistics().hung == 0


def _beat(seconds: float) -> str:
    task = ropewalk.current_task()
    assert task is not None
    deadline = time.monotonic() + seconds
    report = iter(range(1 << 30))
    while time.monotonic() < deadline:
        time.sleep(LIMIT / 10)
        if next(report) % 2:
            task.heartbeat()
        else:
            task.progress(1)
    return "alive"


def test_an_input_that_hangs_costs_those_before_it_in_its_chunk_and_itself(
    make_pool: Callable[..., Any],
) -> None:
    pool = make_pool(1, kind="process", hang_timeout=LIMIT)
    results = pool.map(tasks.spin_if, [False] * 200 + [True] + [False] * 200)
    failed = 0
    count = 0
    while True:
        try:
            next(results)
        except StopIteration:
            break
        except ropewalk.TaskHung:
            failed += 1
        count += 1
    assert count == 401
    assert 1 <= failed <= 201


def test_an_import_is_no_hang(make_pool: Callable[..., Any], tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "ropewalk_slow_to_import.py").write_text(
        f"import time\ntime.sleep({2 * LIMIT})\ndef here(): return __name__\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from ropewalk_slow_to_import import here  # type: ignore[import-not-found]

    pool = make_pool(1, kind="process", hang_timeout=LIMIT)
    assert pool.submit(here).result(60) == "ropewalk_slow_to_import"
    assert pool.statistics().hung == 0


def test_a_stopped_idle_worker_is_replaced(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", hang_timeout=LIMIT)
    before = pool.submit(os.getpid).result(60)
    os.kill(before, signal.SIGSTOP)
    after = pool.submit(os.getpid)
    assert after.result(60) != before
    assert after.task.attempt == 1
    until(lambda: not is_alive(before))
    now = pool.statistics()
    assert (now.hung, now.failed, now.completed) == (0, 0, 2)


def test_threads_beside_a_hung_one_finish(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process", threads=3, grace=60)
    beside = [pool.submit(gate.hold, "beside") for _ in range(2)]
    (pid,) = until(lambda: len(gate.marks("beside")) == 2 and set(gate.marks("beside")))
    hung = pool.options(hang_timeout=LIMIT).submit(tasks.spin)
    error = hung.exception(60)
    assert isinstance(error, ropewalk.TaskHung)
    assert error.pid == pid
    # All threads of the worker are in the stack.
    assert "in spin" in (error.stack or "")
    assert "in hold" in (error.stack or "")
    assert is_alive(pid)
    assert pool.submit(os.getpid).result(60) != pid, "another worker takes what comes"
    gate.open()
    assert [future.result(60) for future in beside] == [pid, pid]
    until(lambda: not is_alive(pid))


def test_a_worker_that_does_not_handle_the_signal_gives_no_stack(
    make_pool: Callable[..., Any], gate: Gate
) -> None:
    pool = make_pool(1, kind="process", threads=2, grace=60)
    beside = pool.submit(gate.hold)
    until(gate.marks)
    hung = pool.options(hang_timeout=LIMIT).submit(_spin_deaf)
    error = hung.exception(60)
    assert isinstance(error, ropewalk.TaskHung)
    assert error.stack is None
    assert "does not handle the signal" in str(error)
    gate.open()
    assert beside.result(60) == error.pid, "the signal would have killed what ran beside it"


def _spin_deaf() -> None:
    from ropewalk._load import worker

    # Not by Python, which sets signals in the main thread only.
    ctypes.CDLL(None).signal(worker.stack_signal(), 0)
    tasks.spin()


def test_what_a_hung_task_has_started_ends_with_it(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process", hang_timeout=LIMIT)
    future = pool.submit(gate.with_child)
    assert isinstance(future.exception(60), ropewalk.TaskHung)
    (child,) = gate.children()
    until(lambda: not is_alive(child))


def test_a_hung_call_in_a_thread_is_told_and_goes_on(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="thread", retries=2)
    hung = pool.options(hang_timeout=LIMIT).submit(gate.hold)
    error = hung.exception(60)
    assert isinstance(error, ropewalk.TaskHung)
    assert "in hold" in (error.stack or "")
    assert "The call goes on" in str(error)
    assert error.pid == os.getpid()
    behind = pool.submit(tasks.square, 4)
    assert not behind.done()
    gate.open()
    assert behind.result(60) == 16
    now = pool.statistics()
    assert (now.hung, now.failed, now.completed, now.retried) == (1, 1, 1, 0)
    assert len(gate.marks()) == 1
    pool.shutdown()
    until(lambda: not [one for one in threading.enumerate() if one.name == f"{pool._name}-watch"])


def test_the_events_of_a_hang(make_pool: Callable[..., Any]) -> None:
    with ropewalk.events.subscribe("pool.task.*") as subscription:
        pool = make_pool(1, kind="process", hang_timeout=LIMIT, name="hangs")
        future = pool.submit(tasks.spin)
        future.exception(60)
        hung, failed = (subscription.recv(timeout=30) for _ in range(2))
    assert (hung.topic, hung.pool, hung.task) == ("pool.task.hung", "hangs", future.task.id)
    assert (failed.topic, failed.reason, failed.pid) == ("pool.task.failed", "hung", hung.pid)


@pytest.mark.parametrize(
    ("value", "error"), [(0, ValueError), (-1, ValueError), ("1", TypeError), (True, TypeError)]
)
def test_limits_that_make_no_sense(make_pool: Callable[..., Any], value: Any, error: Any) -> None:
    with pytest.raises(error, match="hang_timeout must be"):
        ropewalk.Pool(1, hang_timeout=value)
    with pytest.raises(error, match="hang_timeout must be"):
        make_pool(1, kind="thread").options(hang_timeout=value)


def test_another_spelling_is_told_ours() -> None:
    with pytest.raises(TypeError, match="Ropewalk has hang_timeout="):
        ropewalk.Pool(1, heartbeat_timeout=3)  # type: ignore[call-arg]


def test_hangs_leave_no_process(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process", hang_timeout=0.05)
    (zygote, *_rest) = until(lambda: [pid for pid in children(os.getpid()) if children(pid)])
    futures = [pool.submit(tasks.spin) for _ in range(10)]
    assert all(isinstance(future.exception(60), ropewalk.TaskHung) for future in futures)
    until(lambda: len(children(zygote)) == 2)
    assert pool.statistics().hung == 10


def test_workers_that_cannot_be_asked_are_refused() -> None:
    from ropewalk.pool.parent._health import refuse_hang

    refuse_hang(None)
    with pytest.raises(ValueError, match=r"hang_timeout must be None .*read the stack"):
        refuse_hang(1.0)


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_a_stream_hangs_between_two_items_and_not_while_it_waits(
    make_pool: Callable[..., Any], kind: str
) -> None:
    pool = make_pool(1, kind=kind)
    stream = pool.options(hang_timeout=LIMIT, buffersize=2).stream(_three_and_hang)
    assert next(stream) == 0
    # It has made all that it may, and waits for its reader.
    time.sleep(3 * LIMIT)
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(ropewalk.TaskHung):
        next(stream)


def _three_and_hang() -> Any:
    yield from range(3)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        time.sleep(0.01)
