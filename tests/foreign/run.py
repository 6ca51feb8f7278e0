"""Runs a suite's tests in its environment; after a test that hung or crashed, the rest in a new process."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from tests.foreign.suites import Suite
from tests.foreign.workplace import Workplace

#: Outcomes that count as a failure.
BAD = ("failed", "error", "hung", "crashed")
#: A suite in which more tests than these hang or crash is given up.
_RESTARTS = 60
#: `PR_SET_CHILD_SUBREAPER` of `prctl(2)`.
_SUBREAPER = 36


class Result(NamedTuple):
    """What became of one test."""

    outcome: str
    detail: str = ""
    seconds: float = 0.0


class Report(NamedTuple):
    """What became of a suite's tests, and what went wrong beside them."""

    results: dict[str, Result]
    trouble: str = ""


class Choice(NamedTuple):
    """Which of a suite's tests are run."""

    #: A regular expression that a test's name must match somewhere.
    pattern: str = ""
    #: The names themselves, instead of all.
    only: tuple[str, ...] | None = None
    #: Tests that are expected to hang, which get 5 seconds.
    hopeless: tuple[str, ...] = ()


def _heed_interrupts() -> None:
    """Undoes what a shell does to a command in the background: tests could not interrupt themselves."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _adopt_orphans() -> None:
    """Makes this process the parent of its descendants whose own parents end, so that none outlives a suite."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _children() -> dict[int, str]:
    """The children of this process, and the state of each: `Z` if it has ended."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if int(parent) == os.getpid():
                found[int(folder.name)] = state
    return found


def _reap(others: Collection[int]) -> None:
    """Waits for the adopted processes that have ended; a test may wait until the system forgets its daemon."""
    for pid, state in _children().items():
        if state == "Z" and pid not in others:
            os.waitpid(pid, 0)


def _end(process: subprocess.Popen[bytes], others: Collection[int]) -> None:
    """Ends a suite's process and everything that it has started; `others` are children that are not of the suite."""
    process.kill()
    process.wait()
    # What the process leaves has this one for a parent by now, and its own children will once it is gone.
    while left := _children().keys() - others:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _environment(suite: Suite, on: str, workplace: Workplace, settings: Path) -> dict[str, str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        # What concerns our own tests and environment.
        if not name.startswith(("PYTEST_", "FOREIGN_", "COV_")) and name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    environment["PATH"] = f"{workplace.python.parent}:{environment['PATH']}"
    environment["FOREIGN_WATCH"] = str(settings)
    if suite.swaps == "zmq":
        if on == "ropewalk":
            environment["PYZMQ_BACKEND"] = "ropewalk.zmq.backend"
    else:
        environment |= {"FOREIGN_SWAP": suite.swaps, "FOREIGN_LOOP": on}
    return environment


def _command(suite: Suite, workplace: Workplace) -> list[str]:
    options = [
        "-p",
        "foreign_watch",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
        "-o",
        "faulthandler_timeout=0",
    ]
    # Their tests' limit is in the report's hand.
    if "pytest-timeout" in suite.requires:
        options += ["-o", "timeout=0"]
    # Unset, it is a warning, and warnings are errors in some.
    if "pytest-asyncio" in suite.requires:
        options += ["-o", "asyncio_default_fixture_loop_scope=function"]
    return [
        str(workplace.python),
        str(workplace.python.with_name("pytest")),
        f"--rootdir={workplace.folder}",
        "-q",
        "--no-header",
        "--tb=short",
        "--continue-on-collection-errors",
        *options,
        *suite.arguments,
    ]


def _lines(report: Path) -> list[dict[str, Any]]:
    if not report.exists():
        return []
    return [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]


def _tail(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    # A test that hung has every thread's stack behind this line; the first part of it is what hangs.
    _, marker, stacks = text.rpartition("Timeout (")
    return marker + stacks[:4000] if marker else text[-3000:]


def run_suite(suite: Suite, on: str, workplace: Workplace, choice: Choice, name: str = "") -> Report:
    """Runs the tests that `choice` names, on the loop or the sockets called `on`.

    The log and the report are files of that name, or of the one given.
    """
    _heed_interrupts()
    _adopt_orphans()
    log, report, settings = (
        workplace.home / f"{name or on}.{kind}" for kind in ("log", "report", "settings")
    )
    log.unlink(missing_ok=True)
    report.unlink(missing_ok=True)
    deadline = time.monotonic() + suite.limit
    trouble = ""
    settings.write_text(
        json.dumps(
            {"report": str(report), "patience": suite.patience, "silent": suite.silent, **choice._asdict()}
        ),
        encoding="utf-8",
    )
    environment = _environment(suite, on, workplace, settings)
    for _ in range(_RESTARTS):
        status = _run_once(
            _command(suite, workplace),
            workplace.folder,
            environment,
            log,
            report,
            (deadline, 2 * suite.patience),
        )
        last = (_lines(report) or [{}])[-1]
        if status is None:
            trouble = f"not finished after {suite.limit:.0f} s; the last line of its report is {last}"
            break
        if "begins" in last:
            tail = _tail(log)
            how = "hung" if status == 1 and tail.startswith("Timeout (") else "crashed"
            dead = {"test": last["begins"], "outcome": how, "detail": f"status {status}\n{tail}"}
            with open(report, "a", encoding="utf-8") as file:
                file.write(json.dumps(dead) + "\n")
            continue
        # 0 and 1: all tests ran; 5: none was left to run.
        if "end" not in last or status not in (0, 1, 5) or (status == 1 and last["end"] != 1):
            trouble = f"its process ended with status {status}\n{_tail(log)}"
        break
    else:
        trouble = "given up after too many hangs and crashes"
    results = {
        line["test"]: Result(line["outcome"], line["detail"], line.get("seconds", 0.0))
        for line in _lines(report)
        if "test" in line
    }
    return Report(results, trouble)


def _run_once(
    command: list[str],
    folder: Path,
    environment: dict[str, str],
    log: Path,
    report: Path,
    ends: tuple[float, float],
) -> int | None:
    """The status of a process, or None if the whole suite took longer than it may.

    `ends` are the time when the suite must be finished, and the seconds after which a report that does not grow belongs
    to a test that hangs: beside the watch in the process itself, which a test can disturb.
    """
    others = set(_children())
    report.touch()
    deadline, patience = ends
    with open(log, "ab") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        began = time.time()
        try:
            while time.monotonic() < deadline:
                try:
                    return process.wait(0.5)
                except subprocess.TimeoutExpired:
                    _reap({process.pid, *others})
                    if time.time() - max(began, report.stat().st_mtime) > patience:
                        output.write(b"Timeout (in the runner)\n")
                        return 1
            return None
        finally:
            _end(process, others)


def failures(results: dict[str, Result], names: Collection[str] | None = None) -> set[str]:
    """The tests that did not pass, of those named or of all."""
    return {
        name for name, result in results.items() if result.outcome in BAD and (names is None or name in names)
    }


def base_name(test: str) -> str:
    """A test's name without its parameters."""
    return re.sub(r"\[.*|#\d+$", "", test, flags=re.DOTALL)
