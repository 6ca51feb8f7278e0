"""The command that measures a suite: its rows, repetitions and report."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from harness.measure import Options, Outcome, interleave, surroundings
from harness.picture import draw
from harness.programs import compilers
from harness.report import as_json, markdown, publish, read_json, show, summary, tally
from harness.suites import is_called, rows_of
from harness.table import FAILED, MISS, PASS, Section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.table import Row


def _arguments(suite: str, rows: dict[str, Row], argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"benchmarks {suite}", description=f"Measure the {suite} suite against its peers."
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: does everything run?")
    parser.add_argument("--only", metavar="ROW[,ROW]", default=",".join(rows), help=f"of {', '.join(rows)}")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of every contest (5)")
    if "kill" in rows:
        parser.add_argument("--kills", type=int, metavar="N", help="workers killed in the kill row (200)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured, after each row")
    parser.add_argument(
        "--resume", action="store_true", help="take the rows that the JSON file holds from there, as measured"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    parser.add_argument(
        "--publish", type=Path, metavar="PAGE", help="put a line for each figure between the marks of a page"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw them, with matplotlib")
    arguments = parser.parse_args(argv)
    words = arguments.only.split(",")
    wrong = [word for word in words if not any(is_called(row, word) for row in rows.values())]
    if wrong:
        parser.error(f"no such row: {', '.join(wrong)}; there are {', '.join(rows)}")
    if arguments.resume and not arguments.json:
        parser.error("--resume needs --json: the file that holds the rows")
    if arguments.plot and find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install matplotlib")
    arguments.rows = [row for row in rows.values() if any(is_called(row, word) for word in words)]
    return arguments


def main(suite: str, argv: Sequence[str]) -> int:
    """Run the rows asked for, print their tables and write the files asked for.

    Returns 0 when everything ran, goals met or missed; 1 when a contestant that is installed failed.
    """
    rows = {row.name: row for row in rows_of(suite)}
    arguments = _arguments(suite, rows, argv)
    options = Options(
        quick=arguments.quick,
        rounds=arguments.rounds or (1 if arguments.quick else 5),
        kills=getattr(arguments, "kills", None) or (4 if arguments.quick else 200),
    )
    known, sections = surroundings(), list[Section]()
    if suite in ("messaging", "foundation"):
        known["compilers"] = compilers()
    if options.quick:
        known["note"] = "a smoke run of tiny sizes: its figures mean nothing"
    kept = dict[str, dict[str, Outcome]]()
    if arguments.resume and arguments.json.exists():
        kept, known = read_json(arguments.json.read_text(encoding="utf-8"))
    for name, value in known.items():
        print(f"{name}: {value}")
    began = time.monotonic() - float(known.get("took", "0").split()[0])
    for row in rows.values():
        if row not in arguments.rows and row.name not in kept:
            continue
        outcomes = kept.get(row.name, {})
        if outcomes.keys() != {case.label for case in row.cases()}:
            outcomes = interleave(row.cases(), options, partial(_report_progress, row.name))
        sections.append(Section(row.name, row.title, row.includes, row.figures(outcomes), outcomes))
        _progress("")
        show(sections[-1])
        known["took"] = f"{time.monotonic() - began:.0f} s"
        if arguments.json:
            arguments.json.write_text(as_json(known, sections), encoding="utf-8")
    if arguments.markdown:
        page = f"# A run of the {suite} suite\n\n{markdown(known, sections)}"
        arguments.markdown.write_text(page, encoding="utf-8")
    if arguments.publish:
        publish(arguments.publish, summary(known, sections))
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


def _report_progress(row: str, said: str) -> None:
    _progress(f"{row}: {said}")


def _progress(said: str) -> None:
    """One line of progress, overwritten by the next, where there is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{said}")
        sys.stderr.flush()
