"""A program ends cleanly with daemon threads inside our code; `exit_scenes.py` runs each scene more often by hand."""

from __future__ import annotations

import pytest
from tests.faults.exit_scenes import SCENES, failures

#: Python before 3.14 aborted most scenes in every run, and each in most.
RUNS = 4


@pytest.mark.parametrize("name", SCENES)
def test_daemon_threads_end_with_the_program(name: str) -> None:
    assert not list(failures([name], RUNS))
