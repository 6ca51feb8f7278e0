"""A pytest plugin that writes down what becomes of each test of a foreign suite, and ends the process when one hangs.

The report has a line when a test begins and one when it ends, so that after a crash or a hang it names the test. A
test that the report has already is not run again: started once more with the same report, pytest goes on where it was.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import re
import time
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any

import pytest

#: Parameters whose `repr` has an address differ from run to run.
_ADDRESS = re.compile(r"0x[0-9a-f]+")


class Watch:
    """Reports the tests of one process."""

    def __init__(self, report: IO[str], settings: dict[str, Any], seen: set[str]) -> None:
        self._report = report
        self._patience: float = settings["patience"]
        self._hopeless = set(settings["hopeless"])
        self._only = set(settings["only"]) if settings["only"] is not None else None
        self._pattern = re.compile(settings["pattern"])
        self._seen = seen
        self._names: dict[pytest.Item, str] = {}
        self._entry: dict[str, Any] | None = None
        # Tests replace sys.stderr, and close what they find.
        self._stderr = os.dup(2)

    def _write(self, entry: dict[str, Any]) -> None:
        self._report.write(json.dumps(entry) + "\n")
        self._report.flush()

    def patience(self, seconds: float | None = None) -> None:
        """Allows what comes now the time that one test has."""
        faulthandler.dump_traceback_later(seconds or self._patience, exit=True, file=self._stderr)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        wanted, taken = [], set(self._names.values())
        for item in items:
            base = name = _ADDRESS.sub("0x", item.nodeid)
            count = 1
            while name in taken:
                count += 1
                name = f"{base}#{count}"
            taken.add(name)
            self._names[item] = name
            chosen = self._only is None or name in self._only
            if chosen and name not in self._seen and self._pattern.search(name):
                wanted.append(item)
        items[:] = wanted

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        name = f"{report.nodeid} (collecting)"
        if report.outcome == "passed" or name in self._seen:
            return
        if self._only is None and self._pattern.search(name):
            self._write(
                {
                    "test": name,
                    "outcome": "error" if report.failed else "skipped",
                    "detail": str(report.longrepr),
                }
            )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        name = self._names[item]
        self._entry = {"test": name, "outcome": "passed", "detail": ""}
        self._write({"begins": name})
        began = time.monotonic()
        self.patience(5.0 if name in self._hopeless or name.partition("[")[0] in self._hopeless else None)
        try:
            return (yield)
        finally:
            self._entry["seconds"] = round(time.monotonic() - began, 3)
            self._write(self._entry)
            self._entry = None
            self.patience()

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self) -> None:
        # pytest's own plugin has just ended the watch, to leave a debugger alone.
        if self._entry is not None:
            self.patience()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._entry is None or self._entry["outcome"] in ("failed", "error"):
            return
        if report.failed:
            outcome = "failed" if report.when == "call" else "error"
            self._entry |= {"outcome": outcome, "detail": report.longreprtext}
        elif report.skipped and not hasattr(report, "wasxfail"):
            detail = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self._entry |= {"outcome": "skipped", "detail": detail}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._write({"end": int(exitstatus)})
        # A process that does not end is a fault, too: the watch goes on until it is gone.
        self.patience()


def pytest_configure(config: pytest.Config) -> None:
    # A pytest that a test runs inside this process, or as its child, is not watched.
    path = os.environ.pop("FOREIGN_WATCH", None)
    if path is None:
        return
    settings = json.loads(Path(path).read_text(encoding="utf-8"))
    report = Path(settings["report"])
    seen = set()
    if report.exists():
        lines = map(json.loads, report.read_text(encoding="utf-8").splitlines())
        seen = {line["test"] for line in lines if "test" in line}
    watch = Watch(open(report, "a", encoding="utf-8"), settings, seen)  # noqa: SIM115
    # Imports take their time on a loaded machine.
    watch.patience(60.0 + settings["patience"])
    for name in settings["silent"]:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    config.pluginmanager.register(watch, "foreign-watch")
