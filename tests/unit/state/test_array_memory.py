"""Arrays in states: the memory of versions that nobody has any more is that of the next ones."""
# ruff: noqa: F821, UP037  # The dimensions of arrays are no names of types.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from tests.unit.state._arrays import mapping_of  # noqa: E402

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
