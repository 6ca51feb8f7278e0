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
    "gateway",
    "messaging",
    "os",
    "pool",
    "py-bus",
    "py-gateway",
    "py-loop",
    "py-pool",
    "py-results",
    "py-state",
    "py-zmq",
    "python",
    "reactor",
    "shm",
    "state",
    "sync",
    "zmtp",
)

_PATH = re.compile(r"\b(crate|(?:super::)*super)::(\w+|\{)")
#: The root or a parent under another name, which would hide what is imported through it. Macros need the exception.
_ALIAS = re.compile(
    r"\b(?:use (?:crate|(?:super::)*super)(?:::\{[^;]*\bself)?|extern crate self) as (?!ropewalk_capi\b)\w+"
)
_COMMENT = re.compile(r"//[^\n]*")
#: The tests at the end of a file.
_TESTS = re.compile(r"^#\[cfg\((?:all\()?test[^\n]*\n(?:#\[[^\n]*\n)*mod \w+ \{.*", re.MULTILINE | re.DOTALL)
_HANDED_ON = re.compile(r"\buse (?:self::|crate::)?(\w+)::([^;]+);")
ROOT = "lib.rs"


def _code(content: str) -> str:
    return _TESTS.sub("", _COMMENT.sub("", content))


def _listed(code: str, start: int) -> list[str]:
    """The first names of the paths in the braces that open before `start`, without those of inner braces."""
    names, depth, begun = [], 1, True
    for token in re.finditer(r"\w+|::|[^\s]", code[start:]):
        if token[0] == "}":
            depth -= 1
            if not depth:
                break
        elif token[0] == "{":
            depth += 1
        elif depth == 1 and token[0] == ",":
            begun = True
        elif depth == 1 and begun:
            names.append(token[0])
            begun = False
    return names


def named(code: str) -> list[tuple[str, str]]:
    """What a file names of its crate: how the path begins, `crate` or `super`s, and the name after that."""
    found = []
    for path in _PATH.finditer(code):
        names = _listed(code, path.end()) if path[2] == "{" else [path[2]]
        found += [(path[1], name) for name in names]
    return found


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
        for start, name in named(_code(text(source / path))):
            if start != "crate" and start.count("super") != depth:
                continue
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


@pytest.mark.parametrize("crate", LAYERED)
def test_no_file_renames_the_root(crate: str) -> None:
    renamed = {
        str(path): _ALIAS.findall(_code(text(path)))
        for path in with_suffix(".rs", under=f"crates/{crate}/src")
    }
    assert not {path: found for path, found in renamed.items() if found}


def test_each_way_to_name_a_module_is_seen() -> None:
    assert named("use crate::error::Error;") == [("crate", "error")]
    assert named("use crate::{error::{Error, deep::{A}}, mailbox::Watcher};") == [
        ("crate", "error"),
        ("crate", "mailbox"),
    ]
    assert named("fn a() { super::super::wait::now() }") == [("super::super", "wait")]
    assert named("use super::{self, bus::{\n    Bus,\n}, names as other};")[1:] == [
        ("super", "bus"),
        ("super", "names"),
    ]
    for alias in (
        "use super as root;",
        "use crate as this;",
        "use crate::{self as this};",
        "extern crate self as top;",
    ):
        assert _ALIAS.search(alias), alias
    assert not _ALIAS.search("use crate::error::Error as Failed;")
