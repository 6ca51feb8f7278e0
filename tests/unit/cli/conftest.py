"""Fixtures of the command line's tests: they run it, and talk to it while it runs."""

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
    return object()

def add(a, b=1):
    return a + b

def forgets(text):
    if text == "3":
        os._exit(9)
    return text

def inner():
    raise KeyError("lost")

def outer(text):
    inner()

def sometimes(text):
    with open("calls-" + text, "a") as file:
        file.write("x")
    if len(open("calls-" + text).read()) < 3:
        raise OSError("not yet")
    return "now"

def varied(kind):
    import collections, dataclasses, datetime, decimal, enum, fractions, pathlib, uuid
    import numpy as np
    Point = dataclasses.make_dataclass("Point", ["x", "y"])
    Colour = enum.Enum("Colour", {"red": 1})
    return {
        "scalar": lambda: np.int64(3),
        "float32": lambda: np.float32(0.5),
        "bool": lambda: np.bool_(True),
        "array": lambda: np.arange(4).reshape(2, 2),
        "dates": lambda: np.array(["2024-02-29"], dtype="datetime64[ns]"),
        "keys": lambda: {np.int64(1): {datetime.date(2024, 2, 29): {2}}},
        "date": lambda: datetime.date(2024, 2, 29),
        "time": lambda: datetime.datetime(2024, 2, 29, 1, tzinfo=datetime.timezone.utc),
        "span": lambda: datetime.timedelta(seconds=90),
        "path": lambda: pathlib.Path("a/b"),
        "decimal": lambda: decimal.Decimal("1.10"),
        "fraction": lambda: fractions.Fraction(1, 3),
        "uuid": lambda: uuid.UUID(int=1),
        "set": lambda: {3, 1, 2},
        "mixed": lambda: frozenset(["a"]),
        "point": lambda: Point(1, [np.float64(2)]),
        "deque": lambda: collections.deque([1]),
        "enum": lambda: Colour.red,
        "nan": lambda: float("nan"),
        "bytes": lambda: b"x",
    }[kind]()

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
    return [sys.executable, "-m", "ropewalk", *arguments]


@pytest.fixture
def run(folder: Path) -> Run:
    """Runs the command in the folder and waits for its end."""

    def go(*arguments: str, stdin: str = "", **more: object) -> subprocess.CompletedProcess[str]:
        settings = {"cwd": folder, "timeout": 60} | more
        return subprocess.run(  # type: ignore[call-overload, no-any-return]
            command(*arguments), input=stdin, capture_output=True, text=True, **settings
        )

    return go
