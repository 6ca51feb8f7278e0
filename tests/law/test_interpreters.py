"""Which interpreters load an extension module stands in ARCHITECTURE.md; here each is loaded in one of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.law._tree import text, with_suffix

_SECTION = text(Path("ARCHITECTURE.md")).split("\n## Interpreters\n")[1].split("\n## ")[0]
_ROWS = re.findall(
    r"^\| ((?:`_\w+`(?:, )?)+) \| (the plain C API|pyo3)\b.*\| (.*) \|$", _SECTION, re.MULTILINE
)
_MODULES = {style: re.findall(r"`_(\w+)`", names) for names, style, _ in _ROWS}
EVERYWHERE, MAIN_ONLY = _MODULES["the plain C API"], _MODULES["pyo3"]

#: What is done with a module where it loads: little, but with objects of each kind.
USES = {
    "worker": "import ropewalk.shared as shared; assert bytes(shared.buffer(3)) == bytes(3)",
    "bus": "import ropewalk; bus = ropewalk.Bus(); inbox = bus.subscribe('a.*'); bus.publish('a.b', 7); "
    "assert inbox.recv(timeout=10) == 7",
    "results": "from ropewalk.result import Err, Ok; assert Ok(2).map(str).unwrap() == '2' and Err(1).is_err()",
    "loop": "import asyncio, ropewalk; loop = ropewalk.Loop(); "
    "assert loop.run_until_complete(asyncio.sleep(0, 5)) == 5; loop.close()",
}
_PROGRAM = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
run = getattr(interpreters, "exec", None) or interpreters.run_string
own, used = sys.argv[1:]
exec(own)
made = [interpreters.create(), interpreters.create()]
for interpreter in made:
    failed = run(interpreter, used)  # Before 3.13 it raises.
    assert failed is None, failed
exec(own)
for interpreter in made:
    interpreters.destroy(interpreter)
exec(own)
"""


def _run(own: str, used: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, own, used], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def test_the_table_has_every_extension_module() -> None:
    stubs = {path.stem for path in with_suffix(".pyi", under="python/ropewalk") if path.stem.startswith("_")}
    assert sorted(EVERYWHERE + MAIN_ONLY) == sorted(stub.removeprefix("_") for stub in stubs)
    assert sorted(EVERYWHERE) == sorted(USES)


@pytest.mark.parametrize("name", EVERYWHERE)
def test_every_interpreter_loads_what_is_written_in_the_plain_c_api(name: str) -> None:
    use = f"from ropewalk._load import {name}; {USES[name]}"
    _run(use, use)


@pytest.mark.parametrize("name", MAIN_ONLY)
def test_only_the_main_interpreter_loads_what_is_written_with_pyo3(name: str) -> None:
    load = "import ropewalk._core" if name == "core" else f"from ropewalk._load import {name}"
    refused = f"""
try:
    {load}
except ImportError as error:
    assert "subinterpreter" in str(error), error
else:
    raise AssertionError("it loads")
"""
    _run(load, refused)
    _run("", refused)
