"""Stand-ins for the maps and vectors, until the extension module has them."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from ropewalk._load import state

K = TypeVar("K")
V = TypeVar("V")


class PMap(dict[K, V], Generic[K, V]):
    pass


class PVector(tuple[V, ...], Generic[V]):
    pass


native: Any = state
if not hasattr(native, "PMap"):
    native.PMap = PMap
    native.PVector = PVector
