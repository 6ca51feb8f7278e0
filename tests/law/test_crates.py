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
MAIN_INTERPRETER = {"ropewalk-py-pool", "ropewalk-py-zmq", "ropewalk-python"}

PYTHON_CRATES = {"pyo3", "pyo3-ffi", "pyo3-build-config", "numpy"}
SYSTEM_CRATES = {"libc", "rustix", "nix", "linux-raw-sys", "syscalls"}
SYNC_CRATES = {"loom", "parking_lot", "spin", "crossbeam-utils", "event-listener"}


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
