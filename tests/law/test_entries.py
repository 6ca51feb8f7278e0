"""What guards the functions that the interpreter calls: none of ours can be without it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.law._tree import text, with_suffix

SOURCES = with_suffix(".rs", under="crates/python/src")
#: The routine that the unwinder calls, not the interpreter.
NO_ENTRIES = {Path("crates/python/src/forced_unwind.rs")}
#: A function with a body, after its attributes; not a type, nor a declaration in a block of foreign functions.
DEFINITION = re.compile(
    r'((?:^\s*#\[.*\]\n)*)^\s*(?:pub(?:\(\w+\))? )?(?:unsafe )?extern "C" fn (\$?\w+)', re.MULTILINE
)


def test_every_function_that_the_interpreter_calls_is_an_entry() -> None:
    found = [
        (str(source), name, attributes)
        for source in SOURCES
        if source not in NO_ENTRIES
        for attributes, name in DEFINITION.findall(text(source))
    ]
    assert len(found) > 100, "the law does not see the functions any more"
    assert not [(source, name) for source, name, attributes in found if "#[entry]" not in attributes]


def test_no_function_hides_under_another_calling_convention() -> None:
    other = re.compile(r'extern "(?!C")|extern fn')
    assert not [str(source) for source in SOURCES if other.search(text(source))]


def test_every_module_asks_for_the_unwinding_routine() -> None:
    # Those of the plain C API are made by `Definition::init`, which asks; those of pyo3 have to ask by themselves.
    for source in SOURCES:
        for body in re.findall(r"^#\[pymodule.*?^}", text(source), re.MULTILINE | re.DOTALL):
            assert "forced_unwind::check()?;" in body, source
        for body in re.findall(r"fn PyInit_\w+\(.*?^}", text(source), re.MULTILINE | re.DOTALL):
            assert "DEFINITION.init(" in body, source
    assert "forced_unwind::is_in_place()" in text(Path("crates/python/src/door.rs"))
