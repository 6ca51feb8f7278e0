"""Stand-ins for the compiled maps, vectors and rules, until the extension module has them."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from ropewalk._load import state

K = TypeVar("K")
V = TypeVar("V")


class PMap(dict[K, V], Generic[K, V]):
    pass


class PVector(tuple[V, ...], Generic[V]):
    pass


class Rule:
    def __init__(
        self, reads: bool, writes: bool, zone: int, record: type | None, names: tuple[str, ...]
    ) -> None:
        self.made = (reads, writes, zone, record, names)
        self.linked: Any = None

    def link(self, fields: tuple[Any, ...] | None, items: Any) -> None:
        self.linked = (fields, items)


native: Any = state
#: Other processes have no stand-ins.
STANDING_IN = not hasattr(native, "PMap")
if not hasattr(native, "PMap"):
    native.PMap = PMap
    native.PVector = PVector
if not hasattr(native, "Rule"):
    native.Rule = Rule
