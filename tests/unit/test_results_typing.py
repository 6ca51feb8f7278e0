"""Types of results, checked by mypy in strict mode."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RIGHT = """
from typing import assert_never, assert_type

import ropewalk
from ropewalk import Err, Ok, Result
from ropewalk.result import as_result, collect, from_call, partition


def half(number: int) -> Result[int, str]:
    return Err("odd") if number % 2 else Ok(number // 2)


def told(it: Result[int, str]) -> str:
    match it:
        case Ok(value):
            assert_type(value, int)
            return str(value)
        case Err(error):
            assert_type(error, str)
            return error
        case _:
            assert_never(it)


def narrowed(it: Result[int, str]) -> int:
    if isinstance(it, Err):
        assert_type(it, Err[str])
        return len(it.error)
    assert_type(it, Ok[int])
    return it.value


def chained(it: Result[int, str]) -> None:
    assert_type(it.map(str), Ok[str] | Err[str])
    assert_type(it.map_err(len), Ok[int] | Err[int])
    assert_type(it.and_then(half), Ok[int] | Err[str])
    assert_type(it.unwrap(), int)
    assert_type(it.unwrap_or(None), int | None)
    assert_type(it.ok(), int | None)
    assert_type(it.inspect(print).expect("a number"), int)


def covariant(it: Result[bool, KeyError]) -> Result[int, LookupError]:
    return it


@as_result(ValueError)
def parse(text: str, base: int = 10) -> int:
    return int(text, base)


@as_result(ValueError)
async def parse_later(text: str) -> int:
    return int(text)


async def made() -> None:
    assert_type(parse("7", base=8), Ok[int] | Err[ValueError])
    assert_type(await parse_later("7"), Ok[int] | Err[ValueError])
    assert_type(from_call(half, 3), Ok[Ok[int] | Err[str]] | Err[Exception])
    assert_type(from_call(half, 3, catch=KeyError), Ok[Ok[int] | Err[str]] | Err[KeyError])


def sorted_out(them: list[Result[int, str]]) -> None:
    assert_type(collect(them), Ok[list[int]] | Err[str])
    assert_type(partition(them), tuple[list[int], list[str]])


def mapped(pool: ropewalk.Pool) -> None:
    assert_type(pool.map(half, [1]), ropewalk.MapIterator[Ok[int] | Err[str]])
    assert_type(pool.map(len, ["a"], results=True), ropewalk.MapIterator[Ok[int] | Err[Exception]])
    assert_type(pool.map_unordered(len, ["a"], results=True), ropewalk.MapIterator[Ok[int] | Err[Exception]])
    assert_type(pool.options(retries=1).map(len, ["a"], results=True), ropewalk.MapIterator[Ok[int] | Err[Exception]])
"""

#: Each is one mistake, and what is said about it.
WRONG = {
    "a case that is left out": (
        "def told(it: Result[int, str]) -> str:\n"
        "    match it:\n        case Ok(value):\n            return str(value)\n        case _:\n"
        "            assert_never(it)\n",
        'has incompatible type "Err[str]"',
    ),
    "a step that gives no result": ("Ok(1).and_then(str)\n", "cannot be"),
    "a value of another type": (
        'it: Result[int, str] = Ok("a")\n',
        'has incompatible type "str"; expected "int"',
    ),
    "a field that changes": ("Ok(1).value = 2\n", "read-only"),
}
HEAD = "from typing import assert_never\n\nfrom ropewalk import Err, Ok, Result\n\n"


def run_mypy(path: Path) -> tuple[int, str]:
    """What mypy says of a file, and its status."""
    pytest.importorskip("mypy")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        f"--cache-dir={path.parent}",
        path.name,
    ]
    environment = os.environ | {"MYPYPATH": str(ROOT / "python")}
    done = subprocess.run(
        command, cwd=path.parent, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_what_mypy_knows(tmp_path: Path) -> None:
    path = tmp_path / "right.py"
    path.write_text(RIGHT)
    status, said = run_mypy(path)
    assert status == 0, said


def test_what_mypy_finds(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    lines: dict[str, range] = {}
    text = HEAD
    for name, (code, _) in WRONG.items():
        begin = text.count("\n") + 1
        text += code
        lines[name] = range(begin, text.count("\n") + 1)
    path.write_text(text)
    status, said = run_mypy(path)
    assert status == 1, said
    found = [line.split(":", 3) for line in said.splitlines() if line.startswith("wrong.py:")]
    for name, (_, expected) in WRONG.items():
        about = [entry[3] for entry in found if int(entry[1]) in lines[name]]
        assert any(expected in message for message in about), f"{name}: {said}"
