"""A store with one array of ten megabytes, for the rows that change it."""
# ruff: noqa: F722  # The dimensions of an array are no names of types.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ropewalk.state import Draft, Shm, Store, float64, paths, task

#: Rows of the array, each of which has a thousand items: ten megabytes.
ROWS = 1250
COLUMNS = 1000


@dataclass(frozen=True, slots=True)
class Model:
    """One array."""

    weights: Shm[float64, "n 1000"]


P = paths(Model)


@task(writes=[P.weights])
def write_row(model: Draft[Model], row: int, value: float) -> None:
    """Gives the items of a row one value."""
    model.weights[row] = value


def zeros() -> Any:
    """The array at the beginning."""
    return np.zeros((ROWS, COLUMNS))


def model(history: int) -> Store[Model]:
    """The store; old versions keep their arrays."""
    return Store(Model(zeros()), history=history)
