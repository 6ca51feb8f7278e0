"""Few descriptors: idle objects need none, and at the limit one call fails and no other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests import tasks

ROOT = Path(__file__).resolve().parents[2]
HELD: list[Any] = []


def take_all_descriptors() -> int:
    """Called by a task, or by a program that is about to run out."""
    try:
        while True:
            HELD.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return len(HELD)


def give_descriptors_back() -> int:
    count = len(HELD)
    while HELD:
        os.close(HELD.pop())
    return count


def wait_for_the_end_of(folder: str) -> None:
    """Called by a task; a folder needs no descriptor to be removed."""
    until = time.monotonic() + 60
    while os.path.exists(folder):
        if time.monotonic() > until:
            raise TimeoutError(folder)
        time.sleep(0.005)


def _run(code: str, files: int) -> str:
    head = (
        f"import os, resource, sys, tempfile, time; sys.path.insert(0, {str(ROOT)!r})\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "import ropewalk\n"
        "from tests import tasks\n"
        "from tests.faults.test_descriptors import *\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", head + code], capture_output=True, text=True, check=False, timeout=150
    )
    assert done.stderr == ""
    return done.stdout


KEPT_RESULTS = """
size = (1 << 20) + 4096
np = __import__("numpy")
with ropewalk.Pool(2, kind="process", preload=["numpy"]) as pool:
    kept = []
    for start in range(0, 300, 20):
        some = [pool.submit(np.full, size, n % 251, np.uint8) for n in range(start, start + 20)]
        kept += [future.result(60) for future in some]
    assert all(array.min() == array.max() == n % 251 for n, array in enumerate(kept))
    kept[7][:] = 9  # It is the caller's own.
    print(len(os.listdir("/proc/self/fd")) < 150, pool.statistics().crashed)
    futures = [pool.submit(np.full, size, n % 251, np.uint8) for n in range(300)]
    futures[-1].result(60)
    assert all(future.result(60).max() == n % 251 for n, future in enumerate(futures))
    # One that has no descriptor here is sent on like any other.
    assert pool.submit(np.sum, kept[-1]).result(60) == (299 % 251) * size
    print(pool.statistics().crashed)
"""


def test_more_large_results_than_descriptors() -> None:
    assert _run(KEPT_RESULTS, 200) == "True 0\n0\n"


WAITING_ARGUMENTS = """
size = (1 << 20) + 4096
with ropewalk.Pool(2, kind="process") as pool:
    blockers = [pool.submit(time.sleep, 1) for _ in range(2)]
    futures = [pool.submit(tasks.identity, bytes([n % 251]) * size) for n in range(300)]
    print(len(os.listdir("/proc/self/fd")) < 150)
    for n, future in enumerate(futures):
        assert future.result(60) == bytes([n % 251]) * size
    print(pool.statistics().crashed, pool.statistics().failed)
"""


def test_more_large_arguments_than_descriptors() -> None:
    assert _run(WAITING_ARGUMENTS, 200) == "True\n0 0\n"


PARENT_AT_THE_LIMIT = """
with ropewalk.Pool(2, kind="process") as pool:
    pool.submit(tasks.square, 2).result(60)
    for size in (100 << 10, 3 << 20):
        # No worker answers before the last descriptor is taken: a segment that came earlier needs none.
        gate = tempfile.mkdtemp()
        blocked = [pool.submit(wait_for_the_end_of, gate) for _ in range(2)]
        while not all(future.running() for future in blocked):
            time.sleep(0.01)
        lost = [pool.submit(tasks.pattern, size) for _ in range(6)]
        small = [pool.submit(tasks.square, n) for n in range(20)]
        take_all_descriptors()
        os.rmdir(gate)
        failed = 0
        for future in lost:
            try:
                assert len(future.result(60)) == size
            except ropewalk.OutOfDescriptors as error:
                assert "RLIMIT_NOFILE" in str(error), error
                failed += 1
        assert [f.result(60) for f in small] == [n * n for n in range(20)]
        assert failed == len(lost)
        assert [future.result(60) for future in blocked] == [None, None]
        late = pool.submit(tasks.pattern, size)
        assert isinstance(late.exception(60), ropewalk.OutOfDescriptors)
        give_descriptors_back()
        assert len(pool.submit(tasks.pattern, size).result(60)) == size
        assert len(pool.submit(tasks.identity, tasks.pattern(size)).result(60)) == size
    print(pool.statistics().crashed)
"""


def test_a_result_that_finds_no_descriptor_fails_alone() -> None:
    assert _run(PARENT_AT_THE_LIMIT, 200) == "0\n"


WORKER_AT_THE_LIMIT = """
with ropewalk.Pool(1, kind="process") as pool:
    pid = pool.submit(os.getpid).result(60)
    for size in (100 << 10, 3 << 20):
        assert pool.submit(take_all_descriptors).result(60) > 0
        for _ in range(3):
            error = pool.submit(len, bytes(size)).exception(60)
            assert isinstance(error, ropewalk.RopewalkError), error
            assert not isinstance(error, ropewalk.WorkerCrashed), error
            assert "RLIMIT_NOFILE" in str(error) or "ulimit -n" in str(error), error
            assert pool.submit(tasks.square, 3).result(60) == 9
        assert pool.submit(give_descriptors_back).result(60) > 0
        # What did not fit is passed again.
        assert pool.submit(len, bytes(size)).result(60) == size
        assert pool.submit(tasks.identity, tasks.pattern(size)).result(60) == tasks.pattern(size)
    print(pool.statistics().crashed, pool.submit(os.getpid).result(60) == pid)
"""


def test_an_argument_that_finds_no_descriptor_fails_alone() -> None:
    assert _run(WORKER_AT_THE_LIMIT, 100) == "0 True\n"


def shared_bytes() -> int:
    """Bytes of shared memory that this process holds: what its descriptors and its mappings keep."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            if "ropewalk-segment" in os.readlink(f"/proc/self/fd/{name}"):
                status = os.stat(f"/proc/self/fd/{name}")
                found[status.st_ino] = status.st_blocks * 512
        except FileNotFoundError:  # That of the listing itself.
            continue
    for line in Path("/proc/self/maps").read_text().splitlines():
        span = re.match(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+) .*ropewalk-segment", line)
        if span:
            size = int(span[2], 16) - int(span[1], 16)
            found[int(span[3])] = max(found.get(int(span[3]), 0), size)
    return sum(found.values())


IDLE = """
import gc
def until_less(most):
    deadline = time.monotonic() + 30
    while (held := shared_bytes()) > most:
        assert time.monotonic() < deadline, held
        time.sleep(0.05)
with ropewalk.Pool(2, kind="process") as pool:
    for size in (3 << 20, 40 << 20, 200 << 10):
        for future in [pool.submit(tasks.identity, bytes(size)) for _ in range(4)]:
            assert len(future.result(60)) == size
    del future
    gc.collect()
    print(shared_bytes() > 40 << 20)
    # Nobody has asked for anything for a while, and the pool goes on.
    until_less(1 << 20)
    print(pool.submit(len, bytes(40 << 20)).result(60) == 40 << 20)
    print(shared_bytes() > 40 << 20)
# And it is gone with the last pool, without a while.
until_less(0)
print("gone")
"""


def test_shared_memory_is_given_back_when_idle_and_at_the_end() -> None:
    assert _run(IDLE, 1024) == "True\nTrue\nTrue\ngone\n"


def test_a_worker_keeps_no_memory_of_its_own(processes: Any) -> None:
    assert len(processes.submit(tasks.pattern, 40 << 20).result(60)) == 40 << 20
    deadline = time.monotonic() + 30
    while any(held > 1 << 20 for held in [processes.submit(shared_bytes).result(60) for _ in range(4)]):
        assert time.monotonic() < deadline
