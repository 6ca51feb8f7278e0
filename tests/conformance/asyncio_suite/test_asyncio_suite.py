"""CPython's own tests of asyncio, from the installed interpreter's `test` package, run on `ropewalk.Loop`.

Nothing of them is copied: Ropewalk's loop takes the place of asyncio's, and each module runs in a process of its own.
What is not held against it stands in `exclusions.py`; `python -m tests.conformance.asyncio_suite` prints the numbers,
for other loops, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conformance.asyncio_suite.conftest import REPORTS
from tests.conformance.asyncio_suite.exclusions import EXCLUSIONS, LEFT_OUT, MIXINS, Exclusion
from tests.conformance.asyncio_suite.suite import Report, Result, complaints, modules, run_module

try:
    MODULES = modules()
except ImportError:
    pytest.skip(
        "this interpreter came without CPython's own tests (the package test.test_asyncio)",
        allow_module_level=True,
    )

#: The first test waits until the processes have come to its module, and each of them has its own watch.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Report]]:
    """Runs those modules that were asked for, a few at a time: most of their time is waiting."""
    tests = (getattr(item, "callspec", None) for item in request.session.items if item.path == request.path)
    wanted = [spec.params["module"] for spec in tests if spec is not None and "module" in spec.params]
    with ThreadPoolExecutor(max(2, len(os.sched_getaffinity(0)))) as executor:
        reports: dict[str, Future[Report]] = {
            name: executor.submit(run_module, name, "ropewalk") for name in MODULES if name in wanted
        }
        try:
            yield lambda name: reports[name].result()
        finally:
            executor.shutdown(cancel_futures=True)


@pytest.mark.parametrize("module", MODULES)
def test_module(running: Callable[[str], Report], module: str, request: pytest.FixtureRequest) -> None:
    report = running(module)
    request.config.stash.setdefault(REPORTS, []).append(report)
    assert report.results
    found = complaints(report, EXCLUSIONS)
    assert not found, "\n\n".join(found)


def test_every_exclusion_is_of_a_module_that_is_run() -> None:
    assert {entry.module for entry in EXCLUSIONS if entry.applies} <= set(MODULES)
    assert len({entry.test for entry in EXCLUSIONS}) == len(EXCLUSIONS)
    assert all(entry.reason for entry in EXCLUSIONS)
    assert all(LEFT_OUT.values())


def test_the_modules_of_the_loop_mixins_are_run() -> None:
    assert {name.partition(".")[0] for name in MIXINS} <= set(MODULES)


# --- the harness itself ------------------------------------------------------------------------------------------

_FAULTY = """
import asyncio, os, signal, threading, unittest

class Tests(unittest.TestCase):
    def test_1_passes(self):
        asyncio.run(asyncio.sleep(0))

    def test_2_fails(self):
        self.assertEqual(1, 2)

    def test_3_crashes(self):
        os.kill(os.getpid(), signal.SIGABRT)

    def test_4_hangs(self):
        threading.Event().wait()

    def test_5_raises_in_one_part(self):
        with self.subTest("one"):
            raise ValueError
        with self.subTest("another"):
            pass

    def test_6_skips(self):
        self.skipTest("for a reason")

    @unittest.skip("for a reason")
    def test_7_never_begins(self):
        pass

    def test_8_comes_last(self):
        pass
"""


def test_each_fault_is_put_to_the_test_that_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "faulty"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "test_faulty.py").write_text(_FAULTY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    report = run_module("test_faulty", "asyncio", patience=3, package="faulty")
    assert [(result.test.rpartition("_")[2], result.outcome, result.loops) for result in report.results] == [
        ("passes", "passed", 1),
        ("fails", "failed", 0),
        ("crashes", "crashed", 0),
        ("hangs", "hung", 0),
        ("part", "error", 0),
        ("skips", "skipped", 0),
        ("begins", "skipped", 0),
        ("last", "passed", 0),
    ]
    assert not report.trouble
    assert "in test_4_hangs" in report.results[3].detail


def test_a_process_that_does_not_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "faulty"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "test_faulty.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    report = run_module("test_faulty", "asyncio", patience=3, package="faulty")
    assert "the process ended with status 1" in report.trouble


_MIXIN = f"{MIXINS[0]}.test_a"


@pytest.mark.parametrize(
    ("result", "excluded", "complaint"),
    [
        (Result("test_x.T.test_a", "passed"), None, None),
        (Result("test_x.T.test_a", "skipped"), None, None),
        (Result("test_x.T.test_a", "failed", "because"), None, "failed\nbecause"),
        (Result("test_x.T.test_a", "hung"), None, "hung"),
        (Result("test_x.T.test_a", "error"), "test_x.T.test_a", None),
        (Result("test_x.T.test_a", "hung"), "test_x.T.test_a", "is excluded, but hung"),
        (Result("test_x.T.test_a", "crashed"), "test_x.T.test_a", "is excluded, but crashed"),
        (Result("test_x.T.test_a", "passed"), "test_x.T.test_a", "is excluded, but passed"),
        (Result("test_x.T.test_a", "skipped"), "test_x.T.test_a", "is excluded, but skipped"),
        (Result("test_x.T.test_a", "passed"), "test_x.T.test_b", "there is no such test"),
        (Result(_MIXIN, "passed", loops=1), None, None),
        (Result(_MIXIN, "passed", loops=0), None, "without the loop"),
        (Result(_MIXIN, "skipped", "no IPv6", loops=0), None, None),
        (Result(_MIXIN, "skipped", "not a BaseSelectorEventLoop", loops=1), None, "skips itself"),
        (Result("test_futures.T.test_a", "passed", loops=1), None, "its module is left out"),
    ],
)
def test_what_is_complained_of(result: Result, excluded: str | None, complaint: str | None) -> None:
    table = [Exclusion(excluded, "a reason")] if excluded else []
    found = complaints(Report(result.test.partition(".")[0], [result]), table)
    if complaint is None:
        assert found == []
    else:
        assert len(found) == 1
        assert complaint in found[0]


def test_an_exclusion_for_other_versions_excludes_nothing() -> None:
    report = Report("test_x", [Result("test_x.T.test_a", "failed")])
    assert complaints(report, [Exclusion("test_x.T.test_a", "a reason", until=(3, 11))])
    assert complaints(report, [Exclusion("test_x.T.test_a", "a reason", since=(4,))])
