"""The table at the end of a run: a line for each suite."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tests.foreign.judge import Verdict
from tests.foreign.run import BAD, Report
from tests.foreign.suites import Suite

_HEADS = (
    *("suite", "Python", "on", "passed", "failed", "skipped"),
    *("peer", "passed", "expected", "new", "gone", "unsteady"),
)


class Row(NamedTuple):
    """One suite's line."""

    suite: str
    cells: tuple[str, ...]
    #: Whether something is not as the table of differences says, or was not run to its end.
    wrong: bool


def _row(suite: Suite, on: str, report: Report, rest: Iterable[object], wrong: bool) -> Row:
    counts = Counter(result.outcome for result in report.results.values())
    python = f"{sys.version_info[0]}.{sys.version_info[1]}{sys.abiflags}"
    failed = sum(counts[outcome] for outcome in BAD)
    cells = (f"{suite.name} {suite.version}", python, on, counts["passed"], failed, counts["skipped"], *rest)
    return Row(suite.name, tuple(map(str, cells)), wrong)


def compared(suite: Suite, report: Report, reference: dict[str, str], verdict: Verdict, trouble: str) -> Row:
    """The line of a suite that was run on ours; `trouble` is what went wrong on the reference."""
    passed = sum(outcome == "passed" for outcome in reference.values())
    lists = (verdict.expected, verdict.new, verdict.gone, verdict.unsteady)
    wrong = bool(verdict.new or verdict.gone or report.trouble or trouble)
    return _row(suite, "ropewalk", report, (suite.reference, passed, *map(len, lists)), wrong)


def counted(suite: Suite, on: str, report: Report) -> Row:
    """The line of a suite that was run on a peer: nothing is expected of it but that it ends."""
    return _row(suite, on, report, ("",) * 6, bool(report.trouble))


def missing(suite: Suite, on: str) -> Row:
    """The line of a suite that could not be prepared."""
    return _row(suite, on, Report({}), ("",) * 6, wrong=True)


def table(rows: Iterable[Row]) -> str:
    """The lines below their heads, in columns; a star is before each that is not as expected."""
    lines = [("", *_HEADS), *(("*" if row.wrong else "", *row.cells) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
