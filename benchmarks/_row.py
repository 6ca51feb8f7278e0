"""The shape that every row of the benchmark has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from _measure import Case, Options, Outcome
    from _report import Figure


@dataclass(frozen=True)
class Row:
    """One row of the goals: what is played, and how its figures are made from what was measured."""

    name: str
    title: str
    includes: str
    """What is in the times and what is not."""
    cases: Callable[[Options], Sequence[Case]]
    figures: Callable[[dict[str, Outcome]], Iterable[Figure]]
