"""The page on security names a test for each promise, and each of these tests is there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.law._tree import ROOT, text

PAGE = Path("docs/security.md")
_ROW = re.compile(r"^\| (?P<promise>[^|]+?) \| `(?P<file>[^`:]+)(?:::(?P<name>\w+))?` \|$", re.MULTILINE)


def promises(page: str) -> list[tuple[str, str, str]]:
    """The rows of the table: a promise, a file, and the name of a test."""
    table = page.partition("\n## What is promised\n\n")[2].partition("\n\n")[0]
    rows = [(found["promise"], found["file"], found["name"] or "") for found in _ROW.finditer(table)]
    # The head and the line below it are no promises.
    assert len(rows) == table.count("\n") + 1 - 2, "a row of the table has another form"
    return rows


def is_there(file: str, name: str) -> bool:
    """Whether a file has a test of this name."""
    path = Path(file)
    if not (ROOT / path).is_file():
        return False
    if path.suffix == ".py":
        return re.search(rf"^def {name or 'test_'}", text(path), re.MULTILINE) is not None
    marked = r"#\[(?:tokio::)?test(?:\([^)]*\))?\]\s+(?:async )?fn "
    return re.search(marked + name + r"\b", text(path)) is not None


def test_each_promise_has_its_test() -> None:
    found = promises(text(PAGE))
    assert len(found) > 20
    assert not [(promise, f"{file}::{name}") for promise, file, name in found if not is_there(file, name)]


def test_a_test_that_is_gone_is_found() -> None:
    assert not is_there("tests/law/test_promises.py", "test_of_nothing")
    assert not is_there("tests/law/nothing.py", "test_of_nothing")
    assert not is_there("crates/gateway/src/guard.rs", "guard")
    assert is_there("tests/law/test_promises.py", "test_a_test_that_is_gone_is_found")
