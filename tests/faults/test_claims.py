"""The documents' claims about pools: no copy for each worker, and the kind that is reported."""

from __future__ import annotations

import os
import re
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

np = pytest.importorskip("numpy")
SIZE = 64 << 20


def _memory(pid: int) -> dict[str, int]:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return {key: int(number) << 10 for key, number in re.findall(r"^(\w+): +(\d+) kB$", rollup, re.M)}


def _inodes(address: int) -> tuple[str, int]:
    """The device and the inode of the file that is mapped at an address of this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, _, device, inode, *name = line.split()
        start, end = (int(part, 16) for part in span.split("-"))
        if start <= address < end:
            assert any("memfd" in part for part in name), line
            return device, int(inode)
    raise AssertionError("nothing is mapped there")


def _look(array: Any) -> tuple[tuple[str, int], int]:
    return _inodes(np.asarray(array).ctypes.data), int(np.asarray(array).sum())


def _hold(gate: Gate, array: Any) -> tuple[int, bool, bool, tuple[str, int]]:
    view = np.asarray(array)
    total = int(view.sum())  # Touches every page.
    gate.hold()
    return total, view.flags.writeable, view.flags.owndata, _inodes(view.ctypes.data)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "argument"])
def test_an_array_reaches_four_workers_with_no_copy_for_each(
    make_pool: Callable[..., Any], gate: Gate, shared: bool
) -> None:
    pool = make_pool(4, kind="process", preload=["numpy"])
    pool.submit(tasks.identity, 0).result(60)
    array = np.ones(SIZE // 8)
    given = ropewalk.share(array) if shared else array
    futures = [pool.submit(_hold, gate, given) for _ in range(4)]
    pids = until(lambda: len(set(gate.marks())) == 4 and gate.marks())
    private = [_memory(pid)["Private_Dirty"] + _memory(pid)["Private_Clean"] for pid in pids]
    resident = [_memory(pid)["Rss"] for pid in pids]
    gate.open()
    results = [future.result(60) for future in futures]
    # Each has all of it before its eyes, and none has it to itself.
    assert all(number > SIZE for number in resident)
    if shared:
        assert all(number < SIZE // 2 for number in private)
        assert len({inode for *_, inode in results}) == 1
    assert [total for total, *_ in results] == [SIZE // 8] * 4
    assert not any(owndata for _, _, owndata, _ in results)
    assert [writeable for _, writeable, _, _ in results] == [shared] * 4


def test_an_argument_is_a_read_only_view_of_shared_memory(processes: Any) -> None:
    array = np.arange(1 << 20)
    inode, total = processes.submit(_look, array).result(60)
    assert total == array.sum()
    assert inode[1] != 0
    assert processes.submit(_try_to_write, array).result(60) == "ValueError"
    assert array[0] == 0


def _try_to_write(array: Any) -> str:
    try:
        array[0] = 1
    except ValueError as error:
        return type(error).__name__
    return "written"


def test_a_result_is_the_callers_own(processes: Any) -> None:
    result = processes.submit(np.arange, 1 << 20).result(60)
    assert result.flags.writeable
    assert not result.flags.owndata
    assert _inodes(result.ctypes.data)[1] != 0
    result[:] = 7
    again = processes.submit(np.arange, 1 << 20).result(60)
    assert (result == 7).all()
    assert (again == np.arange(1 << 20)).all()


def test_results_and_arguments_survive_their_task(processes: Any) -> None:
    # Memory that was leased is used again: never while somebody looks at it.
    kept = [processes.submit(np.full, 200_000, n).result(60) for n in range(20)]
    for _ in range(20):
        processes.submit(np.full, 200_000, -1).result(60)
        processes.submit(_sum, np.full(200_000, -2)).result(60)
    assert all((array == n).all() for n, array in enumerate(kept))


def _sum(array: Any) -> int:
    return int(array.sum())


def test_an_argument_that_a_worker_keeps_stays_as_it_was(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    pool.submit(_keep, np.full(300_000, 5)).result(60)
    for n in range(20):
        pool.submit(_sum, np.full(300_000, n)).result(60)
    assert pool.submit(_kept_sum).result(60) == 5 * 300_000


_KEPT: list[Any] = []


def _keep(array: Any) -> None:
    _KEPT.append(array)


def _kept_sum() -> int:
    return int(_KEPT[0].sum())


def test_tasks_see_what_others_write(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process")
    array = ropewalk.shared.array((1000, 4), dtype="int64")
    held = pool.submit(_write_and_hold, gate, array, 0)
    until(gate.marks)
    # It was written by a task that is not even over, in another process.
    assert pool.submit(_read, array, 0).result(60) == (1, 0)
    assert np.asarray(array)[0, 0] == 1
    np.asarray(array)[1, 0] = 5
    assert pool.submit(_read, array, 1).result(60)[0] == 5
    gate.open()
    assert held.result(60) == held.task.worker_pid


def _write_and_hold(gate: Gate, array: Any, row: int) -> int:
    np.asarray(array)[row, 0] = 1
    return gate.hold()


def _read(array: Any, row: int) -> tuple[int, int]:
    view = np.asarray(array)
    return int(view[row, 0]), int(view[row, 1])


def _named_memory() -> set[str]:
    """Files of shared memory with a name that this process has in its memory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {path for line in lines for path in line.split(maxsplit=5)[5:] if path.startswith("/dev/shm/")}


def test_no_name_in_the_file_system(processes: Any) -> None:
    # Other programs may make names meanwhile: only what is mapped here or in a worker counts.
    before = _named_memory() | processes.submit(_named_memory).result(60)
    array = ropewalk.shared.array(1 << 20)
    processes.submit(_look, array).result(60)
    assert _named_memory() | processes.submit(_named_memory).result(60) == before
    assert "memfd:" in Path("/proc/self/maps").read_text()


def test_processes_are_processes(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(3, kind="process", threads=2)
    futures = [pool.submit(tasks.where) for _ in range(60)]
    for future in futures:
        pid, _ = future.result(60)
        assert pid != os.getpid()
        assert (future.task.kind, future.task.worker_pid) == ("process", pid)
        assert pid in pool.statistics().worker_pids
    assert pool.kind == pool.statistics().kind == "process"
    assert "process" in pool.explain()


def test_threads_are_threads(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(3, kind="thread")
    futures = [pool.submit(tasks.where) for _ in range(60)]
    for future in futures:
        pid, thread = future.result(60)
        assert pid == os.getpid()
        assert thread != threading.get_ident()
        assert (future.task.kind, future.task.worker_pid) == ("thread", pid)
    assert pool.kind == pool.statistics().kind == "thread"
    assert pool.statistics().worker_pids == ()


def test_auto_says_what_it_chose_and_why(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="auto")
    free = not getattr(sys, "_is_gil_enabled", lambda: True)()
    assert pool.kind == ("thread" if free else "process")
    assert "GIL" in pool.explain()
    assert (pool.submit(os.getpid).result(60) == os.getpid()) == free


def test_threads_of_a_worker_run_at_the_same_time(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process", threads=3)
    futures = [pool.submit(gate.hold) for _ in range(6)]
    pids = until(lambda: len(gate.marks()) == 6 and gate.marks())
    assert len(set(pids)) == 2
    assert pool.statistics().running == 6
    gate.open()
    assert sorted(future.result(60) for future in futures) == sorted(pids)


@pytest.mark.parametrize("count", [1, 3])
def test_blas_threads_are_set(make_pool: Callable[..., Any], count: int) -> None:
    pool = make_pool(2, kind="process", blas_threads=count, preload=["numpy"])
    threadpoolctl = pytest.importorskip("threadpoolctl")
    assert threadpoolctl
    assert set(pool.submit(_blas_threads).result(60)) == {count}
    assert pool.submit(os.getenv, "OMP_NUM_THREADS").result(60) == str(count)


def _blas_threads() -> list[int]:
    import numpy  # noqa: F401
    import threadpoolctl

    return [library["num_threads"] for library in threadpoolctl.threadpool_info()] or [-1]


def test_a_preloaded_module_is_there_before_the_first_task(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", preload=["wave"])
    assert pool.submit(_is_loaded, "wave").result(60)
    bare = make_pool(1, kind="process")
    assert not bare.submit(_is_loaded, "wave").result(60)


def _is_loaded(name: str) -> bool:
    return name in sys.modules


def test_workers_never_load_the_parents_half(processes: Any) -> None:
    assert processes.submit(_parents_half).result(60) == []


def _parents_half() -> list[str]:
    names = ("ropewalk._core", "ropewalk.pool.parent._pool", "ropewalk.pool.parent._future", "ropewalk.cli")
    return [name for name in names if name in sys.modules]
