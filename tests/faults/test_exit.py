"""A program ends cleanly with daemon threads inside our code; `exit_scenes.py` runs each scene more often by hand."""

from __future__ import annotations

import subprocess
import sys
import weakref
from types import FrameType
from typing import Any

import pytest
from tests.faults.exit_scenes import SCENES, failures

import ropewalk
from ropewalk.pool.parent import _exit

#: Python before 3.14 aborted most scenes in every run, and each in most.
RUNS = 4


@pytest.mark.parametrize("name", SCENES)
def test_daemon_threads_end_with_the_program(name: str) -> None:
    if "tools" in name:
        pytest.importorskip("pydantic")
    assert not list(failures([name], RUNS))


def test_a_thread_pool_asks_nothing_of_the_loaded_modules() -> None:
    """CPython 3.13t can hang at its end if a daemon thread takes the lock of `sys.modules` along."""
    asked: list[str] = []

    def look(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and getattr(called, "__self__", None) is sys.modules:
            asked.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")

    def round_of_a_pool() -> None:
        with ropewalk.Pool(1, kind="thread") as pool:
            assert pool.submit(abs, -3).result(60) == 3
            pool.statistics()

    round_of_a_pool()  # What is imported once is imported now.
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        round_of_a_pool()
    finally:
        sys.setprofile(before)
    assert not asked


_LATE = """
import sys, threading
from ropewalk import Pool  # Loaded now: the standard library's executors cannot be loaded later either.

def leave():
    threading.main_thread().join()
    for kind in ("thread", "process"):
        try:
            with Pool(1, kind=kind) as pool:
                future = pool.submit(abs, -3)
                future.add_done_callback(lambda future: print(future.result()))
        except RuntimeError as error:
            # Of Python, and no limit: from 3.12 on it starts no threads any more.
            assert sys.version_info >= (3, 12), error
            assert "shutdown" in str(error), error
            print(3)

threading.Thread(target=leave).start()
"""


def test_a_pool_made_while_the_program_ends_names_no_limit() -> None:
    """A thread that makes a pool after `main` has returned gets Python's error that the interpreter is ending."""
    done = subprocess.run(
        [sys.executable, "-c", _LATE], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n3\n", "")


def test_engines_are_forgotten_while_other_threads_leave_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    ending: dict[Any, Any] = {}

    class Engine:
        ended = True

    class Meanwhile:
        @property
        def ended(self) -> bool:
            ending[Engine()] = None
            return False

    ending[last := Meanwhile()] = None
    monkeypatch.setattr(_exit, "ENDING", ending)
    with ropewalk.Pool(1, kind="thread") as pool:
        assert pool.submit(abs, -3).result(60) == 3
    assert last in ending


def test_a_pool_has_no_finalizer_that_the_exit_looks_through() -> None:
    """`weakref.finalize` iterates over its registry at exit, and fails if a daemon thread adds to it meanwhile."""
    before = len(weakref.finalize._registry)  # type: ignore[attr-defined]
    with ropewalk.Pool(1, kind="thread") as pool:
        assert pool.submit(abs, -3).result(60) == 3
        assert len(weakref.finalize._registry) == before  # type: ignore[attr-defined]


@pytest.mark.parametrize("end", ["pass", "pool.shutdown()", "del pool"])
def test_a_call_that_was_given_up_does_not_keep_the_program(end: str) -> None:
    code = (
        "import threading, ropewalk\n"
        "never = threading.Event()\n"
        "pool = ropewalk.Pool(1, kind='thread', task_timeout=0.1)\n"
        "future = pool.submit(never.wait)\n"
        "print(type(future.exception()).__name__, flush=True)\n"
        f"{end}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "TaskTimeout\n", "")
