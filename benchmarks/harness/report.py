"""The results of a run: as tables on the terminal, as JSON and as Markdown."""

from __future__ import annotations

import importlib.util
import json
import re
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING

from harness.measure import Outcome
from harness.table import ABSENT, FAILED, FLOORS, MISS, PASS, SHOWN

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


def summary(surroundings: dict[str, str], sections: Sequence[Section], level: int = 3) -> str:
    """The run in Markdown for a page: a line for each figure, with its best peer, its other peers and its floor.

    A ratio says how many times better Ropewalk is; one below 1 is bold, and so is a goal that is not met.
    """
    lines = [
        "Medians of rounds, the least and the greatest in brackets; every contestant takes its turn in each round. A "
        "ratio above 1 says that Ropewalk is so many times better; ratios below 1 and goals not met are bold.",
        "",
        *(f"- {name}: {value}" for name, value in surroundings.items()),
    ]
    for section in sections:
        lines += ["", f"{'#' * level} {section.name}: {section.title}", ""]
        lines += [*textwrap.wrap(section.includes, 120), ""]
        lines += ["| " + " | ".join(SUMMARY) + " |", "|" + "---|" * len(SUMMARY)]
        for (what, unit), group in groupby(section.figures, lambda line: (line.what, line.unit)):
            lines.append("| " + " | ".join((what, unit, *_summed(list(group)))) + " |")
        lines += _left_out(section)
    return "\n".join(lines) + "\n"


SUMMARY = ("figure", "unit", "Ropewalk", "best peer", "ratio", "other peers", "floor", "goals")


def _summed(figures: list[Figure]) -> tuple[str, ...]:
    """The cells of one figure beside all its peers."""
    known = [line for line in figures if line.theirs is not None and line.ours is not None]
    peers = sorted((line for line in known if line.player not in FLOORS), key=_times_better)
    floors = [f"{number(_median(line))} {line.player}" for line in known if line.player in FLOORS]
    goals = dict[str, list[str]]()
    for line in figures:
        if line.goal and line.verdict in (PASS, MISS):
            whom = line.player if line.goal.of == "ratio" else ""
            said = f"{whom} (**missed**)".strip() if line.verdict == MISS else whom
            goals.setdefault(line.goal.text(line.unit), []).append(said)
    best, *others = peers or [None]
    ratio = "" if best is None else f"{number(_times_better(best))}×"
    return (
        spread(figures[0].ours),
        "" if best is None else f"{best.player} {spread(best.theirs)}",
        f"**{ratio}**" if best is not None and _times_better(best) < 1 else ratio,
        ", ".join(
            f"{line.player} {number(_median(line))} ({number(_times_better(line))}×)" for line in others
        ),
        ", ".join(floors),
        "; ".join(f"{bound} {', '.join(said)}".rstrip() for bound, said in goals.items()),
    )


def _median(line: Figure) -> float:
    """The peer's median."""
    assert line.theirs is not None
    return line.theirs.median


def _times_better(line: Figure) -> float:
    """How many times better Ropewalk is than the peer, whatever the goal says."""
    assert line.ours is not None
    ours, theirs = line.ours.median, _median(line)
    over, under = (ours, theirs) if line.more_is_better else (theirs, ours)
    return over / under if under > 0 else float("inf")


def _left_out(section: Section) -> list[str]:
    """Who is not in the table, and why, each reason once."""
    reasons = dict.fromkeys(
        line.trouble.removeprefix(f"{line.peer}: ") for line in section.figures if line.trouble
    )
    return ["", *(f"- {reason}" for reason in reasons)] if reasons else []


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


def read_json(text: str) -> tuple[dict[str, dict[str, Outcome]], dict[str, str]]:
    """What such JSON holds: each row's outcomes by their labels, and the surroundings."""
    run = json.loads(text)
    kept = {
        section["name"]: {label: Outcome(**outcome) for label, outcome in section["measured"].items()}
        for section in run["sections"]
    }
    return kept, run["surroundings"]
