"""The trials of `ropewalk doctor`: which packages an interpreter loads, whatever they do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ropewalk.cli import _compiled

needs_interpreters = pytest.mark.skipif(sys.version_info < (3, 13), reason="no `_interpreters` before 3.13")


@needs_interpreters
def test_each_trial_costs_nothing_but_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {
        "is_fine": "print('loads, refuses: whatever it prints')",
        "is_broken": "raise ImportError",
        "crashes": "import os; os.kill(os.getpid(), 11)",
        "leaves": "import os; os._exit(0)",
        "hangs": "import time; time.sleep(600)",
    }
    for name, code in modules.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # Interpreters start slowly on a machine that compiles beside this.
    monkeypatch.setattr(_compiled, "_EACH", 20.0)
    found = _compiled.try_all(list(modules), seconds=500)
    assert found == _compiled.Trials(
        loads=("is_fine",), refuses=(), crashes=("crashes", "leaves", "hangs"), untried=()
    )
    assert _compiled.try_all(["is_fine"], seconds=0).untried == ("is_fine",)


@needs_interpreters
def test_a_package_that_refuses_is_told_from_one_that_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    monkeypatch.setattr(_compiled, "_EACH", 200.0)
    assert "numpy" in _compiled.compiled_packages()
    found = _compiled.try_all(["numpy", "json"], seconds=500)
    assert (found.refuses, found.loads) == (("numpy",), ("json",))
