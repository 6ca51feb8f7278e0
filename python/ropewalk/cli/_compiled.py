"""Which installed packages with compiled code load in an interpreter other than the main one.

Each is tried in a process of its own, so that one which crashes costs nothing. All trials together have a time limit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import repeat

#: Seconds for one package, and for all of them.
_EACH = 10.0
_ALL = 30.0
#: What a trial prints, and what that says of the package.
_PROGRAM = """
import _interpreters, os, sys
made = _interpreters.create()
if _interpreters.exec(made, f"import {sys.argv[1]}") is None:
    said = "loads"
else:
    try:
        __import__(sys.argv[1])
        said = "refuses"
    except BaseException:
        said = "broken"
os.write(1, said.encode())
os._exit(0)
"""


@dataclass(frozen=True, slots=True)
class Trials:
    """The names of packages by what came of their trial."""

    loads: tuple[str, ...]
    refuses: tuple[str, ...]
    #: It ended its process, or did not end in time.
    crashes: tuple[str, ...]
    #: There was no time left.
    untried: tuple[str, ...]


def compiled_packages() -> list[str]:
    """Returns the names of the installed packages and modules that have compiled code, in order."""
    return sorted({name for name in _names() if name.isidentifier() and name != "ropewalk"})


def _names() -> Iterator[str]:
    for distribution in metadata.distributions():
        for path in distribution.files or ():
            if path.name.endswith(tuple(EXTENSION_SUFFIXES)):
                yield path.parts[0].partition(".")[0]


def try_all(names: list[str], seconds: float = _ALL) -> Trials:
    """Tries each package, several at a time; those for which `seconds` do not suffice are left out."""
    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(min(4, len(os.sched_getaffinity(0)))) as executor:
        told = list(executor.map(_try, names, repeat(deadline)))
    by_outcome = {
        outcome: tuple(name for name, said in zip(names, told, strict=True) if said == outcome)
        for outcome in ("loads", "refuses", "crashes", "untried")
    }
    return Trials(**by_outcome)


def _try(name: str, deadline: float) -> str:
    left = min(_EACH, deadline - time.monotonic())
    if left <= 0:
        return "untried"
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=left,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "untried" if left < _EACH else "crashes"
    said = done.stdout[-len("refuses") :]
    outcome = next((outcome for outcome in ("loads", "refuses", "broken") if said.endswith(outcome)), None)
    return outcome if outcome is not None and done.returncode == 0 else "crashes"
