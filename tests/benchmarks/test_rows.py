"""Each row of the benchmarks runs once at the smallest size, our side of it, and returns the figures that it names."""

from __future__ import annotations

import pytest

from harness.compare import own
from harness.measure import Case, Options, missing, play
from harness.programs import Program
from harness.suites import SUITES, rows_of
from harness.table import Line, Row

ROWS = [(suite, row) for suite in SUITES for row in rows_of(suite)]
SMALLEST = Options(quick=True, rounds=1, kills=4)


def of_program(case: Case) -> bool:
    """Whether a case plays a Rust program, or is played by one."""
    return any(isinstance(value, Program) for value in case.arguments.values())


@pytest.mark.parametrize("suite", SUITES)
def test_the_rows_of_a_suite_have_names_of_their_own(suite: str) -> None:
    names = [row.name for row in rows_of(suite)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("suite", "row"), ROWS, ids=[f"{suite}/{row.name}" for suite, row in ROWS])
def test_a_label_means_one_case(suite: str, row: Row) -> None:
    # Outcomes are kept by label, and so two contests of a row must not share one. A peer may have smaller sizes.
    meant: dict[str, set[tuple[str, ...]]] = {}
    for line in row.lines:
        for case in (line.case, *(theirs for theirs, _, _ in line.theirs())):
            meant.setdefault(case.label, set()).add((case.function, *sorted(case.arguments)))
    assert not [label for label, cases in meant.items() if len(cases) > 1]


@pytest.mark.parametrize(
    ("suite", "row", "label"),
    [
        # The Rust programs are built by other tools, and what scikit-learn does in seconds is no test of ours.
        pytest.param(suite, row, label, id=f"{suite}/{row.name}/{label}")
        for suite, row in ROWS
        for label, (case, _) in own(row).items()
        if not of_program(case) and "sklearn" not in case.needs
    ],
)
def test_a_row_measures_what_its_lines_name(suite: str, row: Row, label: str) -> None:
    case, lines = own(row)[label]
    if reason := missing(case):
        pytest.skip(reason)
    figures = play(case, case.settled(SMALLEST))
    named: list[Line] = lines
    assert not [line.metric for line in named if line.metric not in figures]
