"""The results of a run: as tables on the terminal, as JSON and as Markdown."""

from __future__ import annotations

import importlib.util
import json
import re
import textwrap
from typing import TYPE_CHECKING

from harness.table import ABSENT, FAILED, MISS, PASS, SHOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from harness.measure import Sample
    from harness.table import Figure, Section


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
    """Print one section as a table on the terminal; as Markdown, where `rich` is not installed."""
    if importlib.util.find_spec("rich") is None:
        print("\n".join(_table(section, 2)))
        return
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


def markdown(surroundings: dict[str, str], sections: Sequence[Section], level: int = 2) -> str:
    """The whole run in Markdown, each table under a heading of this level."""
    counts = tally(sections)
    lines = [
        "Medians of rounds, least and greatest in brackets; peers in turn with Ropewalk in the same run.",
        f"{counts[PASS]} goals met, {counts[MISS]} missed, {counts[FAILED]} failed to run.",
        "",
        *(f"- {name}: {value}" for name, value in surroundings.items()),
    ]
    for section in sections:
        lines += _table(section, level)
    return "\n".join(lines) + "\n"


def _table(section: Section, level: int) -> list[str]:
    """A table in Markdown, under a heading of this level."""
    lines = ["", f"{'#' * level} {section.name}: {section.title}", ""]
    lines += [*textwrap.wrap(section.includes, 120), ""]
    lines += ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(cells) + " |" for cells in _rows(section)]
    return lines + (["", *(f"- {trouble}" for trouble in troubles(section))] if troubles(section) else [])


def publish(page: Path, tables: str) -> None:
    """Replace what stands between the marks of a page, ``<!-- figures: … -->`` and ``<!-- end of figures -->``.

    Raises:
        ValueError: The page has no such marks.
    """
    text = page.read_text(encoding="utf-8")
    marks = re.compile(r"(<!-- figures: [^>]* -->).*?(<!-- end of figures -->)", re.DOTALL)
    if not marks.search(text):
        raise ValueError(f"{page} has no place for figures")
    page.write_text(marks.sub(lambda found: f"{found[1]}\n\n{tables}\n{found[2]}", text), encoding="utf-8")


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
