"""The types of the items of arrays, for `Shm[float32, "n 256"]`.

To a type checker each name stands for an array of NumPy with such items, and not for one item, so that the annotation
`Shm[float32, "n 256"]` means an array. NumPy itself is not imported.
"""
# ruff: noqa: PYI042  # The names are NumPy's.

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias


@dataclass(frozen=True, slots=True)
class Dtype:
    """The type of the items of an array, by NumPy's name for it."""

    name: str

    def __repr__(self) -> str:
        return self.name


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    bool_: TypeAlias = NDArray[np.bool_]
    complex64: TypeAlias = NDArray[np.complex64]
    complex128: TypeAlias = NDArray[np.complex128]
    float16: TypeAlias = NDArray[np.float16]
    float32: TypeAlias = NDArray[np.float32]
    float64: TypeAlias = NDArray[np.float64]
    int8: TypeAlias = NDArray[np.int8]
    int16: TypeAlias = NDArray[np.int16]
    int32: TypeAlias = NDArray[np.int32]
    int64: TypeAlias = NDArray[np.int64]
    uint8: TypeAlias = NDArray[np.uint8]
    uint16: TypeAlias = NDArray[np.uint16]
    uint32: TypeAlias = NDArray[np.uint32]
    uint64: TypeAlias = NDArray[np.uint64]
else:
    bool_ = Dtype("bool_")
    complex64 = Dtype("complex64")
    complex128 = Dtype("complex128")
    float16 = Dtype("float16")
    float32 = Dtype("float32")
    float64 = Dtype("float64")
    int8 = Dtype("int8")
    int16 = Dtype("int16")
    int32 = Dtype("int32")
    int64 = Dtype("int64")
    uint8 = Dtype("uint8")
    uint16 = Dtype("uint16")
    uint32 = Dtype("uint32")
    uint64 = Dtype("uint64")
