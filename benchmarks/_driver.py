"""The command of a benchmark: which rows, how often, and where the report goes."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from _measure import Options, interleave, surroundings
from _picture import draw
from _report import FAILED, MISS, PASS, Section, as_json, markdown, show, tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _row import Row


def _arguments(about: str, rows: dict[str, Row], argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: does everything run?")
    parser.add_argument("--only", metavar="ROW[,ROW]", default=",".join(rows), help=f"of {', '.join(rows)}")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of every contest (5)")
    if "kill" in rows:
        parser.add_argument("--kills", type=int, metavar="N", help="workers killed in the kill row (200)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw them, with matplotlib")
    arguments = parser.parse_args(argv)
    wrong = [name for name in arguments.only.split(",") if name not in rows]
    if wrong:
        parser.error(f"no such row: {', '.join(wrong)}; there are {', '.join(rows)}")
    return arguments


def main(about: str, known_rows: Sequence[Row], argv: Sequence[str] | None = None) -> int:
    """Run the rows asked for, print their tables and write the files asked for."""
    rows = {row.name: row for row in known_rows}
    arguments = _arguments(about, rows, argv)
    options = Options(
        quick=arguments.quick,
        rounds=arguments.rounds or (1 if arguments.quick else 5),
        kills=getattr(arguments, "kills", None) or (4 if arguments.quick else 200),
    )
    known, began, sections = surroundings(), time.monotonic(), list[Section]()
    if options.quick:
        known["note"] = "a smoke run of tiny sizes: its figures mean nothing"
    for name, value in known.items():
        print(f"{name}: {value}")
    for name in arguments.only.split(","):
        row = rows[name]
        outcomes = interleave(row.cases(options), options.rounds, partial(_tell_of, name))
        sections.append(Section(row.name, row.title, row.includes, list(row.figures(outcomes)), outcomes))
        _tell("")
        show(sections[-1])
    known["took"] = f"{time.monotonic() - began:.0f} s"
    if arguments.json:
        arguments.json.write_text(as_json(known, sections), encoding="utf-8")
    if arguments.markdown:
        arguments.markdown.write_text(markdown(known, sections), encoding="utf-8")
    if arguments.plot:
        draw(sections, arguments.plot)
    counts = tally(sections)
    print(f"{counts[PASS]} goals met, {counts[MISS]} missed, {counts[FAILED]} failed to run; {known['took']}")
    failures = [
        (section.name, label, outcome.failure)
        for section in sections
        for label, outcome in section.outcomes.items()
        if outcome.failure and not outcome.failure.endswith("not installed")
    ]
    for name, label, failure in failures:
        print(f"failed: {name}, {label}: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _tell_of(row: str, said: str) -> None:
    _tell(f"{row}: {said}")


def _tell(said: str) -> None:
    """One line of progress, overwritten by the next, where there is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{said}")
        sys.stderr.flush()
