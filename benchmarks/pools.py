#!/usr/bin/env python3
"""Pools measured against their peers, every figure beside its goal.

    python benchmarks/pools.py [--quick] [--only ROW[,ROW]] [--rounds N] [--json FILE] [--markdown FILE]

The exit status is 0 when everything ran, goals met or missed; 1 when a contestant that is installed failed;
2 for a wrong command line. See README.md beside this file for what is measured and how.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import _rows_arrays
import _rows_demo
import _rows_faults
import _rows_start
import _rows_tasks
from _measure import Options, interleave, surroundings
from _report import FAILED, MISS, PASS, Section, as_json, markdown, show, tally

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS = {
    row.name: row
    for row in (
        _rows_start.START,
        _rows_start.MEMORY,
        _rows_tasks.ROUNDTRIP,
        _rows_tasks.WINDOWED,
        _rows_tasks.MAP,
        _rows_arrays.ARRAY,
        _rows_arrays.KERNEL,
        _rows_faults.KILL,
        _rows_faults.CANCEL,
        _rows_demo.DEMO,
    )
}


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Windlass's pools against their peers.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: does everything run?")
    parser.add_argument("--only", metavar="ROW[,ROW]", default=",".join(ROWS), help=f"of {', '.join(ROWS)}")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of every contest (5)")
    parser.add_argument("--kills", type=int, metavar="N", help="workers killed in the kill row (200)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    arguments = parser.parse_args(argv)
    wrong = [name for name in arguments.only.split(",") if name not in ROWS]
    if wrong:
        parser.error(f"no such row: {', '.join(wrong)}; there are {', '.join(ROWS)}")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rows asked for, print their tables and write the files asked for."""
    arguments = _arguments(argv)
    options = Options(
        quick=arguments.quick,
        rounds=arguments.rounds or (1 if arguments.quick else 5),
        kills=arguments.kills or (4 if arguments.quick else 200),
    )
    known, began, sections = surroundings(), time.monotonic(), list[Section]()
    if options.quick:
        known["note"] = "a smoke run of tiny sizes: its figures mean nothing"
    for name, value in known.items():
        print(f"{name}: {value}")
    for name in arguments.only.split(","):
        row = ROWS[name]
        outcomes = interleave(row.cases(options), options.rounds, partial(_tell_of, name))
        sections.append(Section(row.name, row.title, row.includes, list(row.figures(outcomes)), outcomes))
        _tell("")
        show(sections[-1])
    known["took"] = f"{time.monotonic() - began:.0f} s"
    if arguments.json:
        arguments.json.write_text(as_json(known, sections), encoding="utf-8")
    if arguments.markdown:
        arguments.markdown.write_text(markdown(known, sections), encoding="utf-8")
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


if __name__ == "__main__":
    sys.exit(main())
