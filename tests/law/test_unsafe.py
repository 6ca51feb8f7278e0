"""Unsafe code has homes; elsewhere each file that has some is argued in ARCHITECTURE.md."""

from __future__ import annotations

import re
from pathlib import Path

from tests.law._tree import text, with_suffix
from tests.law.test_crates import knows_python

#: System calls, cells, shared memory. The other homes are the crates that know the interpreter.
HOMES = {"os", "sync", "shm"}
_UNSAFE = re.compile(r"^(?!\s*//).*\bunsafe\s*(?:\{|\(|fn\b|impl\b|trait\b|extern\b)", re.MULTILINE)
#: A file's own tests stand at its end.
_TESTS = re.compile(
    r"^#\[cfg\((?:all\()?test\b[^\n]*\n(?:#\[[^\n]*\n)*mod \w+ \{.*", re.MULTILINE | re.DOTALL
)
_ROW = re.compile(r"^\| `crates/(\w+)` \| ((?:`\w+\.rs`(?:, )?)+) \| [^|]+ \|$", re.MULTILINE)


def test_every_unsafe_file_outside_the_homes_is_argued() -> None:
    sources = [source for source in with_suffix(".rs", under="crates") if source.parts[2] == "src"]
    found = {
        (source.parts[1], source.name)
        for source in sources
        if source.parts[1] not in HOMES
        and not knows_python(f"ropewalk-{source.parts[1]}")
        and _UNSAFE.search(_TESTS.sub("", text(source)))
    }
    section = text(Path("ARCHITECTURE.md")).split("\n## Unsafe code\n")[1].split("\n## ")[0]
    argued = {
        (crate, name) for crate, names in _ROW.findall(section) for name in re.findall(r"`([^`]+)`", names)
    }
    assert not found - argued, "new unsafe code outside its homes"
    assert not argued - found, "argued, and not there any more"


def test_the_law_sees_unsafe_code() -> None:
    # Also in a file with tests of its own.
    for source in ("crates/os/src/mmap.rs", "crates/capi/src/heap.rs", "crates/base/src/error.rs"):
        assert _UNSAFE.search(_TESTS.sub("", text(Path(source)))), source
