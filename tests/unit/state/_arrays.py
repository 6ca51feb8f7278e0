# ruff: noqa: F722, F821, UP037  # The dimensions of arrays are no names of types.
"""States with arrays, and tasks on them; workers import this module. It needs NumPy."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.state import Const, Counter, PMap, PVector, Shm, Store, float32, float64, int64, paths, task


@dataclass(frozen=True, slots=True)
class Model:
    """Weights with a bias for each row."""

    weights: Shm[float32, "n 256"]
    bias: Shm[float32, "n"]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Fixed:
    scale: Shm[float64, "3"]


@dataclass(frozen=True, slots=True)
class Zoo:
    """Arrays at every kind of place."""

    model: Model
    models: PMap[str, Model]
    rows: PMap[str, Shm[int64, "k"]]
    list: PVector[Shm[float64, "_"]]
    fixed: Const[Fixed]
    maybe: Shm[float64, "m"] | None
    hits: Counter


P = paths(Zoo)


def model(rows: int = 8, value: float = 1) -> Model:
    return Model(np.full((rows, 256), value, np.float32), np.zeros(rows, np.float32))


def zoo(rows: int = 8) -> Zoo:
    return Zoo(
        model(rows),
        PMap(a=model(2), b=model(3)),
        PMap(x=np.arange(4), y=np.arange(4, 8)),
        PVector([np.zeros(2), np.ones(3)]),
        Fixed(np.ones(3)),
        None,
        0,
    )


def mapping_of(array: Any) -> tuple[str, ...]:
    """The device and the inode of the memory that an array lies in, and where in it the array begins."""
    start = np.asarray(array).__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, _, offset, device, inode, *_ = line.split()
        first, last = (int(bound, 16) for bound in bounds.split("-"))
        if first <= start < last:
            return device, inode, hex(int(offset, 16) + start - first)
    raise AssertionError("the array is nowhere")


@task(reads=[P.model])
def where(z: Any) -> tuple[int, tuple[str, ...], bool]:
    """Where the weights are to the task, and whether it can make them writable."""
    array = np.asarray(z.model.weights)
    try:
        array.flags.writeable = True
    except ValueError:
        return os.getpid(), mapping_of(array), False
    return os.getpid(), mapping_of(array), True


@task(writes=[P.model])
def scale(z: Any, row: int, factor: float) -> tuple[int, float]:
    z.model.weights[row] *= factor
    return os.getpid(), float(z.model.weights[row].sum())


@task(writes=[P.models])
def add_model(z: Any, name: str, rows: int) -> None:
    z.models[name] = model(rows, 7)


@task(reads=[P.hits], writes=[P.maybe])
def sneaky(z: Any) -> None:
    z.model.weights[0] = 0


@task(reads=[P.model])
def reads_only(z: Any) -> float:
    total = float(z.model.weights.sum())
    z.model.weights[0] = 0
    return total


@task(reads=[P.fixed])
def writes_const(z: Any) -> float:
    total = float(z.fixed.scale.sum())
    z.fixed.scale[0] = 0
    return total


@dataclass(frozen=True, slots=True)
class One:
    """One array of any length."""

    items: Shm[float64, "n"]
    other: int = 0


def one(size: int = 6) -> Store[One]:
    return Store(One(np.arange(float(size))))


@task
def assign(root: Any, value: Any) -> None:
    root.items = value
