"""Table: the machine code of results beside that of a hand-written match."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.assembly import pairs
from harness.measure import Outcome, Sample
from harness.table import Contest, Figure, Row, at_least

if TYPE_CHECKING:
    from collections.abc import Iterator


def instructions() -> dict[str, float]:
    """How many instructions each shape has, ours and by hand, and 1 for a pair without a difference."""
    figures: dict[str, float] = {}
    for pair in pairs():
        ours, hand = pair.counts()
        figures |= {f"{pair.name}, ours": ours, f"{pair.name}, hand": hand, f"{pair.name}, same": pair.same}
    return figures


SHAPES = Contest(instructions, rounds=1, timeout=600.0).by("shapes")


def _compared(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    outcome = outcomes[SHAPES.label]
    if outcome.failure:
        yield Figure("pairs of functions", "instructions", None, trouble=outcome.failure)
        return
    known = {metric: values[-1] for metric, values in outcome.values.items()}
    names = [metric.removesuffix(", ours") for metric in known if metric.endswith(", ours")]
    for name in names:
        differs = "" if known[f"{name}, same"] else " (differs)"
        ours, hand = (Sample((known[f"{name}, {side}"],)) for side in ("ours", "hand"))
        yield Figure(f"`{name}`{differs}", "instructions", ours, "`match` by hand", hand)
    alike = sum(known[f"{name}, same"] for name in names)
    cheap = sum(known[f"{name}, ours"] <= known[f"{name}, hand"] for name in names)
    yield Figure(f"of {len(names)} pairs, the same instructions", "", Sample((alike,)))
    goal = at_least(len(names))
    yield Figure(f"of {len(names)} pairs, no instruction more", "", Sample((float(cheap),)), goal=goal)


ROW = Row(
    "machine-code",
    "Results beside a hand-written match",
    "The release build's assembly of pairs of functions, compared line by line; labels are renumbered, "
    "nothing else is changed.",
    (),
    more=[SHAPES],
    also=_compared,
)
