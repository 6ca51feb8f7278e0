"""An interrupt is not lost, whatever code it interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Literal

import pytest

import ropewalk
from ropewalk import Pool

LOOP = """
import itertools, sys, ropewalk
with ropewalk.Pool(2, kind=sys.argv[1]) as pool:
    try:
        print("ready", flush=True)
        for _ in itertools.count():
            list(pool.map(abs, range(5000)))
    except KeyboardInterrupt:
        print("heard", flush=True)
"""
EARLY = """
import time, ropewalk
with ropewalk.Pool(2, kind="process") as pool:
    try:
        print("ready", flush=True)
        pool.submit(time.sleep, 60).result()
    except KeyboardInterrupt:
        print("heard", flush=True)
        pool.terminate()
"""
UNSEEN = """
import time, ropewalk
pool = ropewalk.Pool(2, kind="process", capacity=2)
pool.submit(time.sleep, 0).result()
try:
    print("ready", flush=True)
    pool.map(time.sleep, [0.05] * 2000)
    while True:
        time.sleep(0.01)
except KeyboardInterrupt:
    print("heard", flush=True)
    pool.terminate()
"""


def _interrupted(program: str, delay: float, *arguments: str) -> tuple[str, str]:
    """What a program says when the terminal's Ctrl-C comes so long after it was ready."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(delay)  # The moment at which it comes is what is tried.
        os.killpg(child.pid, signal.SIGINT)
        try:
            return child.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            raise


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_an_interrupt_in_a_loop_of_maps_is_heard(kind: str) -> None:
    for number in range(4):
        said, errors = _interrupted(LOOP, 0.3 + number * 0.03, kind)
        assert (said, errors) == ("heard\n", "")


def test_an_interrupt_while_the_workers_start_is_heard() -> None:
    for number in range(6):
        said, errors = _interrupted(EARLY, number * 0.03)
        assert (said, errors) == ("heard\n", "")


def test_an_interrupt_while_an_unseen_map_submits_is_heard() -> None:
    said, errors = _interrupted(UNSEEN, 1.0)
    assert (said, errors) == ("heard\n", "")


def _interrupt_soon() -> None:
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupted_map_gives_its_workers_back() -> None:
    with Pool(2, kind="process") as pool:
        assert list(pool.map(abs, range(2))) == [0, 1]
        threading.Thread(target=_interrupt_soon).start()
        with pytest.raises(KeyboardInterrupt):
            list(pool.map(time.sleep, [600, 600], chunksize=1))
        assert pool.submit(len, "next cell").result(timeout=30) == 9


def test_the_result_of_a_parents_task_says_so_in_a_forked_child() -> None:
    with Pool(1, kind="process") as pool:
        pending = pool.submit(time.sleep, 1)
        child = os.fork()
        if child == 0:
            try:
                pending.result()
            except ropewalk.PoolError:
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        pending.result()


CONSUMED_IN_C = """
import sys, time, ropewalk
with ropewalk.Pool(2, kind=sys.argv[1]) as pool:
    pool.submit(len, "").result()
    print("ready", flush=True)
    try:
        list(getattr(pool, sys.argv[2])(time.sleep, [0.001] * 20_000, chunksize=1))
        print("never heard", flush=True)
    except KeyboardInterrupt:
        print("heard", flush=True)
"""


@pytest.mark.parametrize("kind", ["process", "thread"])
@pytest.mark.parametrize("way", ["map", "map_unordered"])
def test_an_interrupt_is_heard_though_no_code_of_pythons_runs(kind: str, way: str) -> None:
    for number in range(4):
        said, errors = _interrupted(CONSUMED_IN_C, 0.2 + number * 0.03, kind, way)
        assert (said, errors) == ("heard\n", "")


LEFT = """
import signal, threading, time, ropewalk
heard = 0
def hear(number, frame):
    global heard
    heard += 1
    raise KeyboardInterrupt("mine")
signal.signal(signal.SIGINT, hear)
try:
    with ropewalk.Pool(2, kind="process", capacity=4) as pool:
        pool.submit(len, "").result()
        print("ready", flush=True)
        pool.map(time.sleep, [0.005] * 20_000)
except KeyboardInterrupt as error:
    try:
        pool.submit(len, "")
    except RuntimeError:
        print("heard", heard, error, flush=True)
"""


def test_an_interrupt_while_an_unseen_map_submits_ends_its_block() -> None:
    for number in range(4):
        said, errors = _interrupted(LEFT, 0.2 + number * 0.03)
        assert (said, errors) == ("heard 1 mine\n", "")


class Leaving(ropewalk.Pool):
    """An interrupt comes as the block is left, before anything has been done about it."""

    interrupts = 1

    def _leave(self, failed: bool) -> None:
        self.interrupts -= 1
        if self.interrupts >= 0:
            raise KeyboardInterrupt
        super()._leave(failed)


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_an_interrupt_as_a_block_is_left_ends_the_pool(kind: Literal["process", "thread"]) -> None:
    with pytest.raises(KeyboardInterrupt), Leaving(1, kind=kind) as pool:
        waiting = [pool.submit(time.sleep, 0.05) for _ in range(200)]
    with pytest.raises(RuntimeError):
        pool.submit(len, "")
    assert waiting[-1].cancelled()
