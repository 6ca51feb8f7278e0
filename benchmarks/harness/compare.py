"""One build of Ropewalk against another: our side of every row, by two interpreters in turn.

    python benchmarks compare BEFORE AFTER [ROW...]

BEFORE and AFTER are the interpreters of two virtual environments, each with one built wheel and the packages of
``requirements.txt``. A ROW is the name of a suite (`loop`), of a table (`window`), or both (`loop/tasks`).

A round plays a case once with each, A B, and the next one B A, so that a slow minute falls on both. A case is played
for as long as ``--seconds`` allows and five rounds at least; they are shorter than those beside peers, and there are
more of them. A measure has become slower if its median is more than three percent worse and if chance would rarely rank
the rounds so (Mann and Whitney's test, one in a hundred). Such a case is measured once more, and counts as slower if
the new rounds say so too.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.measure import BENCHMARKS, Options, play
from harness.report import number
from harness.suites import SUITES, is_called, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.measure import Case
    from harness.table import Line, Row

#: A measure that is worse by more than this share has become slower, and how rarely chance may say so.
WITHIN, CHANCE = 0.03, 0.01
LEAST_ROUNDS = 5
#: Rounds are shorter than those of a run beside peers, and there are more of them.
SHARE = 0.3
SAME, FASTER, SLOWER, UNCLEAR = "same", "faster", "SLOWER", "unclear"
HEADINGS = ("row", "measure", "unit", "before", "after", "ratio", "rounds", "verdict")


@dataclass(frozen=True)
class Build:
    """One side: an interpreter with a wheel, and the folder of Rust programs, if they are compared."""

    python: str
    programs: Path | None

    def play(self, case: Case, *, quick: bool) -> dict[str, float]:
        """One round."""
        return play(
            case, case.settled(Options(quick=quick, share=SHARE, programs=self.programs)), self.python
        )


@dataclass
class Measure:
    """One line of ours: what it is, and the rounds of both builds. The last ``again`` of them confirm an alarm."""

    row: str
    what: str
    unit: str
    more_is_better: bool
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    again: int = 0

    @property
    def ratio(self) -> float:
        """How many times what it was the measure takes now; over 1 is worse, whichever way it counts."""
        return _ratio(self.before, self.after, self.more_is_better)

    @property
    def verdict(self) -> str:
        """Same, faster, slower, or more than the margin apart without being beyond chance."""
        found = _verdict(self.before, self.after, self.more_is_better)
        if found == SLOWER and self.again:
            fresh = _verdict(self.before[-self.again :], self.after[-self.again :], self.more_is_better)
            return SLOWER if fresh == SLOWER else UNCLEAR
        return found

    def cells(self) -> tuple[str, ...]:
        """The line of the table."""
        return (
            self.row,
            self.what,
            self.unit,
            _spread(self.before),
            _spread(self.after),
            f"{self.ratio:.3f}",
            str(len(self.before)),
            self.verdict,
        )


def _ratio(before: Sequence[float], after: Sequence[float], more_is_better: bool) -> float:
    over, under = statistics.median(after), statistics.median(before)
    if more_is_better:
        over, under = under, over
    if over == under:
        return 1.0
    return over / under if under > 0 else float("inf")


def _verdict(before: Sequence[float], after: Sequence[float], more_is_better: bool) -> str:
    ratio = _ratio(before, after, more_is_better)
    if 1 / (1 + WITHIN) <= ratio <= 1 + WITHIN:
        return SAME
    worse, better = (before, after) if more_is_better else (after, before)
    if ratio > 1:
        return SLOWER if chance(worse, better) < CHANCE else UNCLEAR
    return FASTER if chance(better, worse) < CHANCE else UNCLEAR


def chance(greater: Sequence[float], less: Sequence[float]) -> float:
    """How often two samples of one distribution rank so much in favour of the first (Mann and Whitney, one-sided)."""
    rank = sum((a > b) + (a == b) / 2 for a in greater for b in less)
    ways = _rankings(len(greater), len(less))
    # A tie counts half: the next whole rank is the cautious one.
    return sum(ways[int(rank) :]) / sum(ways)


@functools.cache
def _rankings(one: int, other: int) -> tuple[int, ...]:
    """In how many orders of two samples the one has each number of wins: the coefficients of a Gaussian binomial."""
    ways = [1] + [0] * (one * other)
    for step in range(1, one + 1):
        for at in range(len(ways) - 1, other + step - 1, -1):
            ways[at] -= ways[at - other - step]
        for at in range(step, len(ways)):
            ways[at] += ways[at - step]
    return tuple(ways)


def _spread(values: Sequence[float]) -> str:
    """Median, and in percent how far from it half of the rounds lie."""
    middle = statistics.median(values)
    apart = statistics.median(abs(value - middle) for value in values)
    return f"{number(middle)} ±{100 * apart / middle:.1f} %" if middle else number(middle)


# --- playing -----------------------------------------------------------------


def own(row: Row) -> dict[str, tuple[Case, list[Line]]]:
    """The cases of a row that measure Ropewalk, with the lines that they fill, each measure once."""
    found: dict[str, tuple[Case, list[Line]]] = {}
    seen: set[tuple[str, str]] = set()
    for line in row.lines:
        case = line.case
        if case.ours and (case.label, line.metric) not in seen:
            seen.add((case.label, line.metric))
            found.setdefault(case.label, (case, []))[1].append(line)
    return found


def _chosen(names: Sequence[str]) -> Iterator[tuple[str, Row]]:
    known = {suite: rows_of(suite) for suite in SUITES}
    every = [(suite, row) for suite, rows in known.items() for row in rows]
    if wrong := [name for name in names if not any(_is_named(*found, name) for found in every)]:
        raise SystemExit(f"no such row: {', '.join(wrong)}")
    for found in every:
        if not names or any(_is_named(*found, name) for name in names):
            yield found


def _is_named(suite: str, row: Row, name: str) -> bool:
    """Whether a name is the suite's, the row's, or both with a slash between them."""
    of_suite, _, word = name.rpartition("/")
    return name == suite or (of_suite in ("", suite) and is_called(row, word))


@functools.cache
def _lacks(python: str, needs: tuple[str, ...]) -> str:
    """The modules that an interpreter lacks."""
    ask = "import sys; from harness.measure import lacking; print(*lacking(sys.argv[1:]))"
    path = os.pathsep.join(filter(None, (str(BENCHMARKS), os.environ.get("PYTHONPATH"))))
    said = subprocess.run(
        [python, "-c", ask, *needs],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    return said.stdout.strip()


@dataclass
class Comparison:
    """Two builds, how long each case is played, and what was found so far."""

    before: Build
    after: Build
    seconds: float
    quick: bool = False
    measures: dict[str, Measure] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def compare(self, suite: str, row: Row) -> list[Measure]:
        """Play our cases of a row; the measures that it gave."""
        found: list[Measure] = []
        for case, lines in own(row).values():
            name = f"{suite}/{row.name}, {case.label}"
            if reason := self._unable(case):
                print(f"left out: {name}: {reason}", file=sys.stderr)
                continue
            mine = []
            for line in lines:
                fresh = Measure(f"{suite}/{row.name}", line.what, line.unit, line.more_is_better)
                mine.append(self.measures.setdefault(f"{name}, {line.metric}", fresh))
            try:
                self._play(case, lines, mine)
                if any(measure.verdict == SLOWER for measure in mine):
                    played = self._play(case, lines, mine)
                    for measure in mine:
                        measure.again = played
            except RuntimeError as error:
                self.failures.append(f"{name}: {error}")
                continue
            found += mine
        return found

    def _unable(self, case: Case) -> str:
        """Why a case cannot be played by both, if it cannot."""
        if case.function.startswith("harness.programs:"):
            return (
                ""
                if self.before.programs and self.after.programs
                else "--programs does not say where they are"
            )
        lacking = {_lacks(build.python, case.needs) for build in (self.before, self.after)} - {""}
        return f"{', '.join(sorted(lacking))} not installed" if lacking else ""

    def _play(self, case: Case, lines: Sequence[Line], measures: Sequence[Measure]) -> int:
        """Rounds of a case until its time is over; how many there were."""
        for build in (self.before, self.after):
            build.play(case, quick=True)  # writes the bytecode, and warms the files that are read
        until, turn = time.monotonic() + self.seconds, 0
        while turn < LEAST_ROUNDS or (time.monotonic() < until and not self.quick):
            order = (self.before, self.after) if turn % 2 == 0 else (self.after, self.before)
            for build in order:
                figures = build.play(case, quick=self.quick)
                for line, measure in zip(lines, measures, strict=True):
                    side = measure.before if build is self.before else measure.after
                    side.append(figures[line.metric] * line.scale)
            turn += 1
        return turn


# --- the command -------------------------------------------------------------


def _table(measures: Sequence[Measure]) -> str:
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(measure.cells()) + " |" for measure in measures]
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Compare, and print the table; 1 if a measure became slower or a case failed."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="benchmarks compare",
        description=__doc__.partition("\n")[0],
        epilog=__doc__.partition("[ROW...]")[2],
    )
    parser.add_argument("before", help="the interpreter with the build of before")
    parser.add_argument("after", help="the interpreter with the build of now")
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help="suites or tables; all of them if none is named"
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="for each case, both builds together (10)"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument(
        "--programs", nargs=2, type=Path, metavar=("BEFORE", "AFTER"), help="folders of built Rust programs"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep every round; rounds that it holds count"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    arguments = parser.parse_args(argv)

    programs = arguments.programs or (None, None)
    comparison = Comparison(
        Build(arguments.before, programs[0]),
        Build(arguments.after, programs[1]),
        arguments.seconds,
        arguments.quick,
    )
    if arguments.json and arguments.json.exists():
        kept = json.loads(arguments.json.read_text(encoding="utf-8"))
        comparison.measures = {name: Measure(**values) for name, values in kept.items()}
    for suite, row in _chosen(arguments.rows):
        for measure in comparison.compare(suite, row):
            print("  ".join(measure.cells()), flush=True)
        if arguments.json:
            kept = {name: vars(measure) for name, measure in comparison.measures.items()}
            arguments.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    measured = [measure for measure in comparison.measures.values() if measure.before]
    if arguments.markdown:
        arguments.markdown.write_text(_table(measured) + "\n", encoding="utf-8")
    slower = [measure for measure in measured if measure.verdict == SLOWER]
    print(f"{len(measured)} measures, {len(slower)} slower, {len(comparison.failures)} cases failed")
    for measure in slower:
        print(f"slower: {measure.row}, {measure.what}: ×{measure.ratio:.3f}", file=sys.stderr)
    for failure in comparison.failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if slower or comparison.failures else 0
