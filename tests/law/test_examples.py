"""The examples in README.md and docs/ are run, each as a new user would run it.

A ```python block runs as a script of its own, in an empty folder, with warnings as errors; a ```text block right after
it is what it prints (`...` stands for anything). In a ```console block the lines after `$ ` run in a shell in a folder
that holds `examples/`, and must succeed. `<!-- not run: REASON -->` on the line before a block leaves it out, and
`<!-- from Python 3.14 -->` does so where Python is older.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.law._tree import ROOT, text, with_suffix

PAGES = [Path("README.md"), *with_suffix(".md", under="docs")]
_BLOCK = re.compile(
    r"(?P<skip>^<!-- not run: [^\n]+ -->\n)?(?:^<!-- from Python 3\.(?P<minor>\d+) -->\n)?"
    r"^```(?P<language>python|console)\n(?P<code>.*?)^```$"
    r"(?:\n\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Example:
    """One block."""

    page: Path
    line: int
    language: str
    code: str
    output: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def examples() -> list[Example]:
    """Every block that is to run."""
    found: list[Example] = []
    for page in PAGES:
        whole = text(page)
        for block in _BLOCK.finditer(whole):
            if block["skip"] is None and sys.version_info[:2] >= (3, int(block["minor"] or 0)):
                line = whole.count("\n", 0, block.start()) + 1
                found.append(Example(page, line, block["language"], block["code"], block["output"]))
    return found


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    scripts = sysconfig.get_path("scripts")
    environment = os.environ | {"PATH": scripts + os.pathsep + os.environ["PATH"], "COLUMNS": "100"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=90, check=False
    )


def _commands(code: str) -> str:
    lines: list[str] = []
    goes_on = False
    for line in code.splitlines():
        if line.startswith("$ ") or goes_on:
            command = line.removeprefix("$ ")
            goes_on = command.endswith("\\")
            lines.append(command)
    return "\n".join(lines)


@pytest.mark.parametrize("example", examples(), ids=str)
def test_example(example: Example, tmp_path: Path) -> None:
    if "import numpy" in example.code or "np." in example.code:
        pytest.importorskip("numpy")
    if "joblib" in example.code:
        pytest.importorskip("joblib")
    if "dask" in example.code:
        pytest.importorskip("dask")
    if "import Client" in example.code and "mcp" in example.code:
        pytest.importorskip("mcp")
    if re.search(r'kind *= *"ray"', example.code):
        pytest.importorskip("ray")
    if example.language == "python":
        (tmp_path / "example.py").write_text(example.code)
        done = _run([sys.executable, "-W", "error", "example.py"], tmp_path)
    else:
        (tmp_path / "examples").symlink_to(ROOT / "examples")
        done = _run(["bash", "-euo", "pipefail", "-c", _commands(example.code)], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    if example.output is not None:
        same = doctest.OutputChecker().check_output(example.output, done.stdout, doctest.ELLIPSIS)
        assert same, f"expected:\n{example.output}\nprinted:\n{done.stdout}"


def test_there_are_examples() -> None:
    assert {example.page for example in examples()} >= {Path("README.md"), Path("docs/pools.md")}
