"""Which thread goes on first where all cores are busy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.polling import until
from tests.unit.serving.conftest import call

from ropewalk.serving import Server, _policy

APP = """
import os, time

from ropewalk.serving import tool


@tool
def policy(busy: float = 0) -> int:
    end = time.thread_time() + busy
    while time.thread_time() < end:
        pass
    return os.sched_getscheduler(0)
"""

Choose = Callable[[int], int]

pytestmark = pytest.mark.skipif(
    os.sched_getscheduler(0) != os.SCHED_OTHER, reason="these tests run under another policy, which stays"
)


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Iterator[Choose]:
    """Counts a window of calls with so many sleeps, in a thread of its own, and returns the thread's policy."""
    slept = 0
    monkeypatch.setattr(_policy, "_sleeps", lambda: slept)

    def window(sleeps: int) -> int:
        nonlocal slept
        slept += sleeps
        for _ in range(_policy.WINDOW):
            _policy.count_call()
        return os.sched_getscheduler(0)

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(lambda: _policy._THREAD.calls).result() == 0
        yield lambda sleeps: thread.submit(window, sleeps).result()


def test_a_thread_that_seldom_sleeps_gives_way_until_it_often_does(choose: Choose) -> None:
    between = (_policy.FEW + _policy.STILL_FEW) // 2
    usual, gives_way = os.SCHED_OTHER, os.SCHED_BATCH
    windows = [_policy.WINDOW, between, _policy.FEW, between, _policy.STILL_FEW + 1, between, 0]
    assert [choose(sleeps) for sleeps in windows] == [
        usual,
        usual,
        gives_way,
        gives_way,
        usual,
        usual,
        gives_way,
    ]


def test_a_policy_that_the_program_was_started_with_stays(
    choose: Choose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: pytest.fail("it was changed"))
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_RR)
    assert [choose(0), choose(_policy.WINDOW)] == [os.SCHED_RR, os.SCHED_RR]


def test_a_policy_that_the_program_chooses_stays(choose: Choose, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(0) == os.SCHED_BATCH
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: pytest.fail("it was changed"))
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_IDLE)
    assert [choose(_policy.WINDOW), choose(0)] == [os.SCHED_IDLE, os.SCHED_IDLE]


def test_a_sandbox_may_forbid_it(choose: Choose, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert choose(0) == os.SCHED_OTHER


def test_workers_give_way_while_calls_wait_for_them(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)
    with Server(app, http="127.0.0.1:0", workers=1) as server, ThreadPoolExecutor(8) as callers:

        def ask(busy: float) -> object:
            return call(server, "policy", {"busy": busy}).json

        def burst() -> object:
            *_, last = callers.map(ask, [0.001] * (2 * _policy.WINDOW))
            return last

        assert ask(0) == os.SCHED_OTHER
        # On a machine that is busy with other things, a caller may come late with its next call, or find the worker
        # awake.
        until(lambda: burst() == os.SCHED_BATCH, 60)
        until(lambda: ask(0) == os.SCHED_OTHER, 60)
