"""The files that the law tests check: those that git would commit, without builds and caches."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SKIPPED = {"target", ".venv", ".git", "__pycache__", "node_modules"}


@functools.cache
def files() -> tuple[Path, ...]:
    """Every file of the project, relative to its root; outside a checkout, every file that is not a build's."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        found = (Path(name) for name in listed.stdout.split("\0") if name)
    else:
        found = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
    return tuple(
        sorted(path for path in found if (ROOT / path).is_file() and not _SKIPPED.intersection(path.parts))
    )


def with_suffix(*suffixes: str, under: str = ".") -> list[Path]:
    """The files with one of these suffixes below a folder."""
    return [path for path in files() if path.suffix in suffixes and path.is_relative_to(under)]


def text(path: Path) -> str:
    """A file's text."""
    return (ROOT / path).read_text(encoding="utf-8")
