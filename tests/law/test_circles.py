"""Files of one crate do not import each other in a circle.

A module here is a file right below `src`, with the folder of its name; imports inside of it are not examined. The root
(`lib.rs`) is above all modules; a name that it re-exports counts as the defining module's.
"""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from tests.law._tree import text, with_suffix

#: Crates whose files stand in layers.
LAYERED = (
    "base",
    "bus",
    "capi",
    "entry",
    "executor",
    "messaging",
    "os",
    "pool",
    "py-bus",
    "py-loop",
    "py-pool",
    "py-results",
    "py-zmq",
    "python",
    "reactor",
    "shm",
    "sync",
    "zmtp",
)

_PATH = re.compile(r"\b(crate|(?:super::)*super)::(\w+|\{[^}]*\})")
_COMMENT = re.compile(r"//[^\n]*")
#: The tests at the end of a file.
_TESTS = re.compile(r"^#\[cfg\((?:all\()?test[^\n]*\n(?:#\[[^\n]*\n)*mod \w+ \{.*", re.MULTILINE | re.DOTALL)
_HANDED_ON = re.compile(r"\buse (?:self::|crate::)?(\w+)::([^;]+);")
ROOT = "lib.rs"


def _modules(crate: str) -> dict[str, set[str]]:
    """Which modules each module of a crate names."""
    source = Path("crates", crate, "src")
    files = [path.relative_to(source) for path in with_suffix(".rs", under=str(source))]
    known = {path.parts[0].removesuffix(".rs") for path in files} - {"lib", "main"}
    root = text(source / "lib.rs")
    origin = {
        name: module
        for module, names in _HANDED_ON.findall(root)
        if module in known
        for name in re.findall(r"\w+", names)
    }
    found: dict[str, set[str]] = {ROOT: set(known)}
    for path in files:
        module = path.parts[0].removesuffix(".rs")
        if module not in known or "tests" in (path.stem, *path.parts[:-1]):
            continue
        # How many `super` lead to the root: a file in a folder stands below the folder's own module.
        depth = len(path.parts) - (path.name == "mod.rs")
        for start, names in _PATH.findall(_TESTS.sub("", _COMMENT.sub("", text(source / path)))):
            if start != "crate" and start.count("super") != depth:
                continue
            for name in (named.strip().split("::")[0] for named in names.strip("{}").split(",")):
                target = name if name in known else origin.get(name, ROOT)
                if target != module and name != "self":
                    found.setdefault(module, set()).add(target)
    return found


@pytest.mark.parametrize("crate", LAYERED)
def test_files_stand_in_layers(crate: str) -> None:
    try:
        TopologicalSorter(_modules(crate)).prepare()
    except CycleError as error:
        pytest.fail(f"crates/{crate}: {' → '.join(error.args[1])}")
