"""A program ends cleanly with daemon threads inside our code; `exit_scenes.py` runs each scene more often by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tests.faults.exit_scenes import SCENES, failures

import windlass
from windlass import _exit

#: Python before 3.14 aborted most scenes in every run, and each in most.
RUNS = 4


@pytest.mark.parametrize("name", SCENES)
def test_daemon_threads_end_with_the_program(name: str) -> None:
    assert not list(failures([name], RUNS))


def test_engines_are_forgotten_while_other_threads_leave_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    ending: set[Any] = set()

    class Engine:
        ended = True

    class Meanwhile:
        @property
        def ended(self) -> bool:
            ending.add(Engine())
            return False

    ending.add(last := Meanwhile())
    monkeypatch.setattr(_exit, "ENDING", ending)
    with windlass.Pool(1, kind="thread") as pool:
        assert pool.submit(abs, -3).result(60) == 3
    assert last in ending
