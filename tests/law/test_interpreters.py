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
    "state": "from ropewalk.state import PMap; assert PMap(a=1).set('b', 2)['b'] == 2",
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


#: The statics of the crates that every interpreter of a process shares, and why none keeps a Python object.
STATICS = {
    "crates/capi/src/forced_unwind.rs": {"IN_USE": "a function", "ROPEWALK_PERSONALITY": "a function"},
    "crates/capi/src/nest.rs": {"OUTERMOST": "an address on the thread's stack"},
    "crates/capi/src/running_loop.rs": {
        "RUNNING": "an address of the thread's, which is only compared",
        "IS_IDLE": "a function of the loop's",
    },
    "crates/py-bus/src/deliver.rs": {"DEPTH": "a number"},
    "crates/py-bus/src/types.rs": {"MODULE": "a definition; the state is in each interpreter's module"},
    "crates/py-loop/src/loop_module.rs": {"MODULE": "a definition"},
    "crates/py-loop/src/reports.rs": {"REPORTER": "texts and numbers, for the listeners of this process"},
    "crates/py-pool/src/current.rs": {
        "LANE": "words of shared memory",
        "LOCAL": "the thread's, empty but during a call of the interpreter that the thread belongs to",
    },
    "crates/py-pool/src/seats.rs": {"TAKEN": "lanes and numbers of workers that are threads of this process"},
    "crates/py-pool/src/pickle.rs": {
        "BUFFERS": "the thread's, empty outside of an encoding",
        "OTHERS": "a number",
    },
    "crates/py-pool/src/worker/calling.rs": {"WAITS": "the thread's, a truth value"},
    "crates/py-pool/src/worker/ending.rs": {"FOUND": "a function of the interpreter's library"},
    "crates/py-pool/src/worker/indexing.rs": {"SUBSCRIPT": "a function of NumPy's static type"},
    "crates/py-pool/src/worker/leases.rs": {"WATCH": "numbers", "RELEASES": "a number"},
    "crates/py-pool/src/worker/link.rs": {
        "OF_PROCESS": "the process's channel",
        "SEATED": "the thread's channel, which is numbers and shared memory",
    },
    "crates/py-pool/src/worker/mod.rs": {"MODULE": "a definition"},
    "crates/py-pool/src/worker/serve.rs": {
        "LOADING": "a switch of the thread's",
        "ATTACHED": "numbers",
        "CHANGES": "a number",
    },
    "crates/py-pool/src/worker/sessions.rs": {"CURRENT": "the thread's, null outside of a task"},
    "crates/py-results/src/lib.rs": {"MODULE": "a definition"},
    "crates/py-state/src/json/encoder.rs": {"LENGTH": "a number"},
    "crates/py-state/src/store/claiming.rs": {"PATIENCE": "a time"},
    "crates/py-state/src/draft/scope.rs": {"HERE": "a byte of the thread's, for its address"},
    "crates/py-state/src/types.rs": {"MODULE": "a definition"},
    "crates/py-state/src/node.rs": {"NEXT": "a number"},
}
_PLAIN = ("capi", "py-bus", "py-loop", "py-results", "py-pool", "py-state")
_COMMENT = re.compile(r"//[^\n]*")
_STATIC = re.compile(r"(?<!')\bstatic\s+(?:mut\s+|ref\s+)?(\w+)\s*:")


def statics(code: str) -> list[str]:
    """The names of a file's statics, of the process or of a thread."""
    return _STATIC.findall(_COMMENT.sub("", code))


def test_no_static_of_the_plain_c_api_modules_keeps_an_object() -> None:
    found = {
        str(source): names
        for crate in _PLAIN
        for source in with_suffix(".rs", under=f"crates/{crate}/src")
        # The parent's half is pyo3's.
        if not source.is_relative_to("crates/py-pool/src/parent") and (names := statics(text(source)))
    }
    assert found == {source: list(names) for source, names in STATICS.items()}


@pytest.mark.parametrize(
    "code",
    [
        "static BUS: AtomicPtr<PyObject> = AtomicPtr::new(ptr::null_mut());",
        "pub(crate) static mut BUS: usize = 0;",
        "fn f() { static ONCE: OnceLock<&'static Object> = OnceLock::new(); }",
        "thread_local!(static MINE: Cell<*mut c_void> = const { Cell::new(ptr::null_mut()) });",
    ],
)
def test_a_static_is_found(code: str) -> None:
    assert len(statics(code)) == 1
    assert not statics("fn f<T: 'static>(name: &'static str, a: &'static [u8]) {} // static A: u8")


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
