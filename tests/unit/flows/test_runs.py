"""Runs: how they are named, end, stop, go on, are copied and forgotten."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.forking import in_a_child
from tests.polling import until
from tests.tasks import Noted, add, fail, identity, raise_until
from tests.unit.flows.conftest import begin, go_on

import ropewalk
from ropewalk import journal
from ropewalk.flows import Flows, flow, sleep, step, wait_event
from ropewalk.flows._flow import known
from ropewalk.flows._history import history_of


@flow
def doubled(double: Noted, number: int) -> int:
    return int(step(double, number))


@flow
def added(left: Any, right: Any = 1) -> Any:
    return step(add, left, right)


@flow
def held(gate: Any, value: Any = None) -> Any:
    return step(gate.hold, "task", value)


@flow
def patient(double: Noted) -> Any:
    found = step(double, 1)
    wait_event("go")
    return found + step(double, 2)


# --- ids and results --------------------------------------------------------------------------------------------------


def test_an_id_stands_for_one_call(path: Path, double: Noted) -> None:
    with Flows(path) as flows:
        run = flows.start(doubled, double, 4, id="one")
        assert flows.start(doubled, double, 4, id="one") is run
        assert run.result(30) == 8
        assert flows.start(doubled, double, 4, id="one").result(0) == 8
        with pytest.raises(ropewalk.FlowExists, match="other arguments"):
            flows.start(doubled, double, 5, id="one")
        with pytest.raises(ropewalk.FlowExists, match="is that of a run of doubled, not of added"):
            flows.start(added, 4, id="one")
    with Flows(path) as flows:
        assert flows.start(doubled, double, 4, id="one").result(0) == 8
        with pytest.raises(ropewalk.FlowExists):
            flows.start(doubled, double, 5, id="one")
    assert double.calls() == Counter([4])


def test_without_an_id_each_start_is_a_run(path: Path) -> None:
    with Flows(path) as flows:
        runs = [flows.start(added, 1) for _ in range(3)]
        assert len({run.id for run in runs}) == 3
        assert flows.runs() == runs
        assert all(run.id.startswith("added-") for run in runs)
        assert [flows.get(run.id) for run in runs] == runs
        with pytest.raises(ropewalk.FlowUnknown, match="has no run 'other'"):
            flows.get("other")


def test_wrong_starts(path: Path) -> None:
    with Flows(path) as flows:
        for id, kind in (("", ValueError), ("a\nb", ValueError), ("x" * 501, ValueError), (3, TypeError)):
            with pytest.raises(kind, match="id must be"):
                flows.start(added, 1, id=id)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="decorate the function with @flow"):
            flows.start(add, 1)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="the arguments of added have no key"):
            flows.start(added, threading.Lock())
        with pytest.raises(TypeError, match=r"the arguments of added cannot be recorded: .* Pass what they"):
            flows.start(added, lambda: 1)
        assert flows.runs() == []


def test_wrong_flows_and_settings(path: Path) -> None:
    async def late() -> None: ...

    def many() -> Any:
        yield

    for function, words in (
        (late, "asynchronous"),
        (many, "generator"),
        (max, "plain function"),
        (added, "again"),
    ):
        with pytest.raises(TypeError, match=words):
            flow(function)  # type: ignore[type-var, arg-type]
    with pytest.raises(TypeError, match="name"):
        flow(name="")
    with pytest.raises(ValueError, match="code"):
        flow(code="else")  # type: ignore[call-overload]
    elsewhere = type(add)(add.__code__, {"__name__": "elsewhere"})
    elsewhere.__qualname__ = "added"
    with pytest.raises(ValueError, match="both flows of the name 'added'"):
        flow(elsewhere)
    for wrong in ({"pool": 3}, {"max_running": 0}, {"resume": 1}, {"deliveries": 3}):
        with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
            Flows(path, **wrong)  # type: ignore[arg-type]
    assert not path.exists()


def test_one_name_is_that_of_one_function(path: Path) -> None:
    def one() -> int:
        return 1

    def other() -> int:
        return 2

    def again(number: int) -> Any:
        def made() -> int:
            return number

        return flow(name="made again")(made)

    first = flow(name="contested")(one)
    with pytest.raises(
        ValueError, match=r"other and .*one are both flows of the name 'contested'.* give one of"
    ):
        flow(name="contested")(other)
    with Flows(path) as flows:
        assert flows.start(first, id="run").result(30) == 1
        # As a module that is loaded again, and a cell of a notebook that is run again.
        older, newer = again(3), again(4)
        assert known("made again") is newer
        assert flows.start(newer).result(30) == 4
    del flows, older
    # What no program can reach is in no function's way.
    first.cycle = first
    del first
    assert flow(name="contested")(other).function() == 2


def test_the_outcome_of_a_run(path: Path, gate: Any) -> None:
    called: list[str] = []
    before = datetime.now(UTC)
    with Flows(path) as flows:
        run = flows.start(held, gate, "value", id="run")
        run.add_done_callback(lambda run: called.append(run.state))
        assert (run.state, run.done(), run.ended, run.flow) == ("running", False, None, "held")
        with pytest.raises(TimeoutError):
            run.result(0.01)
        assert repr(run) == "<Run 'run' of held, running>"
        gate.open()
        assert run.result(30) == "value"
        assert run.exception(0) is None
        assert (run.state, run.done()) == ("succeeded", True)
        assert run.ended is not None
        assert before - timedelta(seconds=1) <= run.began <= run.ended
        # As with futures of the standard library, `result` may return before the callbacks are called.
        until(lambda: called == ["succeeded"])
        run.add_done_callback(lambda run: called.append(run.id))
        assert called == ["succeeded", "run"]
        failed = flows.start(flow(name="failing")(lambda: step(fail, "so")))
        assert isinstance(failed.exception(30), ValueError)
        assert (failed.state, failed.done()) == ("failed", True)
        assert repr(flows) == f"<Flows '{path}', 2 runs>"
    assert repr(flows) == f"<Flows '{path}', closed>"
    assert run.result(0) == "value"


def test_await_and_a_cancelled_waiter(path: Path, gate: Any) -> None:
    async def wait(flows: Flows) -> Any:
        run = flows.start(held, gate, 7)

        async def waiter() -> Any:
            return await run

        task = asyncio.create_task(waiter())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert run.state == "running"
        gate.open()
        return await run

    with Flows(path) as flows:
        assert asyncio.run(wait(flows)) == 7


# --- cancel and retry -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["none", "process"])
def test_cancel_while_a_step_runs(path: Path, gate: Any, make_pool: Callable[..., Any], kind: str) -> None:
    @flow
    def two_steps(gate: Any) -> Any:
        step(gate.hold, "first")
        return step(gate.mark, "second")

    pool = None if kind == "none" else make_pool(1, kind=kind)
    with Flows(path, pool=pool) as flows:
        run = flows.start(two_steps, gate, id="run")
        until(lambda: gate.marks("first"))
        assert run.cancel()
        if pool is None:
            gate.open()  # A step in the flow's thread runs to its end.
        with pytest.raises(ropewalk.FlowCancelled):
            run.result(30)
        assert run.state == "cancelled"
        assert run.cancel()
        assert gate.marks("second") == []
    with Flows(path) as flows:
        run = flows.get("run")
        assert isinstance(run.exception(0), ropewalk.FlowCancelled)
        gate.open()
        run.retry()
        run.result(30)
        assert len(gate.marks("second")) == 1


def test_cancel_while_it_waits(path: Path, double: Noted) -> None:
    @flow
    def asleep(double: Noted) -> Any:
        found = step(double, 3)
        sleep(3600)
        return found

    with Flows(path) as flows:
        for started, state in (
            (flows.start(patient, double), "waiting"),
            (flows.start(asleep, double), "sleeping"),
        ):
            until(lambda started=started, state=state: started.state == state)
            assert started.cancel()
            with pytest.raises(ropewalk.FlowCancelled):
                started.result(30)
        flows.send("go")
        waiting = flows.runs()[0]
        waiting.retry()
        assert waiting.result(30) == 6
        with pytest.raises(ropewalk.FlowError, match="has succeeded"):
            waiting.retry()
        assert not waiting.cancel()
    assert double.calls() == Counter([1, 2, 3])


@pytest.mark.usefixtures("impatient")
def test_an_event_does_not_wake_a_run_that_has_ended(path: Path, double: Noted) -> None:
    with Flows(path) as flows:
        run = flows.start(patient, double)
        until(lambda: run._phase == "suspended")
        assert run.cancel()
        outcome = run._outcome()
        flows.send("go")
        flows.wait(30)
        assert run._outcome() is outcome
        assert run.done()


def test_cancel_while_it_is_queued(path: Path, gate: Any, double: Noted) -> None:
    with Flows(path, max_running=1) as flows:
        first = flows.start(held, gate, 1)
        until(lambda: gate.marks())
        queued, other = flows.start(doubled, double, 1), flows.start(doubled, double, 2)
        with pytest.raises(ropewalk.FlowError, match="is running"):
            other.retry()
        assert queued.cancel()
        assert isinstance(queued.exception(0), ropewalk.FlowCancelled)
        queued.retry()
        assert other.cancel()
        assert (queued.state, other.state) == ("running", "cancelled")
        assert double.calls() == Counter()
        gate.open()
        assert first.result(30) == 1
        assert queued.result(30) == 2
    assert double.calls() == Counter([1])


def test_more_runs_than_may_run_are_queued(path: Path, gate: Any) -> None:
    with Flows(path, max_running=2) as flows:
        runs = [flows.start(held, gate, number) for number in range(1, 6)]
        until(lambda: len(gate.marks()) == 2)
        assert [run.state for run in runs] == ["running"] * 5
        assert len([thread for thread in threading.enumerate() if thread.name == "ropewalk-flow"]) == 2
        gate.open()
        assert [run.result(30) for run in runs] == [1, 2, 3, 4, 5]


# --- closing and resuming ---------------------------------------------------------------------------------------------


def test_one_process_has_the_journal(path: Path, double: Noted) -> None:
    with Flows(path) as flows:
        with pytest.raises(ropewalk.JournalLocked, match="this process has the journal") as refused:
            Flows(path)
        (note,) = refused.value.__notes__
        assert re.search(rf"by the Flows that {re.escape(__file__)}:\d+ has made", note)
        assert flows.start(doubled, double, 1).result(30) == 2

        def use() -> None:
            for call in (
                lambda: flows.start(doubled, double, 2),
                lambda: flows.send("x"),
                flows.runs()[0].cancel,
            ):
                with pytest.raises(ropewalk.FlowsClosed, match="forked"):
                    call()
            flows.close()

        # Another thread has the lock of the flows while the child is made.
        taken, released = threading.Event(), threading.Event()

        def take() -> None:
            with flows._engine.lock:
                taken.set()
                released.wait(30)

        other = threading.Thread(target=take)
        other.start()
        taken.wait(30)
        try:
            assert in_a_child(use) == 0
        finally:
            released.set()
            other.join(30)
        assert flows.start(doubled, double, 3).result(30) == 6


def test_a_journal_of_something_else_is_refused(path: Path, tmp_path: Path) -> None:
    with journal.Journal(path) as other:
        other.append(b"a record")
    with pytest.raises(ropewalk.NotAJournal, match="not of flows"):
        Flows(path)
    with journal.Journal(path):  # It was closed again.
        pass
    (tmp_path / "text").write_text("x" * 200)
    with pytest.raises(ropewalk.NotAJournal):
        Flows(tmp_path / "text")


def test_closing_waits_for_the_runs(path: Path, gate: Any) -> None:
    flows = Flows(path)
    run = flows.start(held, gate, 3)
    closing = threading.Thread(target=flows.close)
    closing.start()
    until(lambda: gate.marks())
    assert closing.is_alive()
    gate.open()
    closing.join(30)
    assert run.result(0) == 3
    assert flows.closed
    flows.close()
    for call in (
        lambda: flows.start(added, 1),
        lambda: flows.send("go"),
        run.retry,
        lambda: flows.forget(run.id),
    ):
        with pytest.raises(ropewalk.FlowsClosed):
            call()


def test_closing_without_the_end_finishes_the_step(path: Path, gate: Any, double: Noted) -> None:
    @flow
    def two_steps(gate: Any, double: Noted) -> Any:
        return step(gate.hold, "task", 5), step(double, 1)

    def leave() -> None:
        with Flows(path) as flows:
            runs.append(flows.start(two_steps, gate, double, id="run"))
            until(lambda: gate.marks())
            threading.Timer(0.05, gate.open).start()
            raise LookupError("of the block")

    runs: list[Any] = []
    with pytest.raises(LookupError, match="of the block"):
        leave()
    with pytest.raises(ropewalk.FlowsClosed, match=r"'run'.*goes on when Flows opens the journal again"):
        runs[0].result(0)
    assert double.calls() == Counter()
    with Flows(path) as flows:
        assert flows.get("run").result(30) == (5, 2)
    assert len(gate.marks()) == 1


def test_runs_go_on_at_opening_or_when_they_are_started(path: Path, double: Noted) -> None:
    begin(path, patient, double)
    with Flows(path, resume=False) as flows:
        run = flows.get("run")
        assert run.state == "stopped"
        flows.send("go")
        assert flows.wait(30)
        assert double.calls() == Counter([1])
        assert flows.start(patient, double, id="run") is run
        assert run.result(30) == 6


def test_a_run_without_its_flow_waits_for_it(
    path: Path, double: Noted, caplog: pytest.LogCaptureFixture
) -> None:
    def define() -> Any:
        return flow(name="missing")(patient._function)

    first = define()
    begin(path, first, double)
    begin(path, first, double, id="other")
    del first
    gc.collect()
    with caplog.at_level(logging.WARNING, "ropewalk.flows"):
        with Flows(path) as flows:
            run = flows.get("run")
            assert run.state == "stopped"
            assert "runs of missing wait for their code" in caplog.text
            flows.send("go")
            with pytest.raises(ropewalk.FlowUnknown, match="no flow of the name 'missing'"):
                run.retry()
            # The start of one lets the others go on.
            later = define()
            assert flows.start(later, double, id="new").result(30) == 6
            assert (run.result(30), flows.get("other").result(30)) == (6, 6)


# --- code -------------------------------------------------------------------------------------------------------------


def defined(code: Any, text: str) -> Any:
    """A flow of the name "coded", made from the text of its function."""
    names: dict[str, Any] = {"step": step, "wait_event": wait_event, "__name__": "coded"}
    exec(text, names)
    return flow(name="coded", code=code)(names["coded"])


ONE = "def coded(work):\n    found = step(work, 1)\n    wait_event('go')\n    return found\n"
TWO = "def coded(work):\n    found = step(work, 1)\n    wait_event('go')\n    return found + step(work, 2)\n"


def test_changed_code_refuses(path: Path, double: Noted) -> None:
    old = defined("refuse", ONE)
    begin(path, old, double)
    new = defined("refuse", TWO)
    with Flows(path) as flows:
        flows.send("go")
        run = flows.get("run")
        with pytest.raises(ropewalk.FlowCodeChanged, match=r"'run'.*goes on with the new code"):
            run.result(0)
        assert run.state == "stopped"
        assert repr(run) == "<Run 'run' of coded, stopped, its code has changed>"
        with pytest.raises(ropewalk.FlowCodeChanged):
            flows.start(new, double, id="run")
        run.retry()
        assert run.result(30) == 6
    assert double.calls() == Counter([1, 2])
    with Flows(path) as flows:
        assert flows.start(new, double, id="run").result(0) == 6


def test_a_refused_run_can_be_cancelled(path: Path, double: Noted) -> None:
    old = defined("refuse", ONE)
    begin(path, old, double)
    new = defined("refuse", TWO)
    with Flows(path) as flows:
        run = flows.get("run")
        assert isinstance(run.exception(0), ropewalk.FlowCodeChanged)
        assert run.cancel()
        assert isinstance(run.exception(0), ropewalk.FlowCancelled)
        assert repr(run) == "<Run 'run' of coded, cancelled>"
    del old, new


def test_changed_code_resumes(path: Path, double: Noted) -> None:
    old = defined("resume", ONE)
    begin(path, old, double)
    new = defined("resume", TWO)
    assert go_on(path) == 6
    assert double.calls() == Counter([1, 2])
    del old, new


def test_changed_code_restarts(path: Path, double: Noted) -> None:
    old = defined("restart", ONE)
    begin(path, old, double)
    new = defined("restart", TWO)
    assert go_on(path) == 6
    assert double.calls() == Counter([1, 1, 2])
    with Flows(path) as flows:
        assert [one.name for one in flows.get("run").steps()] == ["Noted", "go", "Noted"]
    del old, new


def test_changed_code_without_a_finished_step_goes_on(path: Path, double: Noted) -> None:
    old = defined("refuse", "def coded(work):\n    wait_event('go')\n    return 1\n")
    begin(path, old, double)
    new = defined("refuse", ONE)
    assert go_on(path) == 2
    del old, new


BEFORE = """
from ropewalk.flows import flow, step, wait_event

@flow(name="laid out")
def laid_out(work):
    found = step(work, 1)
    wait_event("go")
    return found
"""
AFTER = """
from ropewalk.flows import flow, step, wait_event

NEW = "Something else."

@flow(name="laid out", code="refuse")  # Says the default.
def laid_out( work ):
    '''Has a docstring now.'''
    # And a comment.
    found = step(
        work,
        1,
    )

    wait_event('go')
    return found
"""


def test_comments_and_layout_are_no_other_code(path: Path, tmp_path: Path, double: Noted) -> None:
    states = []
    for number, text in enumerate((BEFORE, AFTER, AFTER.replace("return found", "return -found"))):
        file = tmp_path / f"laid_out_{number}.py"
        file.write_text(text)
        names: dict[str, Any] = {"__name__": "laid_out"}
        exec(compile(text, file, "exec"), names)
        if number == 0:
            begin(path, names["laid_out"], double)
        with Flows(path) as flows:
            run = flows.get("run")
            until(lambda run=run: run.state != "running")
            states.append(run.state)
            flows.close(finish=False)
    assert states == ["waiting", "waiting", "stopped"]
    assert double.calls() == Counter([1])


# --- forget -----------------------------------------------------------------------------------------------------------


def test_forget(path: Path, double: Noted, gate: Any) -> None:
    with Flows(path) as flows:
        for number in range(4):
            flows.start(doubled, double, number, id=f"run-{number}").result(30)
        failed = flows.start(flow(name="unlucky")(lambda: step(fail, "so")), id="failed")
        failed.exception(30)
        waiting = flows.start(held, gate, 9, id="waiting")
        with pytest.raises(ropewalk.FlowError, match="has not ended"):
            flows.forget("run-0", "waiting")
        with pytest.raises(ropewalk.FlowUnknown):
            flows.forget("run-0", "unknown")
        assert flows.forget("run-0", "run-2") == ["run-0", "run-2"]
        assert [run.id for run in flows.runs()] == ["run-1", "run-3", "failed", "waiting"]
        assert flows.get("run-1").result(0) == 2
        assert [one.name for one in flows.get("run-1").steps()] == ["Noted"]
        gate.open()
        assert waiting.result(30) == 9
        assert flows.start(doubled, double, 7, id="run-0").result(30) == 14
    with Flows(path) as flows:
        assert sorted(run.id for run in flows.runs()) == ["failed", "run-0", "run-1", "run-3", "waiting"]
        assert [flows.get(f"run-{number}").result(0) for number in (0, 1, 3)] == [14, 2, 6]
        assert flows.get("waiting").result(0) == 9
        assert isinstance(flows.get("failed").exception(0), ValueError)
        assert flows.forget(older_than=timedelta(hours=1)) == []
        assert flows.forget(older_than=3600) == []
        assert len(flows.forget(older_than=0)) == 5
        assert flows.runs() == []
    with Flows(path) as flows:
        assert flows.runs() == []
        assert flows.start(doubled, double, 8, id="run-0").result(30) == 16


def test_forgetting_keeps_what_comes_meanwhile(
    path: Path, double: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Flows(path) as flows:
        flows.start(doubled, double, 1, id="old").result(30)
        flows.send("counted", "before")
        whole = flows._engine.journal

        class Busy:
            """A journal to which another thread appends while it is read for the compaction."""

            def __getattr__(self, name: str) -> Any:
                return getattr(whole, name)

            def sync(self) -> None:
                monkeypatch.undo()
                whole.sync()
                flows.send("counted", "meanwhile")

        monkeypatch.setattr(flows._engine, "journal", Busy())
        assert flows.forget("old") == ["old"]
        assert flows._engine.journal is whole
        flows.send("counted", "after")
    packed = history_of(str(path)).events["counted"].values
    assert [pickle.loads(value[1:]) for _, value in packed] == ["before", "meanwhile", "after"]


# --- fork -------------------------------------------------------------------------------------------------------------


def test_a_fork_takes_the_steps_before(path: Path, double: Noted) -> None:
    @flow
    def three_steps() -> Any:
        return step(double, 1), step(add, 1, 2), step(double, 3)

    with Flows(path) as flows:
        run = flows.start(three_steps, id="run")
        run.result(30)
        keys = [one.key for one in run.steps()]
        fork = flows.fork("run", "add")
        assert fork.result(30) == (2, 3, 6)
        assert fork.id == "run-fork-1"
        assert double.calls() == Counter([1, 3, 3])
        assert [one.key for one in fork.steps()] == keys
        assert flows.fork("run", keys[2][:8], "chosen").result(30) == (2, 3, 6)
        assert double.calls() == Counter([1, 3, 3, 3])
        assert flows.fork("run", "Noted").result(30) == (2, 3, 6)
        assert double.calls() == Counter([1, 1, 3, 3, 3, 3])
        assert [run.id for run in flows.runs()] == ["run", "run-fork-1", "chosen", "run-fork-2"]
        with pytest.raises(ropewalk.FlowExists):
            flows.fork("run", "add", "chosen")
        with pytest.raises(ropewalk.FlowUnknown, match="its steps are: Noted, add"):
            flows.fork("run", "other")
        with pytest.raises(ropewalk.FlowUnknown, match="no step ''"):
            flows.fork("run", "")
        with pytest.raises(ropewalk.FlowUnknown, match="no run"):
            flows.fork("other", "add")
    with Flows(path) as flows:
        assert flows.get("chosen").result(0) == (2, 3, 6)


def test_the_name_of_a_step_comes_before_the_beginning_of_a_key(path: Path, double: Noted) -> None:
    @flow
    def named() -> Any:
        for number in range(40):
            step(double, number)
        return [step(identity, digit, name=digit) for digit in "0123456789abcdef"]

    with Flows(path) as flows:
        flows.start(named, id="run").result(30)
        for digit in "07f":
            flows.fork("run", digit).result(30)
    assert double.calls() == Counter(range(40))


def test_a_fork_of_a_failed_run_is_a_run_of_its_own(path: Path, gate: Any, double: Noted) -> None:
    @flow
    def fragile() -> Any:
        return step(double, 1), step(raise_until, gate, 2)

    with Flows(path) as flows:
        failed = flows.start(fragile, id="run")
        assert isinstance(failed.exception(30), RuntimeError)
        assert flows.fork("run", "raise_until").result(30) == (2, 2)
        assert failed.state == "failed"
    assert double.calls() == Counter([1])


# --- the end of the program -------------------------------------------------------------------------------------------

#: The flows come first, so the executor's own end of the program would be called before theirs.
ENDING = """
import signal, sys, threading, time
from pathlib import Path
from ropewalk.flows import Flows, flow, step
import concurrent.futures

folder, how = Path(sys.argv[1]), sys.argv[2]

def noted(number):
    (folder / str(number)).touch()
    end = time.monotonic() + 20
    while number == 0 and time.monotonic() < end and not (threading._SHUTTING_DOWN if how == "end" else flows.closed):
        time.sleep(0.001)
    return number

@flow
def several():
    return step.map(noted, range(4)), step(noted, 4)

flows = Flows(folder / "flows.wal", pool=concurrent.futures.ThreadPoolExecutor(1))
flows.start(several, id="run")
while not (folder / "0").exists():
    time.sleep(0.001)
if how == "interrupt":
    signal.raise_signal(signal.SIGINT)
"""


def test_the_program_ends_behind_its_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING, tmp_path, "end"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert history_of(str(tmp_path / "flows.wal")).runs["run"].state == "succeeded"


def test_an_interrupted_program_begins_no_step(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING, tmp_path, "interrupt"], capture_output=True, text=True, timeout=60
    )
    assert done.stderr.strip().endswith("KeyboardInterrupt")
    assert history_of(str(tmp_path / "flows.wal")).runs["run"].state == "running"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "flows.wal"]


def test_ctrl_c_in_a_block_waits_for_no_task_of_an_executor(path: Path) -> None:
    gate, seen = threading.Event(), []

    def held(number: int) -> None:
        seen.append(number)
        assert gate.wait(30)

    holds = flow(name="holds_an_executor")(lambda: step.map(held, range(4), name="held"))

    def interrupted(pool: ThreadPoolExecutor) -> None:
        with Flows(path, pool=pool) as flows:
            flows.start(holds, id="run")
            until(lambda: seen)
            raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyboardInterrupt):
            interrupted(pool)
        gate.set()
    assert seen == [0]


# --- flows that hold everything back ----------------------------------------------------------------------------------


def holding(*, with_steps: bool) -> Any:
    """Returns code that catches everything, and begins again."""

    def holds() -> Any:
        while True:
            try:
                return step(abs, -1) if with_steps else wait_event("never")
            except BaseException:
                continue

    return holds


def test_a_flow_that_holds_its_suspension_back_fails(
    path: Path, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    holds = flow(name="holds_suspension")(holding(with_steps=False))
    with Flows(path, max_running=1) as flows:
        run = flows.start(holds, id="run")
        with pytest.raises(
            ropewalk.FlowError, match=r"holds_suspension has .* 100 times.*`except Exception`"
        ):
            run.result(30)
        assert run.state == "failed"
        # Its thread is lost, and its place is not.
        assert flows.start(added, 1, 2, id="next").result(30) == 3
        assert flows.wait(30)
    assert "except Exception" in history_of(str(path)).runs["run"].error


def test_a_flow_that_holds_its_cancellation_back_is_cancelled(path: Path) -> None:
    begun = threading.Event()

    def holds() -> None:
        while True:
            try:
                begun.set()
                sleep(0.01)
            except BaseException:
                continue

    holding = flow(name="holds_cancellation")(holds)
    with Flows(path, max_running=1) as flows:
        run = flows.start(holding, id="run")
        assert begun.wait(30)
        assert run.cancel()
        with pytest.raises(ropewalk.FlowCancelled):
            run.result(30)
        assert flows.wait(30)
    assert history_of(str(path)).runs["run"].state == "cancelled"


def test_a_flow_that_holds_the_end_back_ends_nothing_else(path: Path) -> None:
    begun = threading.Event()

    def holds() -> None:
        while True:
            try:
                begun.set()
                sleep(0.01)
            except BaseException:
                continue

    holding = flow(name="holds_the_end")(holds)
    flows = Flows(path)
    run = flows.start(holding, id="run")
    assert begun.wait(30)
    flows.close(finish=False)
    with pytest.raises(ropewalk.FlowsClosed):
        run.result(0)
    assert history_of(str(path)).runs["run"].state == "running"


def test_a_flow_that_holds_a_few_back_goes_on(path: Path, impatient: None) -> None:
    def careless() -> Any:
        for _ in range(50):
            try:
                return wait_event("go")
            except BaseException:
                continue
        return "never"

    waits = flow(name="careless")(careless)
    with Flows(path) as flows:
        run = flows.start(waits, id="run")
        until(lambda: run._phase == "suspended")
        flows.send("go", 7)
        assert run.result(30) == 7
