"""Pools in workers of pools: they start when they are needed, and are refused where they would never end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from tests import tasks
from tests.polling import descendants, is_alive, until

import ropewalk

ROOT = Path(__file__).resolve().parents[2]


def _program(tmp_path: Path, module: str, main: str) -> list[str]:
    """Runs a program beside a module of its own; gives its lines. Its processes are bounded by the kernel, too."""
    (tmp_path / "nested_module.py").write_text(textwrap.dedent(module))
    (tmp_path / "program.py").write_text(textwrap.dedent(main))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_pool_made_by_an_import_starts_nothing_in_the_workers(tmp_path: Path) -> None:
    module = """
        import ropewalk
        pool = ropewalk.Pool(8, kind="process")
        def task(number):
            return number + 1
    """
    main = """
        import os
        from tests.polling import descendants
        import nested_module

        assert list(nested_module.pool.map(nested_module.task, range(100), chunksize=1)) == list(range(1, 101))
        print(len(descendants(os.getpid())))
    """
    # Eight workers and one zygote.
    assert int(_program(tmp_path, module, main)[-1]) <= 9


def test_work_at_import_is_refused_in_a_worker(tmp_path: Path) -> None:
    module = """
        import ropewalk
        pool = ropewalk.Pool(4, kind="process")
        def task(number):
            return number + 1
        values = list(pool.map(task, range(4)))
    """
    main = """
        import os
        import ropewalk
        from tests.polling import descendants
        try:
            import nested_module
        except ropewalk.FunctionLoadError as error:
            text = []
            while error is not None:
                text.append(str(error))
                error = error.__cause__ or error.__context__
            print("PoolNested" in " ".join(text) or "without end" in " ".join(text))
        print(len(descendants(os.getpid())))
    """
    lines = _program(tmp_path, module, main)
    assert lines[0] == "True"
    assert int(lines[-1]) <= 5


def _deeper(levels: int) -> Any:
    if not levels:
        return os.getpid()
    with ropewalk.Pool(8, kind="process") as pool:
        return pool.submit(_deeper, levels - 1).result(60)


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_pools_in_tasks(processes: Any, levels: int) -> None:
    assert processes.submit(_deeper, levels).result(90) != os.getpid()


def test_pools_in_tasks_without_end(processes: Any) -> None:
    future = processes.submit(_deeper, 1000)
    with pytest.raises(ropewalk.PoolNested, match="would be the 5th inside"):
        future.result(90)


def test_a_pool_in_a_task_starts_what_it_needs(processes: Any) -> None:
    assert processes.submit(_count_workers, 1).result(90) == 1
    assert 1 < processes.submit(_count_workers, 100).result(90) <= 8


def _count_workers(count: int) -> int:
    before = descendants(os.getpid())
    with ropewalk.Pool(8, kind="process") as pool:
        assert descendants(os.getpid()) == before
        assert list(pool.map(tasks.square, range(count), chunksize=1)) == [n * n for n in range(count)]
        return len(pool.statistics().worker_pids)


def test_a_pool_in_a_task_that_is_never_used(processes: Any) -> None:
    assert processes.submit(_unused).result(60) == 0


def _unused() -> int:
    with ropewalk.Pool(8, kind="process") as pool:
        assert pool.statistics().queued == 0
    return len(descendants(os.getpid()))


# --- pickling that submits ---


class Submits:
    """Submits to a pool while it is pickled."""

    pool: Any = None
    inner: list[Any] = []  # noqa: RUF012

    def __reduce__(self) -> Any:
        future = Submits.pool.submit(numpy.sum, numpy.ones(100_000))
        Submits.inner.append(future)
        return int, (future.result(60),)


def test_a_submit_inside_of_anothers_pickling(processes: Any) -> None:
    Submits.pool = processes
    Submits.inner.clear()
    before, after = numpy.arange(50_000), numpy.arange(70_000)
    got = processes.submit(tasks.capture, before, Submits(), after).result(60)
    assert numpy.array_equal(got[0][0], before)
    assert got[0][1] == 100_000
    assert numpy.array_equal(got[0][2], after)
    assert all(future.result(60) == 100_000 for future in Submits.inner)
    shared = ropewalk.share(numpy.arange(1000))
    got = processes.submit(tasks.capture, shared, Submits(), shared).result(60)
    assert numpy.array_equal(got[0][0], shared)
    assert numpy.array_equal(got[0][2], shared)


def test_nothing_of_this_is_left(processes: Any) -> None:
    assert processes.submit(_deeper, 1).result(60)
    workers = set(processes.statistics().worker_pids)
    # A worker keeps the zygote of its pools, as the program does, and no more.
    until(lambda: all(len(descendants(pid)) <= 1 for pid in workers))


# --- an outer worker that is killed ---


def _hold_in_a_pool(gate: tasks.Gate, levels: int) -> None:
    with ropewalk.Pool(2, kind="process") as pool:
        inner = [pool.submit(gate.with_child)]
        if levels > 1:
            inner.append(pool.submit(_hold_in_a_pool, gate, levels - 1))
        for future in inner:
            future.result()


@pytest.mark.parametrize("levels", [1, 3])
def test_all_below_a_killed_worker_ends(make_pool: Callable[..., Any], gate: tasks.Gate, levels: int) -> None:
    pool = make_pool(1, kind="process")
    future = pool.submit(_hold_in_a_pool, gate, levels)
    children = until(lambda: len(found := gate.children()) == levels and found)
    [outer] = pool.statistics().worker_pids
    below = descendants(outer)
    assert set(children) <= set(below)
    assert len(below) >= 3 * levels, "zygotes, workers, and what their tasks have started"
    os.kill(outer, signal.SIGKILL)
    until(lambda: not any(is_alive(pid) for pid in below), seconds=10)
    with pytest.raises(ropewalk.WorkerCrashed):
        future.result(60)
