"""Arrays whose declarations change, and arrays in zones: by records around them."""
# ruff: noqa: F821, UP037  # The dimensions of arrays are no names of types.

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

np = pytest.importorskip("numpy")

from ropewalk._errors import ContractViolation, StateError  # noqa: E402
from ropewalk.state import Const, Shm, Store, Transient, float32, float64, shape_of  # noqa: E402


@dataclass(frozen=True)
class First:
    weights: Shm[float32, "n"]


@dataclass(frozen=True)
class Second:
    weights: Shm[float32, "n"] | None
    wide: Shm[float64, "n"] | None = None


@dataclass(frozen=True)
class Third:
    wide: Shm[float64, "n"]


@dataclass(frozen=True)
class Fourth:
    weights: Shm[float64, "n"]
    __ropewalk_renamed__: ClassVar[dict[str, str]] = {"wide": "weights"}


for _kind in (First, Second, Third, Fourth):
    # One class, at four times.
    _kind.__name__ = _kind.__qualname__ = "Kept"


def test_the_type_of_an_array_changes_by_another_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.wal"

    def opened(state: Any) -> Store[Any]:
        monkeypatch.setitem(globals(), "Kept", type(state))
        return Store(state, journal=path)

    def widen(root: Any) -> None:
        root.wide = root.weights.astype(np.float64)
        root.weights = None

    with opened(First(np.arange(3, dtype=np.float32))) as store:
        store.run(lambda root: root.weights.__setitem__(0, 7))
    with opened(Second(None)) as store:
        store.run(widen)
        store.compact()
    with opened(Third(np.zeros(1))) as store:
        store.compact()
    with opened(Fourth(np.zeros(1))) as store:
        found = store.snapshot().weights
        assert (found.dtype, found.tolist()) == (np.float64, [7, 1, 2])


def test_an_array_has_one_declaration() -> None:
    for annotation in (
        Shm[float32, "n"] | Shm[float64, "n"],
        Const[Shm[float32, "n"]],
        Transient[Shm[float32, "n"]],
    ):
        kind = type("Wrong", (), {"__annotations__": {"a": annotation}})
        with pytest.raises(StateError, match="zone"):
            shape_of(dataclass(frozen=True)(kind))


@dataclass(frozen=True, slots=True)
class Table:
    cells: Shm[float64, "n"]


@dataclass(frozen=True, slots=True)
class Zones:
    fixed: Const[Table]
    passing: Transient[Table]


def test_a_record_around_an_array_has_the_zone(tmp_path: Path) -> None:
    path = tmp_path / "a.wal"
    state = Zones(Table(np.zeros(3)), Table(np.zeros(2)))
    with Store(state, journal=path) as store:
        with pytest.raises(ContractViolation, match="Const"):
            store.run(lambda z: z.fixed.cells.fill(1))
        store.run(lambda z: z.passing.cells.fill(1))
        assert store.snapshot().passing.cells.tolist() == [1, 1]
    with Store(state, journal=path) as store:
        assert store.snapshot().passing.cells.tolist() == [0, 0]
