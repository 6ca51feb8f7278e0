"""Compares a suite on ours with the suite on its reference, and the difference with what is expected."""

from __future__ import annotations

from collections.abc import Iterable, Set as AbstractSet
from typing import NamedTuple

from tests.foreign.differences import Difference
from tests.foreign.run import BAD, Report, base_name


class Verdict(NamedTuple):
    """How a suite on ours differs from the suite on its reference."""

    #: Tests that fail or skip themselves on ours alone, and are not expected to.
    new: list[str]
    #: Expected differences that are none.
    gone: list[str]
    #: Tests that differ as expected.
    expected: list[str]
    #: Tests that failed on ours, and passed when they were run again.
    unsteady: list[str]


def differing(ours: Report, reference: dict[str, str]) -> list[str]:
    """The tests that fail on ours alone, or are skipped on ours alone."""
    found = []
    for test, result in ours.results.items():
        peer = reference.get(test, "passed")
        if result.outcome in BAD:
            if peer not in BAD:
                found.append(test)
        elif result.outcome == "skipped" and peer == "passed":
            found.append(test)
    # What stops the collection of a file takes its tests away without a word about each.
    return found + [
        test for test, outcome in reference.items() if outcome == "passed" and test not in ours.results
    ]


def applying(differences: Iterable[Difference], suite: str) -> dict[str, Difference]:
    """The entries for a suite, by test."""
    return {entry.test: entry for entry in differences if entry.suite == suite and entry.applies}


def entry_of(table: dict[str, Difference], test: str) -> Difference | None:
    """The entry of a test, or of all its variants."""
    return table.get(test) or table.get(base_name(test))


def judge(
    found: list[str], passed_again: set[str], table: dict[str, Difference], run: AbstractSet[str]
) -> Verdict:
    """What is new, gone and expected; `run` are the tests that were run, on ours or on the reference."""
    new, expected, seen = [], [], set()
    for test in found:
        entry = entry_of(table, test)
        if entry is not None:
            expected.append(test)
            seen.add(entry.test)
        elif test not in passed_again:
            new.append(test)
    bases = {base_name(test) for test in run} | run
    gone = [
        test for test, entry in table.items() if test not in seen and not entry.by_chance and test in bases
    ]
    return Verdict(sorted(new), sorted(gone), sorted(expected), sorted(passed_again))
