"""What a run found: figures with their goals, judged, as a table, as JSON and as Markdown."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from _measure import Outcome, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PASS, MISS, FAILED, ABSENT, SHOWN = "pass", "MISS", "FAILED", "absent", "–"


@dataclass(frozen=True)
class Goal:
    """A bound on the value itself, or on how many times better it is than the peer's."""

    of: Literal["value", "ratio"]
    sense: Literal["at most", "at least"]
    bound: float

    def met(self, number: float) -> bool:
        """Whether a number is within the bound."""
        return number <= self.bound if self.sense == "at most" else number >= self.bound

    def text(self, unit: str) -> str:
        """The goal as the table prints it."""
        sign = "≤" if self.sense == "at most" else "≥"
        return f"{sign} {self.bound:g}{'×' if self.of == 'ratio' else ' ' + unit}"


def at_most(bound: float) -> Goal:
    """The value may be so large and no larger."""
    return Goal("value", "at most", bound)


def at_least(bound: float) -> Goal:
    """The value must be so large."""
    return Goal("value", "at least", bound)


def times_better(bound: float) -> Goal:
    """At least so many times better than the peer."""
    return Goal("ratio", "at least", bound)


def times_the_peer(bound: float) -> Goal:
    """At most so many times what the peer takes."""
    return Goal("ratio", "at most", bound)


@dataclass(frozen=True)
class Figure:
    """One line of the report: one measured thing, beside one peer or alone."""

    what: str
    unit: str
    ours: Sample | None
    peer: str = ""
    theirs: Sample | None = None
    more_is_better: bool = False
    goal: Goal | None = None
    trouble: str = ""
    """Why there is no value on one of the sides."""

    @property
    def ratio(self) -> float | None:
        """How many times better than the peer; under a goal "at most", how many times the peer's."""
        if self.ours is None or self.theirs is None:
            return None
        over, under = self.theirs.median, self.ours.median
        if self.more_is_better or (self.goal and self.goal.of == "ratio" and self.goal.sense == "at most"):
            over, under = under, over
        return over / under if under > 0 else float("inf")

    @property
    def verdict(self) -> str:
        """Pass, miss, failed to run, not installed, or merely shown where there is no goal."""
        if self.ours is None or (self.peer and self.theirs is None):
            return ABSENT if self.trouble.endswith("not installed") else FAILED
        if self.goal is None:
            return SHOWN
        number = self.ratio if self.goal.of == "ratio" else self.ours.median
        return PASS if number is not None and self.goal.met(number) else MISS


@dataclass(frozen=True)
class Section:
    """One row of the goals' table: its figures and what is in its times."""

    name: str
    title: str
    includes: str
    figures: Sequence[Figure]
    outcomes: dict[str, Outcome] = field(default_factory=dict)


def figure(
    outcomes: dict[str, Outcome],
    what: str,
    unit: str,
    ours: tuple[str, str],
    theirs: tuple[str, str] | None = None,
    *,
    scale: float = 1.0,
    goal: Goal | None = None,
    more_is_better: bool = False,
) -> Figure:
    """A figure from the outcomes: ``ours`` and ``theirs`` are (case's label, metric)."""
    sides: list[Sample | None] = []
    troubles: list[str] = []
    for side in (ours, theirs):
        outcome = outcomes[side[0]] if side else None
        sample = outcome.sample(side[1]) if outcome and side else None
        sides.append(Sample(tuple(value * scale for value in sample.values)) if sample else None)
        if outcome and side and (outcome.failure or sample is None):
            troubles.append(f"{side[0]}: {outcome.failure or 'no such metric'}")
    return Figure(
        what, unit, sides[0], theirs[0] if theirs else "", sides[1], more_is_better, goal, "; ".join(troubles)
    )


def number(value: float) -> str:
    """A value with about three figures, thousands set apart."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def spread(sample: Sample | None) -> str:
    """Median [least–greatest]."""
    if sample is None:
        return "–"
    if len(sample.values) == 1:
        return number(sample.median)
    return f"{number(sample.median)} [{number(sample.least)}–{number(sample.greatest)}]"


def _cells(line: Figure) -> tuple[str, ...]:
    ratio = line.ratio
    return (
        line.what,
        line.unit,
        line.goal.text(line.unit) if line.goal else "",
        spread(line.ours),
        line.peer,
        spread(line.theirs) if line.peer else "",
        "" if ratio is None else f"{number(ratio)}×",
        line.verdict,
    )


def _rows(section: Section) -> list[tuple[str, ...]]:
    """The cells of a section; what stands as in the line above is left out."""
    rows, above = list[tuple[str, ...]](), ("",) * len(HEADINGS)
    for cells in map(_cells, section.figures):
        same = cells[:2] == above[:2]
        rows.append((("", "") if same else cells[:2]) + cells[2:])
        above = cells
    return rows


HEADINGS = ("figure", "unit", "goal", "ropewalk", "peer", "its value", "ratio", "verdict")


def tally(sections: Iterable[Section]) -> dict[str, int]:
    """How many figures passed, missed, failed to run, or had no goal."""
    counts = dict.fromkeys((PASS, MISS, FAILED, ABSENT, SHOWN), 0)
    for section in sections:
        for line in section.figures:
            counts[line.verdict] += 1
    return counts


def troubles(section: Section) -> list[str]:
    """Who failed to run in this section, or is not installed, and why."""
    return [f"{label}: {outcome.failure}" for label, outcome in section.outcomes.items() if outcome.failure]


def show(section: Section) -> None:
    """Print one section as a table on the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console.width = 180
    table = Table(title=f"{section.name}: {section.title}", caption=section.includes, title_justify="left")
    for heading in HEADINGS:
        table.add_column(
            heading, justify="right" if heading in ("ropewalk", "its value", "ratio") else "left"
        )
    colours = {PASS: "green", MISS: "bold red", FAILED: "bold red", ABSENT: "dim", SHOWN: "dim"}
    for *cells, verdict in _rows(section):
        table.add_row(*map(Text, cells), Text(verdict, style=colours[verdict]))
    console.print(table)
    for trouble in troubles(section):
        console.print(Text(f"  {trouble}", style="red"))


def markdown(surroundings: dict[str, str], sections: Sequence[Section]) -> str:
    """The whole run as a Markdown document."""
    counts = tally(sections)
    lines = [
        "# A benchmark run",
        "",
        "Medians of rounds, least and greatest in brackets; peers in turn with Ropewalk in the same run.",
        f"{counts[PASS]} goals met, {counts[MISS]} missed, {counts[FAILED]} failed to run.",
        "",
        *(f"- {name}: {value}" for name, value in surroundings.items()),
    ]
    for section in sections:
        lines += ["", f"## {section.name}: {section.title}", "", section.includes, ""]
        lines += ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
        lines += ["| " + " | ".join(cells) + " |" for cells in _rows(section)]
        lines += ["", *(f"- {trouble}" for trouble in troubles(section))] if troubles(section) else []
    return "\n".join(lines) + "\n"


def as_json(surroundings: dict[str, str], sections: Sequence[Section]) -> str:
    """The whole run as JSON, every round's values with it."""
    return json.dumps(
        {
            "surroundings": surroundings,
            "tally": tally(sections),
            "sections": [
                {
                    "name": section.name,
                    "title": section.title,
                    "includes": section.includes,
                    "figures": [
                        {
                            "what": line.what,
                            "unit": line.unit,
                            "goal": line.goal.text(line.unit) if line.goal else None,
                            "ropewalk": line.ours.median if line.ours else None,
                            "ropewalk_rounds": line.ours.values if line.ours else None,
                            "peer": line.peer or None,
                            "peer_value": line.theirs.median if line.theirs else None,
                            "peer_rounds": line.theirs.values if line.theirs else None,
                            "ratio": line.ratio,
                            "verdict": line.verdict,
                            "trouble": line.trouble or None,
                        }
                        for line in section.figures
                    ],
                    "measured": {
                        label: {"values": outcome.values, "failure": outcome.failure}
                        for label, outcome in section.outcomes.items()
                    },
                }
                for section in sections
            ],
        },
        indent=1,
    )
