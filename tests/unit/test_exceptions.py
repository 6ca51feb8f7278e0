"""Exceptions that pickle cannot restore: raised, returned, and as arguments."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests import raising, tasks

import ropewalk

ROOT = Path(__file__).resolve().parents[2]


def same(error: BaseException | None, name: str) -> bool:
    made: Any = raising.MAKERS[name]()
    assert type(error) is type(made)
    assert str(error) == str(made)
    assert error.args == made.args
    assert error.code == 7
    return True


@pytest.mark.parametrize("name", raising.MAKERS)
def test_what_a_task_raises_arrives_as_itself(processes: Any, name: str) -> None:
    error = processes.submit(raising.throw, name).exception(60)
    assert same(error, name)
    assert type(error.__cause__).__name__ == "RemoteTraceback"
    assert "raise MAKERS[name]()" in str(error.__cause__)


@pytest.mark.parametrize("name", raising.MAKERS)
def test_what_a_map_meets_arrives_as_itself(processes: Any, name: str) -> None:
    results = list(processes.map(raising.make, [name] * 4, chunksize=4))
    assert name == "slotted" or all(same(error, name) for (error,) in results)
    if name != "base":
        for result in processes.map(raising.throw, [name] * 4, chunksize=4, results=True):
            assert same(result.error, name)


# Pickle leaves the slots of exceptions out, and what has no other fault goes by pickle.
@pytest.mark.parametrize("name", [name for name in raising.MAKERS if name != "slotted"])
def test_exceptions_as_arguments_and_results(processes: Any, name: str) -> None:
    error = raising.MAKERS[name]()
    sent = [(type(error).__name__, str(error), 7)]
    assert processes.submit(raising.describe, [error]).result(60) == sent
    assert same(processes.submit(raising.make, name).result(60)[0], name)
    assert same(processes.submit(tasks.identity, error).result(60), name)
    # Among buffers beside the stream, too.
    assert same(processes.submit(tasks.identity, [error, bytearray(1 << 20)]).result(60)[0], name)


def test_a_slot_without_a_value_has_none(processes: Any) -> None:
    error = processes.submit(raising.throw, "slotted").exception(60)
    assert not hasattr(error, "unset")


def test_the_parts_of_an_os_error(processes: Any) -> None:
    error = processes.submit(raising.throw, "oserror").exception(60)
    assert (error.errno, error.strerror, error.filename) == (2, "not there", "/a/path")


def test_notes_and_causes(processes: Any) -> None:
    error = processes.submit(raising.throw_with_notes).exception(60)
    assert isinstance(error, raising.Keyword)
    assert error.__notes__ == ["a note"]
    assert "KeyError: 'the cause'" in str(error.__cause__)
    assert "a note" in str(error.__cause__)


def test_a_group_keeps_what_can_be_sent(processes: Any) -> None:
    error = processes.submit(raising.throw_group).exception(60)
    assert type(error) is ExceptionGroup
    first, inner = error.exceptions
    assert same(first, "keyword")
    assert type(inner) is ExceptionGroup
    locked, frozen = inner.exceptions
    assert isinstance(locked, ropewalk.RemoteError)
    assert "Locked" in str(locked)
    assert "lock" in str(locked)
    assert isinstance(frozen, raising.Frozen)
    assert frozen.code == 2


def test_one_that_cannot_be_sent_is_named(processes: Any) -> None:
    error = processes.submit(raising.throw_locked).exception(60)
    assert isinstance(error, ropewalk.RemoteError)
    assert "tests.raising.Locked" in str(error)
    assert "cannot pickle '_thread.lock' object" in str(error)
    assert "raise Locked(7)" in str(error.__cause__)


@pytest.mark.parametrize(("call", "outcome"), [("skip", "Skipped"), ("fail", "Failed"), ("exit", "Exit")])
def test_outcomes_of_pytest(processes: Any, call: str, outcome: str) -> None:
    kind: Any = getattr(pytest, call).Exception
    error = processes.submit(getattr(pytest, call), "a reason").exception(60)
    assert type(error) is kind
    assert error.msg == "a reason"
    assert kind.__name__ == outcome
    assert type(processes.submit(tasks.identity, kind("given")).result(60)) is kind


def test_those_of_the_program_s_own_module(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        (ROOT / "tests" / "raising.py").read_text()
        + textwrap.dedent(
            """
            import ropewalk
            def identity(value): return value
            with ropewalk.Pool(1, kind="process") as pool:
                for name in MAKERS:
                    raised = pool.submit(throw, name).exception(60)
                    made = pool.submit(make, name).result(60)
                    [back] = pool.submit(identity, [MAKERS[name]()]).result(60)
                    for error in (raised,) if name == "slotted" else (raised, *made, back):
                        assert type(error) is type(MAKERS[name]()), (name, error)
                        assert error.code == 7 and str(error) == str(MAKERS[name]()), (name, error)
                    seen = pool.submit(describe, [MAKERS[name]()]).result(60)
                    assert seen == describe([MAKERS[name]()]), (name, seen)
                group = ExceptionGroup("many", [MAKERS["keyword"](), MAKERS["frozen"]()])
                assert [error.code for error in pool.submit(identity, group).result(60).exceptions] == [7, 7]
            print("all")
            """
        )
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("all\n", 0), done.stderr
