"""Graceful ends: shutdown with a deadline, and the signal on which a program lets its pools finish."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import descendants, is_alive, until
from tests.tasks import Gate

import ropewalk
from ropewalk.pool.parent import _exit

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("wait", [True, False])
def test_a_shutdown_ends_what_is_left_when_its_time_is_up(
    make_pool: Callable[..., Any], gate: Gate, kind: str, wait: bool
) -> None:
    pool = make_pool(2, kind=kind)
    done = [pool.submit(tasks.square, n) for n in range(20)]
    running = [pool.submit(gate.hold) for _ in range(2)]
    until(lambda: pool.statistics().running == 2)
    waiting = [pool.submit(tasks.square, n) for n in range(20)]
    pool.shutdown(wait=wait, timeout=0.3)
    assert [future.result(60) for future in done] == [n * n for n in range(20)]
    assert all(isinstance(future.exception(60), ropewalk.PoolTerminated) for future in running)
    for future in waiting:
        until(future.done)
        assert future.cancelled()
    with pytest.raises(ropewalk.PoolClosed):
        pool.submit(tasks.square, 1)
    now = pool.statistics()
    assert now.submitted == 42
    assert (now.completed, now.failed, now.cancelled) == (20, 2, 20)
    gate.open()


def test_a_shutdown_in_time_ends_nothing(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(2, kind=kind, retries=1)
    futures = [pool.submit(gate.hold, "held", n) for n in range(30)]
    until(lambda: gate.marks("held"))
    opener = threading.Timer(0.1, gate.open)
    opener.start()
    pool.shutdown(timeout=60)
    opener.join()
    assert [future.result(0) for future in futures] == list(range(30))


def test_tasks_are_run_again_until_the_time_is_up(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process", retries=1)
    future = pool.submit(gate.hold)
    (pid,) = until(gate.marks)
    pool.shutdown(wait=False, timeout=60)
    os.kill(pid, signal.SIGKILL)
    until(lambda: len(set(gate.marks())) == 2)
    gate.open()
    assert future.result(60) != pid


@pytest.mark.parametrize("value", [-1, "1", True])
def test_timeouts_that_make_no_sense(make_pool: Callable[..., Any], value: Any) -> None:
    pool = make_pool(1, kind="thread")
    with pytest.raises((TypeError, ValueError), match="timeout must be"):
        pool.shutdown(timeout=value)
    assert pool.submit(tasks.square, 2).result(60) == 4, "and nothing was shut down"


def test_a_sigterm_from_outside_ends_a_worker_and_its_task(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="process")
    futures = [pool.submit(gate.hold) for _ in range(2)]
    pids = until(lambda: len(set(gate.marks())) == 2 and gate.marks())
    os.kill(pids[0], signal.SIGTERM)
    (victim,) = until(lambda: [future for future in futures if future.done()])
    error = victim.exception(60)
    assert isinstance(error, ropewalk.WorkerCrashed)
    assert (error.signal, error.pid) == (signal.SIGTERM, pids[0])
    gate.open()
    assert sorted(future.result(60) for future in futures if future is not victim) == [pids[1]]


# --- the signal ----------------------------------------------------------------------------------------------------

PROGRAM = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
import ropewalk
from pathlib import Path
from tests import tasks
ropewalk.drain_on(signal.SIGTERM, timeout={timeout}, linger={linger})
gate = tasks.Gate(Path({folder!r}))
try:
    with ropewalk.Pool(2, kind={kind!r}) as pool:
        futures = [pool.submit(gate.hold, "held", n) for n in range(6)]
        print("ready", flush=True)
        for future in futures:
            try:
                print(future.result(), flush=True)
            except BaseException as error:
                print(type(error).__name__, flush=True)
                if isinstance(error, SystemExit): raise
        while True: time.sleep(0.01)
finally:
    print("finally", flush=True)
"""


@pytest.fixture
def program(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    kind, timeout = request.param
    # So long that a machine that is busy with other things does not end the program before it has read its results.
    linger = 5
    folder = tmp_path / "gate"
    folder.mkdir()
    code = PROGRAM.format(root=str(ROOT), timeout=timeout, folder=str(folder), kind=kind, linger=linger)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        until(lambda: Gate(folder).marks("held"))
        yield process
    finally:
        (folder / "open").touch()
        process.kill()
        process.communicate()


KINDS = ["process", "thread"]


@pytest.mark.parametrize("program", [(kind, 60) for kind in KINDS], indirect=True, ids=KINDS)
def test_the_signal_lets_everything_finish(program: subprocess.Popen[str], tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    # As a service manager does, which signals every process of a service.
    for pid in [program.pid, *descendants(program.pid)]:
        os.kill(pid, signal.SIGTERM)
    gate.open()
    out, error = program.communicate(timeout=60)
    assert (out.split(), error) == ([*map(str, range(6)), "finally"], "")
    assert program.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("program", [(kind, 0.3) for kind in KINDS], indirect=True, ids=KINDS)
def test_the_signal_ends_what_is_not_done_in_time(program: subprocess.Popen[str]) -> None:
    begin = set(descendants(program.pid))
    program.send_signal(signal.SIGTERM)
    assert program.stdout is not None
    words = [program.stdout.readline().strip() for _ in range(6)]
    assert words.count("PoolTerminated") >= 1
    assert set(words) <= {"PoolTerminated", "CancelledError", "SystemExit"}
    program.wait(timeout=60)
    assert program.returncode == 128 + signal.SIGTERM
    until(lambda: not any(is_alive(pid) for pid in begin))


@pytest.mark.parametrize("program", [("process", 600)], indirect=True)
def test_a_second_signal_ends_the_program_at_once(program: subprocess.Popen[str]) -> None:
    begin = set(descendants(program.pid))
    program.send_signal(signal.SIGTERM)
    # The first one is handled when the pool takes no more tasks, which only shows in time.
    deadline = time.monotonic() + 30
    while program.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
        program.send_signal(signal.SIGTERM)
    # The third one ends a program that is still about to end.
    assert program.wait(timeout=60) in (128 + signal.SIGTERM, -signal.SIGTERM)
    until(lambda: not any(is_alive(pid) for pid in begin))


def test_a_program_that_ends_by_itself_is_left_alone(tmp_path: Path) -> None:
    code = (
        f"import os, signal, sys, time; sys.path.insert(0, {str(ROOT)!r})\n"
        "import ropewalk\nfrom tests import tasks\n"
        "ropewalk.drain_on(timeout=60, linger=None)\n"
        "pool = ropewalk.Pool(1, kind='process')\n"
        "pool.submit(tasks.square, 2).result()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "try:\n"
        "    while True: pool.submit(tasks.square, 3).result()\n"
        "except ropewalk.PoolClosed:\n"
        "    pool.shutdown()\n"
        "    time.sleep(0.3)\n"
        "    print('by itself')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, "by itself"), done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_the_signal_bounds_a_block_that_is_being_left(tmp_path: Path, kind: str) -> None:
    gate = Gate(tmp_path / "gate")
    gate.folder.mkdir()
    code = (
        f"import signal, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import ropewalk\nfrom pathlib import Path\nfrom tests import tasks\n"
        "ropewalk.drain_on(timeout=0.3, linger=0)\n"
        f"with ropewalk.Pool(1, kind={kind!r}) as pool:\n"
        f"    future = pool.submit(tasks.Gate(Path({str(gate.folder)!r})).hold)\n"
        "    print('leaving', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "leaving\n"
        until(gate.marks)
        process.send_signal(signal.SIGTERM)
        # The gate stays shut for as long as the program is waited for.
        process.wait(timeout=60)
    finally:
        gate.open()
        process.kill()
        process.communicate()


RUNTIME = """
import os, signal, sys, time
import ropewalk
ropewalk.drain_on(signal.SIGTERM, timeout=60, linger=None)
runtime = ropewalk.Runtime({"made": {"kind": "thread"}, "unmade": {"kind": "thread"}}, default="made")
print(runtime.submit(len, "abc").result())
os.kill(os.getpid(), signal.SIGTERM)
try:
    while True: runtime.submit(len, "abc").result()
except ropewalk.PoolClosed:
    pass
try:
    runtime["unmade"].submit(len, "abc")
except ropewalk.PoolClosed as error:
    print(error)
print(runtime.explain().splitlines()[-1], runtime.statistics().unused)
runtime.shutdown()
"""


def test_a_runtime_makes_no_pool_after_the_signal(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUNTIME], capture_output=True, text=True, cwd=tmp_path, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    first, refusal, end = done.stdout.splitlines()
    assert first == "3"
    assert "shutdown of the runtime" in refusal
    assert end == "unmade was never made, and the runtime is closed. ('unmade',)"


def test_a_runtime_that_is_gone_is_forgotten() -> None:
    before = set(_exit._MAKERS)
    runtime = ropewalk.Runtime({"a": {"kind": "thread"}})
    assert id(runtime) in _exit._MAKERS
    number = id(runtime)
    del runtime
    gc.collect()
    assert number in before or number not in _exit._MAKERS


def test_a_loop_is_drained_too(tmp_path: Path) -> None:
    code = (
        f"import asyncio, os, signal, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import ropewalk\nfrom tests import tasks\n"
        "ropewalk.drain_on(timeout=60)\n"
        "async def main():\n"
        "    async with ropewalk.Pool(2, kind='process') as pool:\n"
        "        futures = [asyncio.ensure_future(pool.run(tasks.square, n)) for n in range(9)]\n"
        "        await asyncio.sleep(0)\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        print(*await asyncio.gather(*futures), flush=True)\n"
        "        await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False, timeout=60
    )
    assert (done.returncode, done.stdout.split()) == (143, [str(n * n) for n in range(9)]), done.stderr


def test_workers_that_ignore_the_signal_can_be_terminated(tmp_path: Path) -> None:
    code = (
        "import ropewalk, time\n"
        "ropewalk.drain_on(timeout=60)\n"
        "with ropewalk.Pool(1, kind='process') as pool:\n"
        "    future = pool.submit(time.sleep, 600)\n"
        "    while not future.running(): time.sleep(0.002)\n"
        "    pool.terminate_workers()\n"
        "    print(type(future.exception(60)).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, "PoolTerminated"), done.stderr


@pytest.mark.parametrize(
    ("args", "settings", "error"),
    [
        ((signal.SIGKILL,), {}, ValueError),
        ((0,), {}, ValueError),
        ((1000,), {}, ValueError),
        (("SIGTERM",), {}, TypeError),
        ((True,), {}, TypeError),
        ((), {"timeout": -1}, ValueError),
        ((), {"timeout": "1"}, TypeError),
        ((), {"linger": -1}, ValueError),
    ],
    ids=str,
)
def test_signals_that_make_no_sense(args: Any, settings: Any, error: type[Exception]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(error, match=r"(signum|timeout|linger) must be"):
        ropewalk.drain_on(*args, **settings)
    assert signal.getsignal(signal.SIGTERM) == before


def test_only_the_main_thread_can_ask_for_it() -> None:
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            ropewalk.drain_on()
        except ValueError as error:
            raised.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert "main thread" in str(raised[0])
