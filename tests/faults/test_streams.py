"""Streams whose reader vanishes, whose worker dies, or whose process forks or ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.polling import is_alive, until
from tests.tasks import Gate

import ropewalk


def die_after(n: int, gate: Gate) -> Iterator[int]:
    gate.mark("started")
    yield from range(n)
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_first(gate: Gate) -> Iterator[int]:
    gate.mark("started")
    if len(gate.marks("started")) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    yield from range(3)


def never(gate: Gate) -> Iterator[int]:
    gate.mark("started")
    while True:
        time.sleep(0.01)
    yield 1


def chunks(n: int, size: int) -> Iterator[bytes]:
    chunk = bytes(size)
    for _ in range(n):
        yield chunk


def test_the_items_before_a_death_arrive(processes: Any, tmp_path: Path) -> None:
    stream = processes.options(retries=5).stream(die_after, 500, Gate(tmp_path))
    assert [next(stream) for _ in range(500)] == list(range(500))
    with pytest.raises(ropewalk.WorkerCrashed) as crash:
        next(stream)
    assert crash.value.signal == signal.SIGKILL
    assert len(Gate(tmp_path).marks("started")) == 1, "what has delivered something is not run again"
    assert processes.submit(abs, -1).result(60) == 1


def test_a_stream_that_has_delivered_nothing_is_run_again(processes: Any, tmp_path: Path) -> None:
    assert list(processes.options(retries=1).stream(die_at_first, Gate(tmp_path))) == [0, 1, 2]


def test_a_worker_that_is_killed_while_it_waits_for_its_reader(processes: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def identify() -> Iterator[int]:
        while True:
            yield gate.mark("made")

    stream = processes.options(buffersize=5).stream(identify)
    pid = next(stream)
    until(lambda: len(gate.marks("made")) >= 6)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ropewalk.WorkerCrashed):
        set(stream)
    assert processes.submit(abs, -1).result(60) == 1


def test_a_generator_that_never_yields_is_ended_by_force(processes: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    stream = processes.stream(never, gate)
    until(lambda: gate.marks("started"))
    stream.close()
    assert not stream.future.done(), "it does not look"
    assert stream.future.cancel(running=True)
    assert list(stream) == []
    assert processes.submit(abs, -1).result(60) == 1


def test_much_passes_in_little_memory(processes: Any) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    for n, size in [(30_000, 64), (100, 1 << 20), (24, 5 << 20)]:
        assert sum(map(len, processes.stream(chunks, 10, size))) == 10 * size
        before = descriptors()
        tracemalloc.start()
        try:
            total = sum(len(item) for item in processes.stream(chunks, n, size))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert total == n * size
        # What Python holds at once: the items that were taken together, at most the bound and the last one.
        assert peak < (40 << 20) + 4 * size
        until(lambda before=before: descriptors() <= before + 1)


def test_a_fork_does_not_read_its_parents_stream(pool: Any, kind: str) -> None:
    if kind == "interpreter":
        pytest.skip("CPython crashes in a child that is forked while the program has interpreters")

    def count() -> Iterator[int]:
        yield from range(5000)

    stream = pool.options(buffersize=10).stream(count)
    assert next(stream) == 0
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for _ in range(100):
                next(stream)
        except ropewalk.PoolError:
            stream.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(stream) == list(range(1, 5000))


def test_what_a_fork_has_read_is_no_room_for_the_worker(processes: Any) -> None:
    def count() -> Iterator[int]:
        yield from range(300)

    for _ in range(150):
        stream = processes.options(buffersize=10).stream(count)
        assert next(stream) == 0
        child = os.fork()
        if child == 0:
            code = 1
            try:
                while True:
                    next(stream)
            except ropewalk.PoolError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert list(stream) == list(range(1, 300))


_OPEN = """
import os, sys
import ropewalk

def count(path):
    try:
        while True:
            yield os.getpid()
    finally:
        open(path, "a").write("closed")

if __name__ == "__main__":
    pool = ropewalk.Pool(1, kind=sys.argv[1])
    stream = pool.options(buffersize=3).stream(count, sys.argv[2])
    print(next(stream), flush=True)
    if sys.argv[3] == "wait":
        sys.stdin.read()
"""


def _program(tmp_path: Path, kind: str, how: str) -> tuple[subprocess.Popen[str], Path]:
    script = tmp_path / "open.py"
    script.write_text(textwrap.dedent(_OPEN))
    closed = tmp_path / "closed"
    program = subprocess.Popen(
        [sys.executable, str(script), kind, str(closed), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return program, closed


def test_an_interpreter_ends_with_a_stream_open(tmp_path: Path, kind: str) -> None:
    program, closed = _program(tmp_path, kind, "end")
    with program:
        assert program.wait(60) == 0
    assert closed.read_text() == "closed"


def test_the_workers_of_a_reader_that_was_killed_end(tmp_path: Path) -> None:
    program, _ = _program(tmp_path, "process", "wait")
    with program:
        assert program.stdout is not None
        worker = int(program.stdout.readline())
        assert is_alive(worker)
        program.kill()
    until(lambda: not is_alive(worker))
