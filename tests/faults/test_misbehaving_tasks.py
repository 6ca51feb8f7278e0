"""Tasks that exit, fork, close descriptors, block signals or otherwise misbehave."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import tasks
from tests.polling import descendants, is_alive, until

import ropewalk

ROOT = Path(__file__).resolve().parents[2]


def test_a_task_that_forks(processes: Any) -> None:
    for _ in range(3):
        assert processes.submit(tasks.fork_in_task).result(60) == 7
    assert processes.statistics().crashed == 0


def test_a_task_that_returns_twice(processes: Any) -> None:
    # The forked child has the worker's rings mapped: whatever it does there must not reach the parent.
    for _ in range(5):
        child = processes.submit(tasks.fork_and_return_twice).result(60)
        assert child > 0, "the answer is the worker's own"
        until(lambda pid=child: not is_alive(pid))
    assert [processes.submit(tasks.square, n).result(60) for n in range(50)] == [n * n for n in range(50)]
    assert processes.statistics().crashed == 0


def test_a_task_that_starts_threads(processes: Any) -> None:
    assert processes.submit(tasks.threads_in_task, 8).result(60) == 8
    assert processes.submit(tasks.leave_a_thread_behind).result(60) >= 2
    assert processes.submit(tasks.square, 3).result(60) == 9


def test_shutdown_does_not_wait_for_a_thread_that_a_task_left_behind(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    pool.submit(tasks.leave_a_thread_behind).result(60)
    pids = pool.statistics().worker_pids
    pool.shutdown(wait=True)
    until(lambda: not any(is_alive(pid) for pid in pids))


def test_a_task_that_starts_a_program(processes: Any) -> None:
    done = processes.submit(subprocess.run, ["cat"], capture_output=True, check=True).result(60)
    assert done.stdout == b""


def test_what_a_task_prints_is_the_programs_output(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import ropewalk\n"
        "from tests import tasks\n"
        "with ropewalk.Pool(1, kind='process') as pool:\n"
        "    assert pool.submit(tasks.write_to_both, 'from the worker').result(60) == 15\n"
        "    pool.submit(tasks.write_to_both, 'again').result(60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0
    assert done.stdout == done.stderr == "from the worker\nagain\n"


def test_a_task_has_no_input(processes: Any) -> None:
    assert processes.submit(tasks.read_input).result(60) == ""


def test_a_task_that_warns(processes: Any) -> None:
    assert processes.submit(_warn).result(60) == 1


def _warn() -> int:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("careful", stacklevel=1)
    return len(seen)


def test_a_task_that_recurses_without_end(processes: Any) -> None:
    assert isinstance(processes.submit(_recurse).exception(60), RecursionError)
    assert processes.submit(tasks.square, 3).result(60) == 9


def _recurse() -> None:
    _recurse()


def test_a_task_that_leaves_by_sys_exit(processes: Any) -> None:
    error = processes.submit(sys.exit, 3).exception(60)
    assert isinstance(error, SystemExit)
    assert error.code == 3
    assert processes.statistics().crashed == 0


def test_a_task_that_closes_every_descriptor(processes: Any) -> None:
    future = processes.submit(os.closerange, 0, 4096)
    # Whether the worker survives that is not promised; that it harms nobody else is.
    assert future.exception(60) is None or isinstance(future.exception(60), ropewalk.WorkerCrashed)
    assert [processes.submit(tasks.square, n).result(60) for n in range(50)] == [n * n for n in range(50)]


def test_a_task_that_changes_its_surroundings(processes: Any, tmp_path: Path) -> None:
    here = os.getcwd()
    processes.submit(os.chdir, tmp_path).result(60)
    processes.submit(os.umask, 0o077).result(60)
    processes.submit(os.environ.__setitem__, "ROPEWALK_TEST", "1").result(60)
    assert os.getcwd() == here
    assert "ROPEWALK_TEST" not in os.environ
    assert processes.submit(tasks.square, 3).result(60) == 9


def test_a_task_that_leaves_a_child_behind(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    before = set(descendants(os.getpid()))
    child = pool.submit(_start_and_leave).result(60)
    (pid,) = pool.statistics().worker_pids
    pool.shutdown()
    until(lambda: not is_alive(pid))
    # It is the task's to end; what is ours is that nobody waits for it.
    os.kill(child, 9)
    until(lambda: not set(descendants(os.getpid())) - before - {child})


def _start_and_leave() -> int:
    return subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL).pid
