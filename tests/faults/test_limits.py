"""Each limit of the process raises the error that names it, in every call that meets it."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import tasks

import ropewalk
from ropewalk.pool.wire import _logs

ROOT = Path(__file__).parents[2]

DESCRIPTORS = """
import os
import resource
import ropewalk
from ropewalk import Pool, shared

open_now = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 3, open_now + 3))
kept = [os.open("/dev/null", os.O_RDONLY)]
try:
    while True:
        kept.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for attempt in (lambda: Pool(1, kind="process"), lambda: shared.buffer(1 << 20)):
    try:
        attempt()
    except ropewalk.OutOfDescriptors as error:
        print(type(error).__name__, error.code, error.errno, "ulimit -n" in str(error), "/ropewalk/" in str(error))
"""

FILE_SIZE = """
import resource
import ropewalk
from ropewalk import Pool, shared

resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
with Pool(1, kind="process") as pool:
    for attempt in (lambda: shared.buffer(8 << 20), lambda: pool.submit(len, bytes(8 << 20)).result(60)):
        try:
            print(attempt())
        except ropewalk.FileSizeExceeded as error:
            print(type(error).__name__, error.code, error.errno, "ulimit -f" in str(error))
"""

#: Takes the system calls away that open a pidfd and signal by one, as an old kernel or a sandbox does.
WITHOUT_PIDFD = """
import ctypes
import errno
import platform
import struct

import ropewalk
from ropewalk import Pool

PIDFD_SEND_SIGNAL, PIDFD_OPEN, CLONE3 = 424, 434, 435
code = b""
for number in (PIDFD_SEND_SIGNAL, PIDFD_OPEN):
    code += struct.pack("HBBI", 0x15, 0, 1, number) + struct.pack("HBBI", 0x06, 0, 0, 0x00050000 | errno.ENOSYS)
code = struct.pack("HBBI", 0x20, 0, 0, 0) + code + struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)
text = ctypes.create_string_buffer(code)
libc = ctypes.CDLL(None, use_errno=True)
program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(text))
assert libc.prctl(38, 1, 0, 0, 0) == 0
if libc.prctl(22, 2, program, 0, 0) != 0:
    raise SystemExit("no seccomp")
try:
    Pool(1, kind="process")
except ropewalk.Unsupported as error:
    print(type(error).__name__, error.code, error.errno == errno.ENOSYS, "pidfd" in str(error), "5.3" in str(error))
with Pool(1, kind="thread") as pool:
    print(pool.submit(abs, -3).result(60))
"""


def _run(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    if "no seccomp" in done.stderr:
        pytest.skip("this system takes no seccomp filter")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_out_of_descriptors_is_one_error_everywhere() -> None:
    assert _run(DESCRIPTORS) == ["OutOfDescriptors RW-FILES 24 True False"] * 2


def test_the_limit_of_file_sizes_is_named() -> None:
    assert _run(FILE_SIZE) == ["FileSizeExceeded RW-FILE-SIZE 27 True"] * 2


def test_without_pidfds_a_pool_says_what_it_needs() -> None:
    assert _run(WITHOUT_PIDFD) == ["Unsupported RW-UNSUPPORTED True True True", "3"]


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on no thread starts; the second call lets them start again."""
    right = threading.Thread.start

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def switch() -> None:
        now = refuse if threading.Thread.start is right else right
        monkeypatch.setattr(threading.Thread, "start", now)

    return switch


def test_a_pool_without_a_thread_for_its_workers_logs(
    no_threads: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_logs, "_the_collector", None)
    no_threads()
    with pytest.raises(ropewalk.OutOfProcesses, match=r"ropewalk-logs.*ulimit -u"):
        ropewalk.Pool(1, kind="process")
    no_threads()
    with ropewalk.Pool(1, kind="process") as pool:
        assert pool.submit(tasks.square, 3).result(60) == 9


def test_a_pool_without_a_descriptor_for_its_workers_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(_logs, "_the_collector", None)
        patched.setattr("_socket.socketpair", refuse)
        with pytest.raises(ropewalk.OutOfDescriptors, match="ulimit -n") as caught:
            ropewalk.Pool(1, kind="process")
    assert caught.value.errno == errno.EMFILE
    with ropewalk.Pool(1, kind="process") as pool:
        assert pool.submit(tasks.square, 3).result(60) == 9


def test_a_thread_pool_without_threads_to_be_had(no_threads: Callable[[], None]) -> None:
    no_threads()
    with pytest.raises(ropewalk.OutOfProcesses, match="ulimit -u") as caught:
        ropewalk.Pool(2, kind="thread")
    assert caught.value.code == "RW-PROCESSES"
    no_threads()
    with ropewalk.Pool(2, kind="thread") as pool:
        assert pool.submit(tasks.square, 3).result(60) == 9


def test_a_collector_that_cannot_start_is_tried_again(
    make_pool: Callable[..., Any], no_threads: Callable[[], None], kind: str, gate: Any
) -> None:
    pool = make_pool(1, kind=kind)
    future = pool.submit(gate.hold)
    no_threads()
    with pytest.raises(ropewalk.OutOfProcesses):
        future.add_done_callback(lambda _: None)
    no_threads()
    called = threading.Event()
    pool.submit(gate.hold).add_done_callback(lambda _: called.set())
    gate.open()
    assert called.wait(60)
