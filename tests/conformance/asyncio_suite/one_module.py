"""Runs one module of CPython's asyncio tests in this process, and writes down what becomes of each test as it goes.

The report has a line when a test begins and one when it ends, so that after a crash or a hang it names the test. A
test that the report has already is not run again: started once more with the same report, this goes on where it was.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tests.conformance.asyncio_suite.exclusions import DUPLICATES
from tests.conformance.asyncio_suite.loops import LOOPS, Replacement


class Reporter(unittest.TestResult):
    """Writes the report, and ends the process, with every thread's stack, when a test takes too long."""

    def __init__(self, package: str, report: IO[str], replacement: Replacement, patience: float) -> None:
        super().__init__()
        self._package = package
        self._report = report
        self._replacement = replacement
        self._patience = patience
        # Tests replace sys.stderr, and close what they find.
        self._stderr = os.dup(2)
        self._entry: dict[str, Any] | None = None

    def _write(self, entry: dict[str, Any]) -> None:
        self._report.write(json.dumps(entry) + "\n")
        self._report.flush()

    def name(self, test: Any) -> str:
        """A test's name without that of the package."""
        identity: str = test.id()
        return identity.replace(f"{self._package}.", "")

    def watch(self) -> None:
        """Allows what comes now the time that one test has."""
        faulthandler.dump_traceback_later(self._patience, exit=True, file=self._stderr)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._entry = {"test": self.name(test), "outcome": "passed", "detail": ""}
        self._write({"begins": self._entry["test"]})
        self._made, self._began = self._replacement.made, time.monotonic()
        self.watch()

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        if self._entry is None:
            # 3.12.1 skips a test by its class or decorator without `startTest` (gh-113267), so `_note` has written it.
            return
        self._entry["loops"] = self._replacement.made - self._made
        self._entry["seconds"] = round(time.monotonic() - self._began, 3)
        self._write(self._entry)
        self._entry = None
        self.watch()

    def _note(self, test: Any, outcome: str, detail: str) -> None:
        if self._entry is None:
            # Not a test but what surrounds it: setUpModule, tearDownClass and their like.
            self._write({"test": self.name(test), "outcome": outcome, "detail": detail})
        elif self._entry["outcome"] in ("passed", "skipped"):
            self._entry |= {"outcome": outcome, "detail": detail}

    def addFailure(self, test: Any, err: Any) -> None:
        self._note(test, "failed", self._exc_info_to_string(err, test))

    def addError(self, test: Any, err: Any) -> None:
        self._note(test, "error", self._exc_info_to_string(err, test))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            add = self.addFailure if issubclass(err[0], test.failureException) else self.addError
            add(test, err)

    def addSkip(self, test: Any, reason: str) -> None:
        self._note(test, "skipped", reason)

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._note(test, "failed", "CPython expects a failure here")


def _each(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _each(test)
        else:
            yield test


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
    parser.add_argument("module")
    parser.add_argument("report", type=Path)
    parser.add_argument("--loop", choices=LOOPS, required=True)
    parser.add_argument("--patience", type=float, required=True, help="seconds that one test may take")
    arguments = parser.parse_args()

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background job inherits that, and tests that interrupt themselves would never end.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    replacement = Replacement(arguments.loop)
    replacement.install()
    seen = set()
    if arguments.report.exists():
        entries = map(json.loads, arguments.report.read_text(encoding="utf-8").splitlines())
        seen = {entry.get("test") for entry in entries}
    with open(arguments.report, "a", encoding="utf-8") as report:
        result = Reporter(arguments.package, report, replacement, arguments.patience)
        result.watch()
        try:
            found = unittest.defaultTestLoader.loadTestsFromName(f"{arguments.package}.{arguments.module}")
        except unittest.SkipTest:
            found = unittest.TestSuite()
        names = {test: result.name(test) for test in _each(found)}
        unittest.TestSuite(
            test
            for test, name in names.items()
            if name not in seen and name.rpartition(".")[0] not in DUPLICATES
        ).run(result)
        report.write(json.dumps({"end": True}) + "\n")
        # A process that does not end is a fault, too: the watch goes on until it is gone.
        result.watch()


if __name__ == "__main__":
    main()
