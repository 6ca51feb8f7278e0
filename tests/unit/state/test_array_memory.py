"""Arrays in states: the memory of versions that nobody has any more is that of the next ones."""
# ruff: noqa: F821, UP037  # The dimensions of arrays are no names of types.

from __future__ import annotations

import os
import resource
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from tests.unit.state._arrays import mapping_of  # noqa: E402

from ropewalk._errors import OutOfDescriptors  # noqa: E402
from ropewalk.state import Shm, Store, float64, task  # noqa: E402


@dataclass(frozen=True, slots=True)
class Grid:
    cells: Shm[float64, "n"]


@task
def fill(grid: Any, value: float) -> None:
    grid.cells[:] = value


def test_the_memory_of_old_versions_is_used_again() -> None:
    store = Store(Grid(np.zeros(1 << 18)), history=2)
    found: set[tuple[str, ...]] = set()
    for value in range(1, 13):
        store.run(fill, value)
        found.add(mapping_of(store.snapshot().cells)[:2])
        assert (store.snapshot().cells == value).all()
    assert len(found) <= 4


def test_the_memory_of_a_version_that_is_held_stays_as_it_is() -> None:
    store = Store(Grid(np.zeros(1 << 18)), history=1)
    held = []
    for value in range(1, 7):
        store.run(fill, value)
        if value % 2:
            held.append(store.snapshot().cells[5:])
    assert [set(cells.tolist()) for cells in held] == [{1.0}, {3.0}, {5.0}]


def test_a_forked_child_keeps_what_it_had() -> None:
    program = """\
        import os
        from dataclasses import dataclass

        import numpy as np

        from ropewalk.state import Shm, Store, float64, task


        @dataclass(frozen=True)
        class Grid:
            small: Shm[float64, "10"]
            large: Shm[float64, "200000"]


        @task
        def fill(grid, value):
            grid.small[:] = value
            grid.large[:] = value


        store = Store(Grid(np.zeros(10), np.zeros(200_000)), history=1)
        store.run(fill, 1)
        held = store.snapshot()
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(ready, 1)
            found = {*held.small.tolist(), *held.large.tolist()}
            store.run(fill, 100)
            os._exit(found != {1.0} or {*held.small.tolist(), *held.large.tolist()} != {1.0})
        del held
        for value in range(2, 30):
            store.run(fill, value)
        os.write(go, b"x")
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print({*store.snapshot().small.tolist(), *store.snapshot().large.tolist()})
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.stdout == "0\n{29.0}\n", done.stderr


def test_versions_of_large_arrays_take_few_descriptors() -> None:
    store = Store(Grid(np.zeros(1 << 18)), history=200)
    before = len(os.listdir("/proc/self/fd"))
    for value in range(150):
        store.run(fill, value)
    assert len(os.listdir("/proc/self/fd")) - before < 70
    assert [store.at(version).cells[0] for version in (1, 100, 150)] == [0, 99, 149]


def test_the_error_of_a_limit_names_the_history() -> None:
    store = Store(Grid(np.zeros(5 << 20)))
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, usual[1]))
    try:
        with pytest.raises(OutOfDescriptors) as raised:
            store.run(fill, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    assert any("history=10" in note for note in raised.value.__notes__)
    store.run(fill, 2)
    assert store.version == 1
