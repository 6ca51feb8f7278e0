"""What happens to a task's threads, processes, descriptors and arguments when its worker is ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import CancelledError
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import is_alive, until

import ropewalk

ROOT = Path(__file__).resolve().parents[2]


def _start_and_wait(note: str) -> None:
    child = subprocess.Popen(["sleep", "300"], stdin=subprocess.DEVNULL)
    Path(note).write_text(str(child.pid))
    child.wait()


def _noted(path: Path) -> int:
    return int(until(lambda: path.exists() and path.read_text()))


@pytest.mark.parametrize(
    ("how", "raised"),
    [
        ("timeout", ropewalk.TaskTimeout),
        ("cancel", CancelledError),
        ("terminate", ropewalk.PoolTerminated),
        ("leave", KeyboardInterrupt),
    ],
)
def test_children_of_a_task_end_with_its_worker(
    make_pool: Callable[..., Any], tmp_path: Path, how: str, raised: type[BaseException]
) -> None:
    pool = make_pool(1, kind="process", grace=0.1)
    note = tmp_path / "child"
    with pytest.raises(raised):  # noqa: PT012
        with pool:
            future = pool.options(task_timeout=1 if how == "timeout" else None).submit(
                _start_and_wait, str(note)
            )
            child = _noted(note)
            assert is_alive(child)
            if how == "cancel":
                future.cancel(running=True)
            elif how == "terminate":
                pool.terminate()
            elif how == "leave":
                raise KeyboardInterrupt
            future.result(60)
    until(lambda: not is_alive(child))


def test_children_of_a_task_that_is_done_live_on(make_pool: Callable[..., Any], tmp_path: Path) -> None:
    pool = make_pool(1, kind="process")
    child = pool.submit(_start).result(60)
    pool.shutdown()
    try:
        assert is_alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


def _start() -> int:
    return subprocess.Popen(["sleep", "300"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid


def test_a_worker_whose_descriptors_a_task_has_closed_is_replaced(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process", retries=1)
    (before,) = until(lambda: pool.statistics().worker_pids)
    pool.submit(os.closerange, 3, 1000).result(60)
    # It needs a descriptor, which that worker cannot be given any more.
    assert pool.submit(len, bytearray(1 << 20)).result(60) == 1 << 20
    until(lambda: not is_alive(before))
    pool.shutdown()


def test_leaving_does_not_wait_for_a_preload(tmp_path: Path) -> None:
    (tmp_path / "ropewalk_slow.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(300)\n")
    code = (
        "import os, signal, sys, threading, time, ropewalk\n"
        "def interrupt():\n"
        "    while not os.path.exists('begun'): time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt, daemon=True).start()\n"
        "with ropewalk.Pool(2, kind='process', preload=['ropewalk_slow']) as pool:\n"
        "    pool.submit(abs, 1).result()\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGINT, done.stderr
    assert "KeyboardInterrupt" in done.stderr


# --- what stays in its process -------------------------------------------------------------------------------------


def _connection() -> Any:
    return Pipe()[0]


def _file() -> Any:
    return open(os.devnull, "a")


@pytest.mark.parametrize("make", [_connection, socket.socket, _file])
def test_what_belongs_to_a_process_is_refused(processes: Any, make: Callable[[], Any]) -> None:
    import functools

    with make() as thing:
        for submit in (
            lambda: processes.submit(id, thing),
            lambda: processes.submit(id, [{"in": thing}]),
            lambda: processes.submit(functools.partial(id, thing)),
            lambda: processes.submit(lambda: thing),
            lambda: list(processes.map(id, [thing])),
        ):
            with pytest.raises(ropewalk.EncodeError, match=r"cannot pickle '.*' object"):
                submit().result(60)  # type: ignore[attr-defined]
    with pytest.raises(ropewalk.ResultEncodeError, match=r"cannot pickle '.*' object"):
        processes.submit(make).result(60)
    assert processes.submit(tasks.square, 3).result(60) == 9


def test_words_that_look_like_a_connection_are_sent(processes: Any) -> None:
    text = "multiprocessing.connection"
    assert processes.submit(tasks.identity, [text, text.encode()]).result(60) == [text, text.encode()]


def _touch(memory: Any) -> int:
    memory.buf[0] += 1
    return int(memory.buf[0])


SHARED = """
import ropewalk
from tests.faults.test_what_tasks_leave import _touch
from tests.polling import is_alive, until
first = ropewalk.Pool(1, kind="process", preload=preload)
pid = first.submit(os.getpid).result(60)
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=100)
assert first.submit(_touch, memory).result(60) == 1
trackers = first.submit(tracker).result(60)
first.shutdown()
until(lambda: not is_alive(pid))
until(lambda: trackers is None or not is_alive(trackers))
with ropewalk.Pool(1, kind="process", preload=preload) as second:
    assert second.submit(_touch, memory).result(60) == 2
memory.close()
memory.unlink()
print("whole")
"""


def tracker() -> Any:
    from multiprocessing import resource_tracker

    found: Any = resource_tracker
    return found._resource_tracker._pid


@pytest.mark.parametrize(
    "preload", [(), ("multiprocessing.shared_memory",)], ids=["loaded late", "preloaded"]
)
def test_shared_memory_that_a_task_was_given_outlives_its_worker(preload: tuple[str, ...]) -> None:
    """The first pool's workers start a resource tracker of their own; those of the second have the program's."""
    head = (
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.faults.test_what_tasks_leave import tracker\n"
        f"preload = {preload!r}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", head + SHARED], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr) == ("whole\n", "")
