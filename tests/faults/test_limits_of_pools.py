"""Pools at the limits of the process, and beyond them."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.polling import until

ROOT = Path(__file__).resolve().parents[2]


def _run(code: str, files: int, seconds: float = 100) -> subprocess.CompletedProcess[str]:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < files:
        pytest.skip("the machine allows fewer descriptors")
    head = (
        f"import resource, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        f"hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, hard))\n"
        "import ropewalk\nfrom tests import tasks\n"
    )
    return subprocess.run(
        [sys.executable, "-c", head + code], capture_output=True, text=True, check=False, timeout=seconds
    )


LARGE = """
with ropewalk.Pool(300, kind="process") as pool:
    assert pool.submit(tasks.square, 3).result(60) == 9
    import time
    deadline = time.monotonic() + 80
    while len({w.pid for w in pool.statistics().workers_detail if w.state in ("idle", "busy")}) < 300:
        assert time.monotonic() < deadline, pool.statistics()
        time.sleep(0.02)
    assert pool.submit(tasks.square, 4).result(60) == 16
    statistics = pool.statistics()
    print(statistics.crashed, len(statistics.workers_detail))
"""


def test_a_pool_of_hundreds_of_workers() -> None:
    # More requests than the socket to the zygote holds, and more answers than the socket back.
    done = _run(LARGE, 4096)
    assert (done.stdout, done.stderr) == ("0 300\n", "")


def test_a_pool_of_seven_hundred_workers_runs_a_task_before_it_is_complete() -> None:
    code = """
with ropewalk.Pool(700, kind="process") as pool:
    print(pool.submit(tasks.square, 3).result(90))
"""
    done = _run(code, 8192)
    assert (done.stdout, done.stderr) == ("9\n", "")


def test_too_few_descriptors_are_told_at_once() -> None:
    code = """
try:
    ropewalk.Pool(600, kind="process")
except ropewalk.RopewalkError as error:
    print("RLIMIT_NOFILE" in str(error), "256" in str(error), "600" in str(error))
with ropewalk.Pool(2, kind="process") as pool:
    print(pool.submit(tasks.square, 3).result(60))
"""
    done = _run(code, 256, 60)
    assert (done.stdout, done.stderr) == ("True True True\n9\n", "")


SHORT = """
import os, time
with ropewalk.Pool(50, kind="process") as pool:
    # The first call imports a module, for which there may be no descriptor later.
    pool.statistics()
    # Below the number from which a pool counts before it starts: it finds out on the way, and does with what it has.
    futures = [pool.submit(tasks.square, n) for n in range(200)]
    assert [future.result(60) for future in futures] == [n * n for n in range(200)]
    deadline = time.monotonic() + 30
    while "RLIMIT_NOFILE" not in pool.explain():
        assert time.monotonic() < deadline, pool.explain()
        time.sleep(0.02)
    print(pool.statistics().crashed, 1 <= len(pool.statistics().workers_detail) < 50)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    while len(pool.statistics().workers_detail) < 50:
        assert time.monotonic() < deadline, pool.explain()
        time.sleep(0.02)
    assert "Short" not in pool.explain()
    print(pool.submit(tasks.square, 3).result(60), pool.statistics().crashed)
"""


def test_a_pool_that_falls_short_goes_on_and_catches_up() -> None:
    done = _run(SHORT, 64)
    assert (done.stdout, done.stderr) == ("0 True\n9 0\n", "")


INTERRUPTED = """
import os, threading, time
print("ready", flush=True)
try:
    for _ in range(100):
        pool = ropewalk.Pool(300, kind="process")
        pool.shutdown(wait=False, cancel_futures=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_while_a_large_pool_is_made() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport ropewalk\n{INTERRUPTED}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            until(lambda: len(list(Path(f"/proc/{child.pid}/fd").iterdir())) > 60)
            child.send_signal(signal.SIGINT)
            assert child.stdout.readline() == "interrupted\n"
            child.wait(60)
        finally:
            child.kill()


SCARCE = """
import os
ropewalk.Pool(1, kind="process").shutdown()
kept = []
try:
    while True:
        kept.append(os.dup(0))
except OSError:
    pass
made = refused = 0
for _ in range(40):
    try:
        ropewalk.Pool(1, kind="process").shutdown()
        made += 1
    except ropewalk.OutOfDescriptors:
        refused += 1
        os.close(kept.pop())
print(made > 0, refused > 3)
"""


def test_a_pool_that_finds_no_descriptor_says_so_wherever_it_is_at() -> None:
    done = _run(SCARCE, 64)
    assert (done.stdout, done.stderr) == ("True True\n", "")
