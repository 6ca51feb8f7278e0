"""If the parent is killed, no process, memory or file of it stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.polling import descendants, is_alive, until

ROOT = Path(__file__).resolve().parents[2]
PARENT = """
import sys, time
sys.path.insert(0, {root!r})
import ropewalk
from pathlib import Path
from tests import tasks
gate = tasks.Gate(Path({folder!r}))
pool = ropewalk.Pool(3, kind="process", threads={threads})
shared = ropewalk.shared.buffer(8 << 20)
memoryview(shared)[:] = bytes(8 << 20)
running = [pool.submit(gate.hold, "running", shared), pool.submit(gate.with_child, "running")]
busy = pool.submit(tasks.spin)
queued = [pool.submit(time.sleep, 60) for _ in range(100)]
while len(gate.marks("running")) < 2 or not gate.children():
    time.sleep(0.002)
print("ready", flush=True)
time.sleep(600)
"""


def _held_files(pids: list[int]) -> set[str]:
    """What these processes have open or mapped, as the kernel names it."""
    found = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(os.readlink(link))
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            found.update(line.split(maxsplit=5)[5:])
    return found


@pytest.fixture
def parent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    folder = tmp_path / "gate"
    folder.mkdir()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    code = PARENT.format(root=str(ROOT), folder=str(folder), threads=getattr(request, "param", 1))
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            (folder / "open").touch()
            process.kill()
            process.wait()


@pytest.mark.parametrize("parent", [1, 4], indirect=True, ids=["1 thread", "4 threads"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM], ids=lambda n: n.name)
def test_a_dead_parent_leaves_nothing(
    parent: subprocess.Popen[bytes], number: signal.Signals, tmp_path: Path
) -> None:
    started = descendants(parent.pid)
    assert len(started) >= 5, "a zygote, three workers, and what a task has started"
    held = _held_files([parent.pid, *started])
    assert any(name.startswith("/memfd:") for name in held), "the test sees memory that could stay"
    # Memory of memfds goes with the processes: there is no name by which it could stay. Other programs have theirs in
    # /dev/shm, which come while this test runs.
    assert not [name for name in held if name.startswith("/dev/shm")]

    os.kill(parent.pid, number)
    parent.wait()
    # Promised within a second; the deadline is for machines that are busy with other things.
    until(lambda: not any(is_alive(pid) for pid in started), seconds=10)

    assert list((tmp_path / "tmp").iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"gate", "tmp"}


def _state(pid: int) -> str:
    """The letter of a process's state; X if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def test_workers_that_are_stopped_go_too(parent: subprocess.Popen[bytes]) -> None:
    started = descendants(parent.pid)
    for pid in started:
        os.kill(pid, signal.SIGSTOP)
    # The kernel wakes what is stopped when its parent dies, and not what stops a moment later.
    until(lambda: all(_state(pid) in "TXZ" for pid in started))
    parent.kill()
    parent.wait()
    until(lambda: not any(is_alive(pid) for pid in started), seconds=10)


def test_a_parent_that_leaves_in_a_hurry(tmp_path: Path) -> None:
    code = (
        "import os, ropewalk, time\n"
        "pool = ropewalk.Pool(2, kind='process')\n"
        "fs = [pool.submit(time.sleep, 100) for _ in range(5)]\n"
        "while len(pool.statistics().worker_pids) < 2: time.sleep(0.002)\n"
        "print(*pool.statistics().worker_pids, flush=True)\n"
        "os._exit(5)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=tmp_path, check=False, timeout=60
    )
    assert done.returncode == 5
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    until(lambda: not any(is_alive(pid) for pid in pids), seconds=10)


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_a_program_that_forgets_to_shut_down_finishes_its_tasks(kind: str, tmp_path: Path) -> None:
    code = (
        f"import ropewalk, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests import tasks\n"
        f"pool = ropewalk.Pool(2, kind={kind!r})\n"
        "for n in range(20): pool.submit(tasks.write_line, n)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, cwd=tmp_path, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(int(line) for line in done.stdout.split()) == list(range(20))


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_shutdown_without_waiting_does_not_hang_at_exit(kind: str, tmp_path: Path) -> None:
    code = (
        "import ropewalk, time\n"
        f"pool = ropewalk.Pool(2, kind={kind!r})\n"
        "pool.submit(time.sleep, 0.3); pool.submit(print, 'apple', flush=True)\n"
        "pool.shutdown(wait=False)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, cwd=tmp_path, check=False, timeout=60
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, b"apple", b"")
