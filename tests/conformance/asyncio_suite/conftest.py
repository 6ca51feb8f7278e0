"""Reports at the end of a run how many of CPython's asyncio tests passed on Ropewalk's loop."""

from __future__ import annotations

import platform
from collections import Counter

import pytest
from tests.conformance.asyncio_suite.exclusions import EXCLUSIONS
from tests.conformance.asyncio_suite.suite import Report, Result

REPORTS = pytest.StashKey[list[Report]]()


def _line(what: str, results: list[Result], excluded: set[str]) -> str:
    judged = Counter(result.outcome for result in results if result.test not in excluded)
    numbers = ", ".join(f"{count} {outcome}" for outcome, count in sorted(judged.items()))
    return f"{what}: {len(results)}: {numbers}, {len(results) - judged.total()} excluded"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Two lines: everything that was run, and of it the loop mixins."""
    results = [result for report in config.stash.get(REPORTS, []) for result in report.results]
    if results:
        excluded = {entry.test for entry in EXCLUSIONS if entry.applies}
        terminalreporter.section(f"CPython {platform.python_version()}'s asyncio tests on ropewalk.Loop")
        terminalreporter.line(_line("all", results, excluded))
        terminalreporter.line(_line("loop mixins", [r for r in results if r.is_mixin], excluded))
