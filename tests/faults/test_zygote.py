"""The zygote dies, and the pool starts another."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests import tasks
from tests.polling import children, is_alive, until
from tests.tasks import Gate

import ropewalk

ROOT = Path(__file__).resolve().parents[2]


def _zygote(worker: int) -> int:
    fields = Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[1])


def test_a_zygote_is_the_workers_parent_and_the_pools_child(processes: Any) -> None:
    pids = until(lambda: len(processes.statistics().worker_pids) == 2 and processes.statistics().worker_pids)
    (zygote,) = {_zygote(pid) for pid in pids}
    assert zygote != os.getpid()
    assert zygote in children(os.getpid())
    assert set(pids) <= set(children(zygote))


def test_a_killed_zygote_costs_running_tasks_at_most(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process", preload=["tests.tasks"], name="killed-zygote")
    running = pool.submit(gate.hold)
    (pid,) = until(gate.marks)
    queued = [pool.submit(tasks.square, n) for n in range(100)]
    os.kill(_zygote(pid), signal.SIGKILL)
    # Its workers die with it, and with them what they were running: one task each.
    until(lambda: not is_alive(pid))
    assert isinstance(running.exception(60), ropewalk.WorkerCrashed)
    errors = [error for future in queued if (error := future.exception(60))]
    assert len(errors) <= 1
    assert all(isinstance(error, ropewalk.WorkerCrashed) for error in errors)
    assert [future.result(60) for future in [pool.submit(tasks.square, n) for n in range(100)]][-1] == 99 * 99
    until(lambda: len(pool.statistics().worker_pids) == 2)


def test_a_zygote_killed_again_and_again(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process", preload=["tests.tasks"])
    for _ in range(5):
        pid = pool.options(retries=9).submit(os.getpid).result(60)
        with suppress(FileNotFoundError, ProcessLookupError):  # It may be on its way out from the last round.
            if (zygote := _zygote(pid)) != 1:
                os.kill(zygote, signal.SIGKILL)
        future = pool.options(retries=9).submit(tasks.square, 7)
        assert future.result(60) == 49


def test_a_stopped_zygote_holds_up_only_new_workers(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="process", preload=["tests.tasks"])
    pid = pool.submit(os.getpid).result(60)
    until(lambda: len(pool.statistics().worker_pids) == 2)
    zygote = _zygote(pid)
    os.kill(zygote, signal.SIGSTOP)
    try:
        assert [future.result(60) for future in [pool.submit(tasks.square, n) for n in range(50)]][
            -1
        ] == 49 * 49
    finally:
        os.kill(zygote, signal.SIGCONT)
    assert pool.submit(tasks.square, 3).result(60) == 9


def test_an_interrupt_from_the_terminal_reaches_the_parent_only(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import os, signal, ropewalk\n"
        "from tests import tasks\n"
        "pool = ropewalk.Pool(2, kind='process')\n"
        "first = set(pool.submit(os.getpid).result(60) for _ in range(4))\n"
        "try:\n"
        "    os.killpg(os.getpgrp(), signal.SIGINT)\n"
        "    signal.pause()\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
        "print(pool.submit(tasks.square, 5).result(60), pool.statistics().crashed)\n"
        "pool.shutdown()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        start_new_session=True,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n25 0\n", "", 0)


def test_pools_that_come_and_go_leave_no_process(make_pool: Callable[..., Any]) -> None:
    for _ in range(5):
        pool = make_pool(3, kind="process")
        assert pool.submit(tasks.square, 3).result(60) == 9
        pids = pool.statistics().worker_pids
        pool.shutdown()
        until(lambda pids=pids: not any(is_alive(pid) for pid in pids))


def test_pools_that_come_and_go_leave_no_descriptor(make_pool: Callable[..., Any]) -> None:
    def once() -> None:
        with ropewalk.Pool(2, kind="process") as pool:
            assert pool.submit(tasks.pattern, 1 << 18).result(60)
            assert pool.submit(len, bytes(1 << 20)).result(60)

    for _ in range(3):
        once()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        once()
    # A segment may be kept for the next pool; ten pools may not keep ten.
    until(lambda: len(os.listdir("/proc/self/fd")) <= before + 4)


def test_what_is_open_for_any_child_ends_without_the_zygote(make_pool: Callable[..., Any]) -> None:
    reader, writer = os.pipe()
    try:
        os.set_inheritable(writer, True)
        # No other pool imports this beforehand, so that its zygote is started now.
        pool = make_pool(1, kind="process", preload=["tests.tasks", "sched"])
        assert pool.submit(tasks.square, 3).result(60) == 9
        os.close(writer)
        writer = -1
        ready, _, _ = select.select([reader], [], [], 30)
        assert ready
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)


def test_what_tasks_have_started_ends_with_a_killed_zygote(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process", preload=["tests.tasks"], name="childrens-zygote")
    running = [pool.submit(gate.with_child) for _ in range(2)]
    started = until(lambda: len(gate.children()) == 2 and gate.children())
    os.kill(_zygote(gate.marks()[0]), signal.SIGKILL)
    assert all(isinstance(future.exception(60), ropewalk.WorkerCrashed) for future in running)
    until(lambda: not any(is_alive(child) for child in started))
    assert pool.submit(tasks.square, 3).result(60) == 9


def test_what_tasks_have_started_ends_when_the_zygote_dies_before_the_program(tmp_path: Path) -> None:
    folder = tmp_path / "gate"
    folder.mkdir()
    code = (
        "import os, signal, sys, time\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "import ropewalk\nfrom pathlib import Path\nfrom tests import polling, tasks\n"
        f"gate = tasks.Gate(Path({str(folder)!r}))\n"
        "pool = ropewalk.Pool(2, kind='process')\n"
        "running = [pool.submit(gate.with_child) for _ in range(2)]\n"
        "polling.until(lambda: len(gate.children()) == 2)\n"
        "(zygote,) = [pid for pid in polling.children(os.getpid()) if polling.children(pid)]\n"
        "print(*polling.descendants(os.getpid()), flush=True)\n"
        "os.kill(zygote, signal.SIGKILL)\n"
        "while not running[0].done(): time.sleep(0.001)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    started = [int(word) for word in done.stdout.split()]
    assert len(started) >= 5
    until(lambda: not any(is_alive(pid) for pid in started))


def test_a_fork_of_a_task_ends_with_the_program(tmp_path: Path) -> None:
    folder = tmp_path / "gate"
    folder.mkdir()
    code = (
        "import os, signal, sys, time\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "import ropewalk\nfrom pathlib import Path\nfrom tests import polling, tasks\n"
        f"gate = tasks.Gate(Path({str(folder)!r}))\n"
        "def fork():\n"
        "    if os.fork() == 0:\n"
        "        gate.hold('forked')\n"
        "        os._exit(0)\n"
        "    gate.hold('parent')\n"
        "pool = ropewalk.Pool(1, kind='process')\n"
        "running = pool.submit(fork)\n"
        "polling.until(lambda: gate.marks('forked') and gate.marks('parent'))\n"
        "print(*polling.descendants(os.getpid()), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    started = [int(word) for word in done.stdout.split()]
    assert len(started) == 3, "a zygote, a worker, and its fork"
    until(lambda: not any(is_alive(pid) for pid in started))
