"""The run as Markdown, as JSON, and as the part of ``docs/foundation.md`` that holds figures."""

from __future__ import annotations

import math
import re
import textwrap
from typing import TYPE_CHECKING

from _report import ABSENT, FAILED, MISS, PASS, SHOWN, as_json, number, spread, tally, troubles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from _report import Figure, Section

__all__ = ["as_json", "markdown", "publish"]

HEADINGS = ("figure", "goal", "Ropewalk", "peer", "its value", "ratio", "")
VERDICTS = {PASS: "met", MISS: "**MISSED**", FAILED: "**FAILED**", ABSENT: "absent", SHOWN: ""}
BEGIN, END = "<!-- figures: written by make bench-foundation -->", "<!-- end of figures -->"


def _ratio(line: Figure, *, share: bool) -> str:
    if line.ratio is None or not math.isfinite(line.ratio):
        return ""
    if share:
        return f"{number(line.ratio)}× of it"
    if line.ratio == 1:
        return "equal"
    if 0 < line.ratio < 1:
        return f"{number(1 / line.ratio)}× worse"
    return f"{number(line.ratio)}× better"


def _cells(line: Figure) -> tuple[str, ...]:
    goal, share = "", bool(line.goal and line.goal.of == "ratio" and line.goal.sense == "at most")
    if line.goal:
        kind = " of it" if share else " better" if line.goal.of == "ratio" else ""
        goal = line.goal.text(line.unit).strip() + kind
    unit = f", {line.unit}" if line.unit else ""
    theirs = spread(line.theirs) if line.peer else ""
    return (
        line.what + unit,
        goal,
        spread(line.ours),
        line.peer,
        theirs,
        _ratio(line, share=share),
        VERDICTS[line.verdict],
    )


def _table(section: Section) -> list[str]:
    rows, above = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)], ""
    for cells in map(_cells, section.figures):
        rows.append("| " + " | ".join(("" if cells[0] == above else cells[0], *cells[1:])) + " |")
        above = cells[0]
    return rows


def markdown(surroundings: dict[str, str], sections: Sequence[Section]) -> str:
    """The whole run."""
    counts = tally(sections)
    lines = [
        textwrap.fill(
            f"{counts[PASS]} goals met, {counts[MISS]} missed; {counts[FAILED]} contenders failed, {counts[ABSENT]} "
            "lines want a peer that is not installed. Medians of the rounds, least and greatest in brackets. “2× "
            "better” is half the peer's value, or twice its gain; “0.9× of it” is Ropewalk's value over the peer's.",
            120,
        ),
        "",
        *(f"- {name}: {value}" for name, value in surroundings.items()),
    ]
    for section in sections:
        lines += ["", f"### {section.title}", "", textwrap.fill(section.includes, 120), "", *_table(section)]
        lines += ["", *(f"- {trouble}" for trouble in troubles(section))] if troubles(section) else []
    return "\n".join(lines) + "\n"


def publish(page: Path, table: str) -> None:
    """Replace what stands between the marks of a page.

    Raises:
        ValueError: The page has no such marks.
    """
    text = page.read_text(encoding="utf-8")
    marks = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not marks.search(text):
        raise ValueError(f"{page} has no place for figures")
    page.write_text(marks.sub(lambda _: f"{BEGIN}\n\n{table}\n{END}", text), encoding="utf-8")
