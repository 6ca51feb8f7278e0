"""Runs CPython's asyncio tests on a loop, each module in its own process, and evaluates the results."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.asyncio_suite import one_module
from tests.conformance.asyncio_suite.exclusions import LEFT_OUT, MIXINS, Exclusion

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = "test.test_asyncio"
#: The outcomes of a test that did not do what it should.
BAD = ("failed", "error", "hung", "crashed")
#: A module in which more tests than this hang or crash is given up.
_RESTARTS = 40
#: Longer than any module takes; only for what the watch within the process cannot end.
_MODULE_LIMIT = 900.0


@dataclass(frozen=True)
class Result:
    """What became of one test."""

    test: str
    outcome: str
    detail: str = ""
    #: How many loops of the asked kind it made.
    loops: int = 0
    seconds: float = 0.0

    @property
    def is_mixin(self) -> bool:
        """Whether it is a case of the loop mixins."""
        return self.test.rpartition(".")[0] in MIXINS


@dataclass
class Report:
    """What became of one module."""

    module: str
    results: list[Result] = field(default_factory=list)
    #: What went wrong outside of any test, or nothing.
    trouble: str = ""


def modules(*, left_out: bool = False) -> list[str]:
    """The modules of the installed interpreter that are run, the largest first; on demand those left out, too."""
    package = importlib.import_module(PACKAGE)
    found = sorted(Path(package.__path__[0]).glob("test_*.py"), key=lambda path: -path.stat().st_size)
    return [path.stem for path in found if left_out or path.stem not in LEFT_OUT]


def _tail(log: Path, lines: int = 60) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _run_once(command: list[str], report: Path, log: Path) -> int:
    """One process, until it ends; it and all it has started are gone afterwards."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command,
            # The tests leave files behind where they run.
            cwd=report.parent,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            process_group=0,
        )
        try:
            return process.wait(_MODULE_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _entries(report: Path) -> list[dict[str, Any]]:
    if not report.exists():
        return []
    return [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]


def run_module(module: str, loop: str, patience: float = 60.0, package: str = PACKAGE) -> Report:
    """Runs one module on a loop; after a test that hung or crashed, the rest in a new process.

    `patience` is the time that one test may take, in seconds.
    """
    outcome = Report(module)
    with tempfile.TemporaryDirectory() as folder:
        path, log = Path(folder, "report"), Path(folder, "log")
        command = [sys.executable, "-m", one_module.__name__, package, module, str(path)]
        command += ["--loop", loop, "--patience", str(patience)]
        for _ in range(_RESTARTS):
            status = _run_once(command, path, log)
            last = (_entries(path) or [{}])[-1]
            if "begins" in last:
                # The watch ends a process that hangs with status 1; a kill is the limit of the module.
                how = "hung" if status in (1, -signal.SIGKILL) else "crashed"
                dead = {"test": last["begins"], "outcome": how, "detail": f"status {status}\n{_tail(log)}"}
                with open(path, "a", encoding="utf-8") as report:
                    report.write(json.dumps(dead) + "\n")
                continue
            if status != 0 or "end" not in last:
                outcome.trouble = f"the process ended with status {status}\n{_tail(log)}"
            break
        else:
            outcome.trouble = "given up after too many hangs and crashes"
        outcome.results = [Result(**entry) for entry in _entries(path) if "test" in entry]
    return outcome


def complaints(report: Report, exclusions: Iterable[Exclusion]) -> list[str]:
    """What is not as it should be in a module that ran on Ropewalk's loop.

    A test that fails and is not excluded; one that is excluded and passes, skips itself, hangs, crashes, or does not
    exist; a case of the loop mixins that gave up when it had seen the loop, or never saw it; a module left out for a
    reason that is not so.
    """
    found = [f"{report.module}: {report.trouble}"] if report.trouble else []
    excluded = {entry.test: entry for entry in exclusions if entry.applies and entry.module == report.module}
    for result in report.results:
        if result.test in excluded:
            if result.outcome not in ("failed", "error"):
                found.append(f"{result.test} is excluded, but {result.outcome}")
        elif result.outcome in BAD:
            found.append(f"{result.test} {result.outcome}\n{result.detail}")
        elif result.is_mixin and result.outcome == "skipped" and result.loops:
            found.append(f"{result.test} skips itself on this loop: {result.detail}")
        elif result.is_mixin and result.outcome == "passed" and not result.loops:
            found.append(f"{result.test} passed without the loop")
        if result.loops and report.module in LEFT_OUT:
            found.append(f"{result.test} makes a loop, but its module is left out")
    missing = excluded.keys() - {result.test for result in report.results}
    found += [f"{test} is excluded, but there is no such test" for test in sorted(missing)]
    return found
