"""Ctrl-C and exceptions end a pool: one real interrupt is enough, wherever the program waits."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import descendants, is_alive, until
from tests.tasks import Gate

import ropewalk

ROOT = Path(__file__).parents[2]

HEAD = """
import asyncio, sys, threading, time
import ropewalk
from tests.tasks import Gate

gate = Gate({folder!r})


def long(pool):
    return [pool.submit(gate.hold) for _ in range(2)] + [pool.submit(time.sleep, 900) for _ in range(20)]


def tell(word):
    print(word, flush=True)


def soon():
    # The main thread is where it waits for good, or will be in an instant.
    while len(gate.marks()) < 2:
        time.sleep(0.01)
    time.sleep(0.2)
    tell("ready")


threading.Thread(target=soon, daemon=True).start()
"""

#: Where the main thread is when the interrupt comes.
PLACES = {
    "a result": "with ropewalk.Pool(2, kind=KIND, grace=0.2) as pool:\n    long(pool)[0].result()\n",
    "a map": (
        "with ropewalk.Pool(2, kind=KIND, grace=0.2) as pool:\n"
        "    list(pool.map(lambda _: gate.hold(), range(100)))\n"
    ),
    "the end of the block": "with ropewalk.Pool(2, kind=KIND, grace=0.2) as pool:\n    long(pool)\n",
    "other work": "with ropewalk.Pool(2, kind=KIND, grace=0.2) as pool:\n    long(pool)\n    time.sleep(900)\n",
    "a shutdown": "pool = ropewalk.Pool(2, kind=KIND, grace=0.2)\nlong(pool)\npool.shutdown()\n",
    "other work without a block": "pool = ropewalk.Pool(2, kind=KIND, grace=0.2)\nlong(pool)\ntime.sleep(900)\n",
    "the end of the program": "pool = ropewalk.Pool(2, kind=KIND, grace=0.2)\nlong(pool)\n",
    "an await": (
        "async def main():\n"
        "    async with ropewalk.Pool(2, kind=KIND, grace=0.2) as pool:\n"
        "        await asyncio.wrap_future(long(pool)[0])\n"
        "asyncio.run(main())\n"
    ),
    "the end of an asynchronous block": (
        "async def main():\n"
        "    async with ropewalk.Pool(2, kind=KIND, grace=0.2) as pool:\n"
        "        long(pool)\n"
        "asyncio.run(main())\n"
    ),
}


@contextmanager
def _program(code: str, folder: Path, kind: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    text = HEAD.format(folder=str(folder)) + f"KIND = {kind!r}\n" + code
    program = subprocess.Popen(
        [sys.executable, "-c", text, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


@pytest.mark.parametrize("place", PLACES)
def test_one_interrupt_is_enough(place: str, tmp_path: Path, kind: str) -> None:
    with _program(PLACES[place], tmp_path, kind) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        family = descendants(program.pid)
        # As a terminal does: the interrupt goes to every process of the foreground group.
        os.killpg(program.pid, signal.SIGINT)
        _, said = program.communicate(timeout=60)
        assert "KeyboardInterrupt" in said
        until(lambda: not any(is_alive(pid) for pid in family))


def test_an_exception_ends_the_program_now(tmp_path: Path, kind: str) -> None:
    code = (
        "with ropewalk.Pool(2, kind=KIND, grace=0.2) as pool:\n"
        "    long(pool)\n"
        "    while len(gate.marks()) < 2:\n        time.sleep(0.01)\n"
        "    raise LookupError('no more of this')\n"
    )
    with _program(code, tmp_path, kind) as program:
        _, said = program.communicate(timeout=60)
        assert program.returncode == 1
        assert "LookupError: no more of this" in said


def test_an_interrupted_result_can_be_asked_for_again(
    make_pool: Callable[..., Any], gate: Gate, kind: str
) -> None:
    pool = make_pool(1, kind=kind)
    future = pool.submit(gate.hold, "task", 7)

    def interrupt() -> None:
        until(gate.marks)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def wait() -> None:
        interrupter.start()
        future.result(60)

    interrupter = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        wait()
    interrupter.join()
    # As with the standard library's executors the task runs on: the program goes on too, and has its future.
    assert future.running()
    gate.open()
    assert future.result(60) == 7


def test_a_failing_map_ends_the_block(gate: Gate) -> None:
    def fail_first(number: int) -> None:
        if number == 0:
            until(lambda: len(gate.marks()) == 1)
            raise ValueError("the first one")
        gate.hold()

    with (
        pytest.raises(ValueError, match="the first one"),
        ropewalk.Pool(2, kind="process", grace=0.1) as pool,
    ):
        list(pool.map(fail_first, range(8), chunksize=1))
    assert pool.statistics().worker_pids == ()


def test_the_grace_lets_what_runs_finish(gate: Gate, kind: str) -> None:
    opener = threading.Timer(0.0, lambda: (until(lambda: pool._engine.closed), gate.open()))
    with pytest.raises(KeyError), ropewalk.Pool(1, kind=kind, grace=60) as pool:  # noqa: PT012
        held = pool.submit(gate.hold)
        until(gate.marks)
        behind = [pool.submit(tasks.square, n) for n in range(5)]
        opener.start()
        raise KeyError
    opener.join(60)
    assert held.result(0) == gate.marks()[0]
    assert all(future.cancelled() for future in behind)


#: How a program has left its pool when it is interrupted.
LEFT = {
    "while it waits for the shutdown": "pool.shutdown()",
    "after a shutdown without waiting": "pool.shutdown(wait=False); time.sleep(900)",
    "when nobody has the pool": "del pool; time.sleep(900)",
    "not at all": "time.sleep(900)",
}


@pytest.mark.parametrize("left", LEFT)
def test_an_interrupted_program_gives_the_grace_to_pools_that_are_ending(
    left: str, tmp_path: Path, kind: str
) -> None:
    code = (
        "def work():\n"
        "    gate.hold()\n"
        "    time.sleep(0.3)\n"
        "    open(sys.argv[1], 'w').close()\n"
        "sys.excepthook = lambda *_: tell('leaving')\n"
        "pool = ropewalk.Pool(2, kind=KIND, grace=60)\n"
        f"pool.submit(work); pool.submit(gate.hold)\n{LEFT[left]}\n"
    )
    finished = tmp_path / "finished"
    folder = tmp_path / "gate"
    folder.mkdir()
    with _program(code, folder, kind, str(finished)) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        os.killpg(program.pid, signal.SIGINT)
        assert program.stdout.readline() == "leaving\n"
        Gate(folder).open()
        program.communicate(timeout=60)
        assert finished.exists()


GRACES = """
from ropewalk.pool.parent import _exit
waits = []
plain = ropewalk.Pool._wait_for_end
def noted(pool, seconds):
    waits.append(seconds)
    plain(pool, seconds)
ropewalk.Pool._wait_for_end = noted
class Ending:
    # The engine of a pool that is being shut down, and whose call does not return.
    ended = False
    def end(self, grace): pass
    def join(self, seconds=None):
        if seconds is None: raise KeyboardInterrupt
        waits.append(seconds)
        return False
    def terminate(self): pass
for _ in range(2):
    _exit.ENDING[Ending()] = _exit.EndLimits(0.4, 0.4)
pools = [ropewalk.Pool(1, kind="thread", grace=0.4) for _ in range(4)]
held = [pool.submit(gate.hold) for pool in pools]
while not all(future.running() for future in held): time.sleep(0.01)
_exit.LAST.append(lambda: tell(f"{len(waits)} waits {sum(waits) <= 0.4}"))
raise KeyboardInterrupt
"""


def test_the_graces_of_thread_pools_do_not_add_up_at_the_end_of_the_program(tmp_path: Path) -> None:
    with _program(GRACES, tmp_path, "thread") as program:
        assert program.stdout is not None
        out, error = program.communicate(timeout=60)
        assert out.splitlines()[-1] == "6 waits True", error


_BEGINNING = "ropewalk.Pool(2, kind=KIND, grace=0.2, initializer=gate.hold)"
#: What a program does while the initializers of its workers run.
BEGINNINGS = {
    "other work in the block": f"with {_BEGINNING} as pool:\n    time.sleep(900)\n",
    "a result": f"with {_BEGINNING} as pool:\n    pool.submit(len, 'a').result()\n",
    "the end of the block": f"with {_BEGINNING} as pool:\n    pass\n",
    "a shutdown": f"pool = {_BEGINNING}\npool.submit(len, 'a')\npool.shutdown()\n",
    "other work without a block": f"pool = {_BEGINNING}\ntime.sleep(900)\n",
    "the end of the program": f"pool = {_BEGINNING}\npool.submit(len, 'a')\n",
}


@pytest.mark.parametrize("place", BEGINNINGS)
def test_an_interrupt_does_not_wait_for_initializers(place: str, tmp_path: Path, kind: str) -> None:
    with _program(BEGINNINGS[place], tmp_path, kind) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        os.killpg(program.pid, signal.SIGINT)
        # The gate stays shut.
        _, said = program.communicate(timeout=60)
        assert "KeyboardInterrupt" in said


def test_terminate_does_not_wait_for_initializers(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(2, kind="thread", initializer=gate.hold)
    future = pool.submit(tasks.square, 3)
    until(lambda: len(gate.marks()) == 2)
    ending = threading.Thread(target=pool.terminate, daemon=True)
    ending.start()
    # The gate stays shut.
    until(lambda: not ending.is_alive())
    assert future.cancelled()


def test_terminate(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    held = pool.submit(gate.hold)
    until(gate.marks)
    behind = pool.submit(tasks.square, 3)
    pool.terminate()
    assert isinstance(held.exception(60), ropewalk.PoolTerminated)
    assert behind.cancelled()
    with pytest.raises(ropewalk.PoolClosed):
        pool.submit(tasks.square, 3)
    if kind == "process":
        assert not is_alive(gate.marks()[0])
    gate.open()
    pool.terminate()


@pytest.mark.parametrize("method", ["terminate_workers", "kill_workers"])
def test_ending_workers_as_the_standard_library_does(
    make_pool: Callable[..., Any], gate: Gate, kind: str, method: str
) -> None:
    pool = make_pool(2, kind=kind)
    held = [pool.submit(gate.hold) for _ in range(2)]
    until(lambda: len(gate.marks()) == 2)
    behind = [pool.submit(tasks.square, n) for n in range(5)]
    getattr(pool, method)()
    assert all(isinstance(future.exception(60), ropewalk.PoolTerminated) for future in held)
    assert all(future.cancelled() for future in behind)
    if kind == "process":
        until(lambda: not any(is_alive(pid) for pid in gate.marks()))
    gate.open()


def test_a_cancelled_leave_ends_the_pool(gate: Gate, kind: str) -> None:
    async def main() -> None:
        ticks = 0

        async def work() -> None:
            async with ropewalk.Pool(1, kind=kind, grace=0.1) as pool:
                futures.append(pool.submit(gate.hold))

        futures: list[Any] = []
        leaving = asyncio.create_task(work())
        while not gate.marks() or ticks < 5:  # The loop goes on while the pool is left.
            ticks += 1
            await asyncio.sleep(0.01)
        assert not leaving.done()
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert isinstance(futures[0].exception(60), ropewalk.PoolTerminated)

    asyncio.run(main())
    gate.open()


def test_a_grace_that_makes_no_sense() -> None:
    with pytest.raises(TypeError, match="grace"):
        ropewalk.Pool(1, grace="soon")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="grace"):
        ropewalk.Pool(1, grace=-1)
