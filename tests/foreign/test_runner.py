"""The runner of foreign suites itself, on a suite of its own; nothing is fetched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.foreign.differences import DIFFERENCES, Difference
from tests.foreign.judge import differing, judge
from tests.foreign.run import Report, Result
from tests.foreign.suites import BY_NAME, SUITES
from tests.foreign.summary import compared, counted, missing, table
from tests.foreign.workplace import link

_ROOT = Path(__file__).parents[2]

_FAULTY = """
import asyncio, os, signal, subprocess, sys, threading, time
import pytest

def test_passes():
    assert type(asyncio.new_event_loop()).__module__.startswith("ropewalk")

def test_a_child_has_the_loop_too():
    code = "import asyncio; print(type(asyncio.new_event_loop()).__module__)"
    assert subprocess.check_output([sys.executable, "-c", code]).startswith(b"ropewalk")

def test_a_daemon_is_gone_once_it_ends():
    code = "import os, time; pid = os.fork(); pid or time.sleep(0.2); print(pid, flush=True) if pid else None"
    daemon = int(subprocess.check_output([sys.executable, "-c", code]))
    while os.path.exists(f"/proc/{daemon}"):
        time.sleep(0.05)

def test_fails():
    assert 1 == 2

def test_can_be_interrupted():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

def test_crashes():
    os.kill(os.getpid(), signal.SIGABRT)

def test_hangs():
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    open("child", "w").write(str(child.pid))
    threading.Event().wait()

@pytest.fixture
def stuck():
    yield
    threading.Event().wait()

def test_hangs_after_a_failure(stuck):
    assert 1 == 2

@pytest.fixture
def broken():
    yield
    raise ValueError

def test_has_a_broken_fixture(broken):
    pass

@pytest.mark.parametrize("value", [object(), object()])
def test_skips_itself(value):
    pytest.skip("for a reason")
"""

#: The runner is a process of its own here, because it ends every child that it adopts.
_SCENE = """
import json, signal, sys
from pathlib import Path
from tests.foreign.run import Choice, run_suite
from tests.foreign.suites import Suite
from tests.foreign.workplace import Workplace

# As a shell starts a command in the background.
signal.signal(signal.SIGINT, signal.SIG_IGN)
home = Path(sys.argv[1])
suite = Suite("faulty", "1", "asyncio", (), arguments=("test_faulty.py",), patience=5)
place = Workplace(home / "venv" / "bin" / "python", home, home)
report = run_suite(suite, "ropewalk", place, Choice())
print(json.dumps([{test: result.outcome for test, result in report.results.items()}, report.trouble]))
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with an environment in which pytest and this tree's package can be imported."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    link(packages, *(path for path in sys.path if path.endswith("site-packages")))
    script = venv / "bin" / "pytest"
    script.write_text("import sys, pytest\nsys.exit(pytest.console_main())\n", encoding="utf-8")
    (tmp_path / "test_faulty.py").write_text(_FAULTY, encoding="utf-8")
    return tmp_path


def test_each_fault_is_put_to_the_test_that_has_it(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCENE, home],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    outcomes, trouble = json.loads(done.stdout)
    assert {test.rpartition("::")[2]: outcome for test, outcome in outcomes.items()} == {
        "test_passes": "passed",
        "test_a_child_has_the_loop_too": "passed",
        "test_a_daemon_is_gone_once_it_ends": "passed",
        "test_fails": "failed",
        "test_can_be_interrupted": "passed",
        "test_crashes": "crashed",
        "test_hangs": "hung",
        "test_hangs_after_a_failure": "hung",
        "test_has_a_broken_fixture": "error",
        "test_skips_itself[value0]": "skipped",
        "test_skips_itself[value1]": "skipped",
    }
    assert not trouble
    left = int((home / "child").read_text())
    assert not Path(f"/proc/{left}").exists()


def test_a_new_failure_and_a_vanished_one_both_show() -> None:
    reference = {"a": "passed", "b": "failed", "c[1]": "passed", "d": "passed", "e": "passed", "f": "passed"}
    results = {"a": "failed", "b": "failed", "c[1]": "hung", "d": "skipped", "e": "passed"}
    found = differing(Report({test: Result(outcome) for test, outcome in results.items()}), reference)
    assert sorted(found) == ["a", "c[1]", "d", "f"]
    entries = {name: Difference("suite", name, "a reason") for name in ("c", "e")}
    verdict = judge(found, {"a"}, entries, reference.keys() | results.keys())
    assert verdict.new == ["d", "f"]
    assert verdict.gone == ["e"]
    assert verdict.expected == ["c[1]"]
    assert verdict.unsteady == ["a"]


def test_the_last_table_has_a_line_for_each_suite() -> None:
    suite, other = SUITES[:2]
    reference = {"a": "passed", "b": "failed", "c": "passed", "d": "passed"}
    results = {"a": "failed", "b": "failed", "c": "crashed", "d": "passed", "e": "skipped"}
    report = Report({test: Result(outcome) for test, outcome in results.items()})
    verdict = judge(["a", "c"], set(), {"c": Difference("suite", "c", "a reason")}, results.keys())
    rows = [compared(suite, report, reference, verdict, ""), missing(other, "ropewalk")]
    assert [row.wrong for row in rows] == [True, True]
    line = f"* {suite.name} {suite.version} {rows[0].cells[1]} ropewalk 1 3 1 {suite.reference} 3 1 1 0 0"
    assert table(rows).splitlines()[1].split() == line.split()
    assert table(rows).splitlines()[2].split()[:2] == ["*", other.name]
    unwell = compared(suite, Report({}), {}, judge([], set(), {}, set()), "the reference did not end")
    assert unwell.wrong
    assert not counted(suite, "asyncio", report).wrong


def test_the_table_is_of_the_suites() -> None:
    assert {entry.suite for entry in DIFFERENCES} <= BY_NAME.keys()
    assert len({(entry.suite, entry.test) for entry in DIFFERENCES}) == len(DIFFERENCES)
    assert all(entry.reason for entry in DIFFERENCES)
    assert len(BY_NAME) == len(SUITES)
