"""What the tests of the command line share: a way to run it, and to talk to it while it runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

TASKS = """
import os, time

def double(text):
    return int(text) * 2

def whole(value):
    return value

def touch_and_wait(text):
    open(text + ".started", "w").close()
    while not os.path.exists(text + ".go"):
        time.sleep(0.01)
    return text

def slow(text):
    time.sleep(0.02)
    return text

def die_once(text):
    if not os.path.exists(text):
        open(text, "w").close()
        os._exit(7)
    return "alive"

def odd(text):
    return {1, 2}

def shout(text):
    print("not a result")
    return text
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder with a file of functions, `tasks_of_cli.py`."""
    (tmp_path / "tasks_of_cli.py").write_text(TASKS)
    return tmp_path


def command(*arguments: str) -> list[str]:
    """The command's words."""
    return [sys.executable, "-m", "windlass", *arguments]


@pytest.fixture
def run(folder: Path) -> Run:
    """Runs the command in the folder and waits for its end."""

    def go(*arguments: str, stdin: str = "", **more: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # type: ignore[call-overload, no-any-return]
            command(*arguments), cwd=folder, input=stdin, capture_output=True, text=True, timeout=60, **more
        )

    return go
