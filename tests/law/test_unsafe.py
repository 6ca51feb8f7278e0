"""Unsafe code is in its own crates; ARCHITECTURE.md argues for each other file that has some."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.law._tree import ROOT, text, with_suffix
from tests.law.test_crates import knows_python

#: System calls, cells, shared memory. The other homes are the crates that know the interpreter.
HOMES = {"os", "sync", "shm"}
CRATES = sorted(
    path.parts[1]
    for path in with_suffix(".rs", under="crates")
    if path.parts[2:] == ("src", "lib.rs")
    and path.parts[1] not in HOMES
    and not knows_python(f"ropewalk-{path.parts[1]}")
)
#: How a whole file, and nothing less, is let off. The compiler refuses it in a file that has no unsafe code.
_LET_OFF = re.compile(r"^#!\[(?:cfg_attr\(.*)?(?:allow|expect|warn)\(.*\bunsafe_code\b", re.MULTILINE)
_ITEM_LET_OFF = re.compile(r"^\s*#\[(?:cfg_attr\(.*)?(?:allow|expect|warn)\(.*\bunsafe_code\b", re.MULTILINE)
#: A file's own tests stand at its end.
_TESTS = re.compile(
    r"^#\[cfg\((?:all\()?test\b[^\n]*\n(?:#\[[^\n]*\n)*mod \w+ \{.*", re.MULTILINE | re.DOTALL
)
_ROW = re.compile(r"^\| `(\w+\.rs)` \| [^|]+ \| [^|]+ \|$", re.MULTILINE)


def _let_off(crate: str) -> list[str]:
    sources = with_suffix(".rs", under=f"crates/{crate}/src")
    return sorted(source.name for source in sources if _LET_OFF.search(text(source)))


@pytest.mark.parametrize("crate", CRATES)
def test_the_compiler_refuses_unsafe_code(crate: str) -> None:
    level = "deny" if _let_off(crate) else "forbid"
    assert f"\n#![{level}(unsafe_code)]\n" in text(Path("crates", crate, "src", "lib.rs"))


@pytest.mark.parametrize("crate", CRATES)
def test_each_file_that_is_let_off_is_argued(crate: str) -> None:
    readme = Path("crates", crate, "README.md")
    _, _, section = (text(readme) if (ROOT / readme).exists() else "").partition("\n## Unsafe code\n")
    assert sorted(_ROW.findall(section.split("\n## ")[0])) == _let_off(crate)


@pytest.mark.parametrize("crate", CRATES)
def test_only_tests_are_let_off_by_the_item(crate: str) -> None:
    for source in with_suffix(".rs", under=f"crates/{crate}/src"):
        assert not _ITEM_LET_OFF.search(_TESTS.sub("", text(source))), source


def test_the_law_knows_the_crates() -> None:
    assert {"base", "bus", "messaging", "pool"} <= set(CRATES)
    assert not {"os", "capi", "py-loop", "python"} & set(CRATES)
    assert any(map(_let_off, CRATES))
