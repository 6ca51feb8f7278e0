"""Stores on a disk that loses power, tears and reorders writes, fills up, fails, and lies; from seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults import disk

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the library goes before the C library of Linux"),
    pytest.mark.skipif(disk.compiler() is None, reason="no compiler for the library here"),
]

_SEEDS = int(os.environ.get("ROPEWALK_SEEDS", "12"))


def test_what_was_acknowledged_is_there_after_every_crash(tmp_path: Path) -> None:
    library = disk.build(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.store_on_disk", str(library), "0", str(_SEEDS)],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Crashes in each life, and in each step of some.
    assert int(done.stdout) > 30 * _SEEDS
