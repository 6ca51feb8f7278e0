"""Too much data, too many tasks, or both."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.tasks import Gate

import ropewalk

ROOT = Path(__file__).resolve().parents[2]
SIZES = [0, 1, 100, 4 << 10, 16 << 10, 47 << 10, 64 << 10, 65 << 10, 128 << 10, 1 << 20, 9 << 20]


@pytest.mark.parametrize("size", [*SIZES, 50 << 20])
def test_results_of_every_size(processes: Any, size: int) -> None:
    # 64 KiB is where a record of a ring ends, 8 MiB where a slab does.
    assert processes.submit(tasks.pattern, size).result(60) == tasks.pattern(size)


@pytest.mark.parametrize("size", [*SIZES, 50 << 20])
def test_arguments_of_every_size(processes: Any, size: int) -> None:
    assert processes.submit(len, tasks.pattern(size)).result(60) == size // 256 * 256
    assert processes.submit(tasks.identity, tasks.pattern(size)).result(60) == tasks.pattern(size)


def test_a_large_exception(processes: Any) -> None:
    error = processes.submit(tasks.fail, "x" * (3 << 20)).exception(60)
    assert isinstance(error, ValueError)
    assert len(error.args[0]) == 3 << 20


def test_a_large_function(processes: Any) -> None:
    data = tasks.pattern(1 << 20)
    assert processes.submit(lambda: len(data)).result(60) == 1 << 20


def test_large_results_that_nobody_takes(processes: Any) -> None:
    futures = [processes.submit(tasks.pattern, 4 << 20) for _ in range(20)]
    del futures
    assert processes.submit(tasks.square, 3).result(60) == 9


def test_many_results_that_nobody_looks_at_yet(processes: Any) -> None:
    # More than the rings hold: somebody has to take them out before anybody asks.
    futures = [processes.submit(tasks.pattern, 32 << 10) for _ in range(400)]
    assert futures[-1].result(60) == tasks.pattern(32 << 10)
    assert all(future.result(60) == tasks.pattern(32 << 10) for future in futures)


def test_many_large_arguments_at_once(processes: Any) -> None:
    data = tasks.pattern(2 << 20)
    futures = [processes.submit(len, data) for _ in range(50)]
    assert [future.result(60) for future in futures] == [2 << 20] * 50


def _more_than_memory() -> Any:
    """An array of a pebibyte that takes no memory, until somebody copies it."""
    import ctypes

    import numpy as np

    Path("/proc/self/oom_score_adj").write_text("1000")
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    size = 1 << 46
    # PROT_READ; MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE.
    address = libc.mmap(None, ctypes.c_size_t(size), 1, 0x4022, -1, ctypes.c_long(0))
    assert address not in (None, ctypes.c_void_p(-1).value)
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype=np.uint8)


def test_a_result_larger_than_memory(processes: Any) -> None:
    pytest.importorskip("numpy")
    error = processes.submit(_more_than_memory).exception(60)
    assert isinstance(error, ropewalk.RopewalkError)
    assert isinstance(error, ropewalk.OutOfMemory | ropewalk.ResultEncodeError)
    assert not isinstance(error, ropewalk.WorkerCrashed)
    assert processes.submit(tasks.square, 3).result(60) == 9
    assert processes.statistics().crashed == 0


LIMITED = """
import resource, signal, sys
sys.path.insert(0, {root!r})
# What a file may hold is what a full machine lets it hold, for a test that is to harm nobody.
resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
import ropewalk
from tests import tasks

with ropewalk.Pool(2, kind="process") as pool:
    futures = [pool.submit(tasks.pattern, size) for size in (100 << 20, 1 << 20, 100 << 20)]
    for future in futures:
        try:
            print(len(future.result(60)))
        except ropewalk.RopewalkError as error:
            told = (ropewalk.SharedMemoryError, ropewalk.ResultEncodeError)
            print(isinstance(error, ropewalk.WorkerCrashed), isinstance(error, told))
    try:
        pool.submit(len, tasks.pattern(100 << 20)).result(60)
    except ropewalk.SharedMemoryError as error:
        print("argument")
    try:
        ropewalk.shared.buffer(100 << 20)
    except ropewalk.SharedMemoryError as error:
        print("buffer")
    print(pool.submit(tasks.square, 3).result(60), pool.statistics().crashed)
"""


def test_no_room_for_data() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED.format(root=str(ROOT))],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["False True", str(1 << 20), "False True", "argument", "buffer", "9 0"]


FEW_DESCRIPTORS = """
import os, resource, sys
sys.path.insert(0, {root!r})
import ropewalk
from tests import tasks

with ropewalk.Pool(2, kind="process") as pool:
    pool.submit(tasks.square, 2).result(60)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for size in (100 << 10, 3 << 20):
        for _ in range(20):
            for future in [pool.submit(tasks.pattern, size) for _ in range(20)]:
                assert len(future.result(60)) == size
            for future in [pool.submit(len, bytes(size)) for _ in range(20)]:
                assert future.result(60) == size
    assert len(os.listdir("/proc/self/fd")) < 100
    print(pool.statistics().crashed)
"""


def test_results_that_were_looked_at_hold_no_descriptors() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FEW_DESCRIPTORS.format(root=str(ROOT))],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_full_queue_rejects(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind, capacity=3, overflow="error")
    running = pool.submit(gate.hold)
    until(gate.marks)
    accepted = []
    with pytest.raises(ropewalk.QueueFull) as caught:  # noqa: PT012 -- which submission is refused is not the point
        for n in range(100):
            accepted.append(pool.submit(tasks.square, n))  # noqa: PERF401
    assert isinstance(caught.value, queue.Full)
    assert caught.value.code == "RW-POOL-FULL"
    assert 3 <= len(accepted) < 100
    gate.open()
    running.result(60)
    assert [future.result(60) for future in accepted] == [n * n for n in range(len(accepted))]
    until(lambda: pool.submit(tasks.square, 9).result(60) == 81)


@pytest.mark.parametrize("overflow", ["block", "error"])
def test_a_submission_that_does_not_wait(
    make_pool: Callable[..., Any], gate: Gate, kind: str, overflow: str
) -> None:
    pool = make_pool(1, kind=kind, capacity=1, overflow=overflow)
    running = pool.submit(gate.hold)
    until(gate.marks)
    accepted = []
    with pytest.raises(ropewalk.QueueFull):  # noqa: PT012 -- which submission is refused is not the point
        for n in range(100):
            accepted.append(pool.options(priority=1).submit_nowait(tasks.square, n))  # noqa: PERF401
    with pytest.raises(ropewalk.QueueFull):
        pool.submit_nowait(tasks.square, number=1)
    gate.open()
    running.result(60)
    assert [future.result(60) for future in accepted] == [n * n for n in range(len(accepted))]
    pool.shutdown()
    with pytest.raises(ropewalk.PoolClosed):
        pool.submit_nowait(tasks.square, 1)


def test_a_full_queue_blocks(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind, capacity=2, overflow="block")
    pool.submit(gate.hold)
    until(gate.marks)
    futures: list[Any] = []
    submitter = threading.Thread(
        target=lambda: futures.extend(pool.submit(tasks.square, n) for n in range(200))
    )
    submitter.start()
    accepted = until(lambda: pool.statistics().queued >= 2 and pool.statistics().submitted)
    assert accepted < 200
    assert submitter.is_alive()
    gate.open()
    submitter.join(60)
    assert not submitter.is_alive()
    assert [future.result(60) for future in futures] == [n * n for n in range(200)]


def test_a_submitter_that_waits_for_room_learns_of_the_end(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process", capacity=1)
    pool.submit(gate.hold)
    until(gate.marks)
    refused: list[BaseException] = []

    def submit() -> None:
        try:
            for n in range(100):
                pool.submit(tasks.square, n)
        except ropewalk.PoolError as error:
            refused.append(error)

    submitter = threading.Thread(target=submit)
    submitter.start()
    until(lambda: pool.statistics().queued >= 1)
    pool.shutdown(wait=False, cancel_futures=True)
    submitter.join(60)
    assert not submitter.is_alive()
    assert isinstance(refused[0], ropewalk.PoolClosed)


def test_ten_thousand_queued_tasks_cancelled(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(2, kind=kind)
    held = [pool.submit(gate.hold) for _ in range(2)]
    until(lambda: len(gate.marks()) == 2)
    futures = [pool.submit(tasks.square, n) for n in range(10_000)]
    assert all(future.cancel() for future in futures)
    assert all(future.cancelled() and future.done() for future in futures)
    assert pool.statistics().cancelled == 10_000
    gate.open()
    assert [future.result(60) is not None for future in held] == [True, True]
    assert pool.submit(tasks.square, 5).result(60) == 25
    until(lambda: pool.statistics().queued == 0)
    assert pool.statistics().completed == 3


def test_ten_thousand_queued_tasks_cancelled_by_shutdown(
    make_pool: Callable[..., Any], gate: Gate, kind: str
) -> None:
    pool = make_pool(2, kind=kind)
    held = [pool.submit(gate.hold) for _ in range(2)]
    until(lambda: len(gate.marks()) == 2)
    futures = [pool.submit(tasks.square, n) for n in range(10_000)]
    pool.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    gate.open()
    pool.shutdown(wait=True)
    assert all(future.result(60) for future in held)


def test_submit_after_shutdown(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(1, kind=kind)
    pool.shutdown()
    for call in (
        lambda: pool.submit(tasks.square, 2),
        lambda: pool.map(tasks.square, [2]),
        lambda: pool.map_unordered(tasks.square, [2]),
        lambda: pool.options(retries=1).submit(tasks.square, 2),
    ):
        with pytest.raises(ropewalk.PoolClosed) as caught:
            call()
        assert isinstance(caught.value, RuntimeError)
        assert caught.value.code == "RW-POOL-CLOSED"
        assert "cannot schedule new futures after shutdown" in str(caught.value)
    pool.shutdown()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"workers": 0}, ValueError),
        ({"workers": -1}, ValueError),
        ({"workers": "x"}, TypeError),
        ({"workers": 1.5}, TypeError),
        ({"max_workers": 0}, ValueError),
        ({"workers": 1, "max_workers": 1}, TypeError),
        ({"threads": 0}, ValueError),
        ({"threads": 100_000}, ValueError),
        ({"kind": "nope"}, ValueError),
        ({"kind": None}, ValueError),
        ({"overflow": "drop"}, ValueError),
        ({"on_crash": "ignore"}, ValueError),
        ({"initializer": 5}, TypeError),
        ({"task_timeout": -1}, ValueError),
        ({"task_timeout": "1"}, TypeError),
        ({"task_timeout": float("nan")}, ValueError),
        ({"retries": -1}, ValueError),
        ({"retries": 1.5}, TypeError),
        ({"priority": "high"}, TypeError),
        ({"capacity": 0}, ValueError),
        ({"blas_threads": 0}, ValueError),
        ({"preload": "numpy"}, TypeError),
        ({"initargs": 3}, TypeError),
        ({"no_such_option": 3}, TypeError),
    ],
    ids=str,
)
def test_settings_that_make_no_sense(settings: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        ropewalk.Pool(**settings)
    assert str(caught.value)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"task_timeout": -0.5}, ValueError),
        ({"task_timeout": "soon"}, TypeError),
        ({"retries": -1}, ValueError),
        ({"priority": 1.5}, TypeError),
        ({"priority": 2**40}, (ValueError, OverflowError)),
    ],
    ids=str,
)
def test_options_that_make_no_sense(processes: Any, settings: dict[str, Any], error: Any) -> None:
    with pytest.raises(error):
        processes.options(**settings).submit(tasks.square, 2)


def test_calls_that_make_no_sense(pool: Any) -> None:
    with pytest.raises(TypeError):
        pool.submit()
    with pytest.raises(TypeError):
        pool.map(5, [1])
    for chunksize in (0, -1):
        with pytest.raises(ValueError, match="chunksize"):
            pool.map(tasks.square, [1], chunksize=chunksize)
    with pytest.raises(TypeError):
        pool.map(tasks.square, 5)
    # As with the standard library: what is no function fails when it is called.
    with pytest.raises(TypeError):
        pool.submit(5).result(60)
