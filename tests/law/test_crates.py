"""The layer law of the crates: a crate depends on lower layers only, and each external dependency has one crate."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from tests.law._tree import ROOT, text, with_suffix

#: The one crate that makes system calls.
OS_HOME = {"ropewalk-os"}
#: The one crate that has locks and swaps atomics for the model checker's.
SYNC_HOME = {"ropewalk-sync"}
#: The kit and the shared object; between them are the extension modules' crates, `py-*`.
PYTHON_HOME = {"ropewalk-capi", "ropewalk-python"}
#: Crates with a module that every interpreter may load stand on the plain C API; these have one that pyo3 confines to
#: the main interpreter.
MAIN_INTERPRETER = {
    "ropewalk-py-gateway",
    "ropewalk-py-journal",
    "ropewalk-py-pool",
    "ropewalk-py-zmq",
    "ropewalk-python",
}

PYTHON_CRATES = {"pyo3", "pyo3-ffi", "pyo3-build-config", "numpy"}
SYSTEM_CRATES = {"libc", "rustix", "nix", "linux-raw-sys", "syscalls"}
SYNC_CRATES = {"loom", "parking_lot", "spin", "crossbeam-utils", "event-listener"}


#: Every external dependency, and the crates that may have it. A crate that is new here may reach the system, start
#: threads or lock by itself: say which crate needs it, and look at what it does.
EXTERNAL = {
    "axum": {"gateway"},
    "base64": {"gateway"},
    "blake3": {"py-journal"},
    "buffa": {"gateway"},
    "buffa-codegen": {"gateway"},
    "bytes": {"gateway", "messaging", "os", "shm"},
    "connectrpc": {"gateway"},
    "connectrpc-build": {"gateway"},
    "connectrpc-health": {"gateway"},
    "connectrpc-reflection": {"gateway"},
    "crc32c": {"journal"},
    "crossbeam-deque": {"executor"},
    "foldhash": {"bus"},
    "futures": {"gateway"},
    "http": {"gateway"},
    "http-body-util": {"gateway"},
    "hyper": {"gateway"},
    "hyper-rustls": {"gateway"},
    "hyper-util": {"gateway"},
    "libc": {"os"},
    "libsodium-sys-stable": {"zmtp"},
    "loom": {"sync"},
    "memchr": {"py-pool"},
    "num-traits": {"gateway"},
    "opentelemetry": {"gateway"},
    "opentelemetry-http": {"gateway"},
    "opentelemetry-otlp": {"gateway"},
    "opentelemetry_sdk": {"gateway"},
    "prometheus-client": {"gateway"},
    "prost": {"gateway"},
    "protox": {"gateway"},
    "pyo3": {"py-gateway", "py-journal", "py-pool", "py-zmq", "python"},
    "pyo3-build-config": {"capi", "py-bus", "py-journal", "py-loop", "py-pool", "py-state", "py-zmq"},
    "pyo3-ffi": {"capi", "py-bus", "py-loop", "py-pool", "py-results", "py-state", "python"},
    "ring": {"gateway"},
    "rmcp": {"gateway"},
    "rustls-native-certs": {"gateway"},
    "rustls-webpki": {"gateway"},
    "serde": {"gateway"},
    "serde_json": {"gateway"},
    "tokio": {"gateway"},
    "tokio-rustls": {"gateway"},
    "tokio-util": {"gateway"},
    "tower": {"gateway"},
    "zeroize": {"zmtp"},
    "zmij": {"py-state"},
}
#: The same for dependencies of tests.
OF_TESTS = {
    "hyper-util": {"gateway"},
    "libc": {"executor", "shm"},
    "opentelemetry-proto": {"gateway"},
    "proptest": {"executor", "messaging", "pool", "reactor", "shm", "zmtp"},
    "prost": {"gateway"},
    "rcgen": {"gateway"},
    "tokio": {"gateway"},
}
#: Functions and statics that are declared rather than imported, of crates above `ropewalk-os`: the interpreter's that
#: the bindings lack, and the unwinder's. A declaration of the C library's would be a system call.
FOREIGN = {
    "crates/capi/src/forced_unwind.rs": {"rust_eh_personality", "IN_USE"},
    "crates/py-loop/src/compat.rs": {"PySys_Audit", "PyThread_get_thread_ident", "_PyObject_GC_New"},
    "crates/py-pool/src/parent/checks.rs": {"PyCell_Get", "_PyType_Lookup"},
    "crates/py-pool/src/parent/interrupts.rs": {"PyMethod_New"},
}
_COMMENT = re.compile(r"//[^\n]*")
_BLOCK = re.compile(r'\bextern(?:\s+r?#*"[^"]*"#*)?\s*\{(.*?)\}', re.DOTALL)
_DECLARED = re.compile(r"\b(?:fn|static(?:\s+mut)?)\s+(\w+)")
_ASSEMBLY = re.compile(r"\b(?:global_|naked_)?(asm)!")


def knows_python(name: str) -> bool:
    """Whether a crate may name the interpreter."""
    return name in PYTHON_HOME or name.startswith("ropewalk-py-")


@pytest.fixture(scope="module")
def crates() -> dict[str, dict[str, Any]]:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not on the PATH")
    done = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {package["name"]: package for package in json.loads(done.stdout)["packages"]}


def test_every_crate_has_a_layer(crates: dict[str, dict[str, Any]]) -> None:
    assert crates
    for name, package in crates.items():
        layer = ((package["metadata"] or {}).get("ropewalk") or {}).get("layer")
        assert isinstance(layer, int), f"{name}: no [package.metadata.ropewalk] layer"
        assert name == "ropewalk-" + package["manifest_path"].split("/")[-2]


def test_dependencies_run_downward(crates: dict[str, dict[str, Any]]) -> None:
    layers = {name: package["metadata"]["ropewalk"]["layer"] for name, package in crates.items()}
    wrong = [
        f"{name} (layer {layers[name]}) depends on {wanted['name']} (layer {layers[wanted['name']]})"
        for name, package in crates.items()
        for wanted in package["dependencies"]
        if wanted["name"] in layers and layers[wanted["name"]] >= layers[name]
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("power", "may"),
    [
        (PYTHON_CRATES, knows_python),
        ({"pyo3"}, MAIN_INTERPRETER.__contains__),
        (SYSTEM_CRATES, OS_HOME.__contains__),
        (SYNC_CRATES, SYNC_HOME.__contains__),
    ],
    ids=["python", "pyo3", "system calls", "locks"],
)
def test_one_home_for_each_outside_power(
    crates: dict[str, dict[str, Any]], power: set[str], may: Callable[[str], bool]
) -> None:
    users = {
        name
        for name, package in crates.items()
        for wanted in package["dependencies"]
        if wanted["name"] in power and wanted["kind"] != "dev"
    }
    assert users
    assert not [name for name in users if not may(name)]


def external(crates: dict[str, dict[str, Any]], *, dev: bool) -> dict[str, set[str]]:
    """The dependencies that are not crates of ours, each with the crates that have it."""
    found: dict[str, set[str]] = {}
    for name, package in crates.items():
        for wanted in package["dependencies"]:
            if wanted["name"] not in crates and (wanted["kind"] == "dev") == dev:
                found.setdefault(wanted["name"], set()).add(name.removeprefix("ropewalk-"))
    return found


def test_every_external_dependency_is_listed(crates: dict[str, dict[str, Any]]) -> None:
    assert external(crates, dev=False) == EXTERNAL
    assert external(crates, dev=True) == OF_TESTS


def test_a_new_dependency_is_found() -> None:
    wanted = [
        {"name": "socket2", "kind": None},
        {"name": "cc", "kind": "build"},
        {"name": "ropewalk-os", "kind": None},
    ]
    planted = {"ropewalk-messaging": {"dependencies": wanted}, "ropewalk-os": {"dependencies": []}}
    assert external(planted, dev=False) == {"socket2": {"messaging"}, "cc": {"messaging"}}


def foreign(code: str) -> set[str]:
    """What a file declares of other libraries, and whether it has machine code of its own."""
    code = _COMMENT.sub("", code)
    declared = {name for block in _BLOCK.findall(code) for name in _DECLARED.findall(block) or ["nothing"]}
    return declared | set(_ASSEMBLY.findall(code))


def test_only_the_os_crate_reaches_the_system() -> None:
    declared = {
        str(source): names
        for source in with_suffix(".rs", under="crates")
        if source.parts[2] == "src" and source.parts[1] != "os" and (names := foreign(text(source)))
    }
    assert declared == FOREIGN


@pytest.mark.parametrize(
    "code",
    [
        'unsafe extern "C" { fn getpid() -> i32; }',
        "extern { pub fn close(fd: i32) -> i32; }",
        'unsafe extern "C" {\n    static mut environ: *const u8;\n}',
        'unsafe extern "system" {\n    // Its number.\n    safe fn getpid() -> i32;\n}',
        'unsafe { std::arch::asm!("syscall") }',
    ],
)
def test_a_call_of_the_system_is_found(code: str) -> None:
    assert foreign(code)
    assert not foreign('unsafe extern "C" fn ours() { fn inner() {} }\nextern crate std;')


def test_every_crate_takes_the_workspace_lints() -> None:
    for manifest in with_suffix(".toml", under="crates"):
        if manifest.name == "Cargo.toml" and "fuzz" not in manifest.parts:
            assert re.search(r"^\[lints\]\nworkspace = true$", text(manifest), re.MULTILINE), manifest


def test_python_is_not_named_below_its_crates() -> None:
    named = re.compile(r"\b(pyo3|pyo3_ffi|PyObject|Python<)")
    wrong = [
        str(source)
        for source in with_suffix(".rs", under="crates")
        if not knows_python(f"ropewalk-{source.parts[1]}") and named.search(text(source))
    ]
    assert not wrong
