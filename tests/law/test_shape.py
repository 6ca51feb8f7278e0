"""The shape of the tree: small files with specific names, and lines that fit."""

from __future__ import annotations

import statistics
from pathlib import Path

from tests.law._tree import files, text, with_suffix

SOURCES = with_suffix(".rs", ".py", ".pyi")
#: Names that say nothing: a thing lives with its idea.
NAMELESS = {"utils", "util", "common", "helpers", "helper", "misc"}
#: pyzmq's programs import it under this name.
NAMED_BY_OTHERS = "python/ropewalk/zmq/utils"
#: The formatters wrap code at 110; prose in comments may go a little further.
COLUMNS = 120


def _lines(path: Path) -> int:
    return text(path).count("\n")


def test_files_are_small() -> None:
    sizes = sorted(_lines(path) for path in SOURCES)
    assert statistics.median(sizes) < 200
    assert sizes[len(sizes) * 9 // 10] <= 650


def test_a_giant_says_that_it_is_one() -> None:
    # A table may be long, and says so in its head; anything else holds more than one idea.
    silent = [
        f"{path}: {_lines(path)} lines"
        for path in SOURCES
        if _lines(path) > 1000 and "table" not in text(path)[:600].lower()
    ]
    assert not silent


def test_no_file_without_an_idea() -> None:
    ours = [path for path in files() if not path.is_relative_to(NAMED_BY_OTHERS)]
    assert not [str(path) for path in ours if NAMELESS.intersection({path.stem, *path.parts[:-1]})]


def test_lines_fit() -> None:
    wrong = [
        f"{path}:{number}"
        for path in SOURCES
        for number, line in enumerate(text(path).splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert not wrong
