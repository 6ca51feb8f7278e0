"""The examples, run with small inputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def _run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=EXAMPLES.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_complexity_finds_the_same_as_a_plain_loop() -> None:
    text = _run(str(EXAMPLES / "complexity.py"), "--compare", "--limit", "8")
    assert "the results are the same" in text
    assert "ten most complex functions" in text


def test_complexity_counts_decisions() -> None:
    code = "def f(a, b):\n if a and b or a:\n  return [x for x in a if x]\n def g():\n  while a: pass\n"
    count = "print([f['complexity'] for f in c._functions(t, '')])"
    script = f"import ast, complexity as c; t = ast.parse({code!r}); {count}"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=EXAMPLES, capture_output=True, text=True, timeout=60, check=True
    )
    # f: 1, the if, two of `and`/`or`, the comprehension and its condition. g: 1 and the loop.
    assert done.stdout.strip() == "[6, 2]"


def test_image_filter_is_right() -> None:
    pytest.importorskip("numpy")
    assert "the results are the same" in _run(
        str(EXAMPLES / "image_filter.py"), "--images", "2", "--size", "300"
    )


def test_echo_server_answers_rightly() -> None:
    text = _run(str(EXAMPLES / "echo_server.py"), "--connections", "5", "--requests", "20", "--size", "3000")
    assert text.startswith("ropewalk.")
    assert "100 right answers" in text


def test_processes_of_a_bus_find_the_highest_values() -> None:
    assert _run(str(EXAMPLES / "processes_bus.py")) == "oslo: 1\nparis: 9\nrome: 14\n"


@pytest.mark.parametrize("lines", [1, 5, 14])
def test_orders_are_priced_once_however_often_the_program_is_killed(tmp_path: Path, lines: int) -> None:
    command = [sys.executable, "-u", str(EXAMPLES / "orders.py"), str(tmp_path / "orders.wal")]
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            for _, line in zip(range(lines), program.stdout, strict=False):
                assert line
            program.kill()
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert said.splitlines()[-1] == "12 orders for 150, each priced once, in 24 versions"
    # All is done: another run prices nothing, and sends no invoice twice.
    again = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert again.splitlines()[-1] == said.splitlines()[-1]
    assert "invoice" not in again
