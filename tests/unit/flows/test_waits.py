"""Waits: sleeps and events, over the end of the process and without a thread."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until
from tests.tasks import Noted, identity
from tests.unit.flows.conftest import begin

import ropewalk
from ropewalk.flows import Flows, flow, send, sleep, sleep_until, step, wait_event
from ropewalk.flows._history import history_of


@flow
def waiting(*names: str) -> list[Any]:
    return [wait_event(name) for name in names]


def wake_time(path: Path, id: str = "run") -> float | None:
    (only,) = history_of(str(path)).runs[id].steps.values()
    return only.until


# --- sleeps -----------------------------------------------------------------------------------------------------------


@flow
def asleep(seconds: float, value: Any) -> Any:
    sleep(seconds)
    return step(identity, value)


def test_a_sleep_keeps_its_time_over_openings(path: Path) -> None:
    before = time.time()
    begin(path, asleep, 3600, "awake")
    after = time.time()
    until_then = wake_time(path)
    assert until_then is not None
    assert before + 3600 <= until_then <= after + 3600
    begin(path, asleep, 3600, "awake")
    assert wake_time(path) == until_then


def test_a_sleep_that_is_over_at_the_next_opening(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(path, asleep, 3600, "awake")
    now = time.time
    monkeypatch.setattr("ropewalk.flows._execution.time.time", lambda: now() + 3601)
    with Flows(path) as flows:
        assert flows.get("run").result(30) == "awake"


@pytest.mark.usefixtures("impatient")
def test_sleeping_runs_wake_in_the_order_of_their_times(path: Path) -> None:
    woken: list[int] = []
    with Flows(path, max_running=1) as flows:
        for number in (3, 1, 2):
            flows.start(asleep, number * 0.1, number).add_done_callback(
                lambda run: woken.append(run.result(0))
            )
        until(lambda: len(woken) == 3)
    assert woken == [1, 2, 3]


def test_until_a_time(path: Path) -> None:
    @flow
    def timed(when: Any) -> str:
        sleep_until(when)
        return "awake"

    past = datetime.now(UTC) - timedelta(days=1)
    with Flows(path) as flows:
        for when in (past, past.replace(tzinfo=None), past.timestamp(), 0, time.time() + 0.01):
            assert flows.start(timed, when).result(30) == "awake"
        later = flows.start(timed, past + timedelta(days=2), id="later")
        until(lambda: later.state == "sleeping")
        until(lambda: "later" in history_of(str(path)).runs and history_of(str(path)).runs["later"].steps)
        assert wake_time(path, "later") == (past + timedelta(days=2)).timestamp()
        for wrong in (True, timedelta(1), float("nan"), "tomorrow"):
            with pytest.raises(TypeError, match="when must be"):
                flows.start(timed, wrong).result(30)
        flows.close(finish=False)


def test_wrong_waits(path: Path) -> None:
    calls: list[Callable[[], object]] = [
        lambda: sleep(-1),
        lambda: sleep("1"),  # type: ignore[arg-type]
        lambda: wait_event(""),
        lambda: wait_event("x", timeout=-1),
    ]

    @flow
    def wrong(index: int) -> object:
        return calls[index]()

    with Flows(path) as flows:
        for index in range(len(calls)):
            assert isinstance(flows.start(wrong, index).exception(30), (TypeError, ValueError))
        for name in ("", 3):
            with pytest.raises(TypeError, match="name of an event"):
                flows.send(name)  # type: ignore[arg-type]


# --- events -----------------------------------------------------------------------------------------------------------


def test_events_before_and_after_the_wait(path: Path) -> None:
    with Flows(path) as flows:
        flows.send("early", 1)
        run = flows.start(waiting, "early", "late", "early")
        until(lambda: run.state == "waiting")
        flows.send("late", {"two": 2})
        flows.send("other", 4)
        until(lambda: run.state == "waiting" and len(run.steps()) == 3)
        flows.send("early", 3)
        assert run.result(30) == [1, {"two": 2}, 3]
        assert flows.start(waiting, "early", "early").result(30) == [1, 3]


def test_an_event_has_a_value_of_its_own(path: Path) -> None:
    with Flows(path) as flows:
        flows.send("plain")
        assert flows.start(waiting, "plain").result(30) == [True]
        with pytest.raises((TypeError, AttributeError)):
            flows.send("lock", threading.Lock())


def test_the_same_event_is_that_of_the_same_wait_over_openings(path: Path) -> None:
    begin(path, waiting, "go", "go", "go")
    for value in (1, 2):
        with Flows(path) as flows:
            flows.send("go", value)
            until(lambda flows=flows, value=value: len(flows.get("run").steps()) == value + 1)
            flows.close(finish=False)
    with Flows(path) as flows:
        flows.send("go", 3)
        assert flows.get("run").result(30) == [1, 2, 3]


@pytest.mark.usefixtures("impatient")
def test_runs_that_wait_take_no_thread(path: Path) -> None:
    with Flows(path, max_running=2) as flows:
        runs = [flows.start(waiting, "go", "on") for _ in range(100)]
        assert flows.wait(30)
        assert {run.state for run in runs} == {"waiting"}
        assert not [thread for thread in threading.enumerate() if thread.name == "ropewalk-flow"]
        flows.send("go", 1)
        until(lambda: {len(run.steps()) for run in runs} == {2})
        flows.send("on", 2)
        assert [run.result(30) for run in runs] == [[1, 2]] * 100


@pytest.mark.usefixtures("impatient")
def test_a_wait_that_ran_out_of_time_takes_no_event(path: Path) -> None:
    @flow
    def second() -> Any:
        return wait_event("go", timeout=0, default="none"), wait_event("go")

    with Flows(path) as flows:
        run = flows.start(second)
        until(lambda: run._phase == "suspended")
        flows.send("go", "first")
        assert run.result(30) == ("none", "first")


@pytest.mark.usefixtures("impatient")
def test_a_run_that_goes_on_is_not_woken_by_what_it_waited_for(path: Path, double: Noted) -> None:
    @flow
    def once(double: Noted) -> Any:
        wait_event("go", timeout=0.01)
        double(1)  # Each execution of the code calls it.
        return wait_event("on")

    with Flows(path) as flows:
        run = flows.start(once, double)
        until(lambda: double.calls() == Counter([1]) and run._phase == "suspended")
        flows.send("go")
        assert flows.wait(30)
        flows.send("on", "value")
        assert run.result(30) == "value"
    assert double.calls() == Counter([1, 1])


@pytest.mark.parametrize("patience", ["patient", "impatient"])
def test_a_timeout_gives_the_default_and_stays(
    path: Path, request: pytest.FixtureRequest, patience: str
) -> None:
    if patience == "impatient":
        request.getfixturevalue("impatient")

    @flow
    def limited() -> Any:
        first = wait_event("go", timeout=0.02, default="none")
        return first, wait_event("on")

    begin_over_timeout(path, limited)
    with Flows(path) as flows:
        flows.send("go", "too late")
        flows.send("on")
        assert flows.get("run").result(30) == ("none", True)


def begin_over_timeout(path: Path, flow: Any) -> None:
    with Flows(path) as flows:
        run = flows.start(flow, id="run")
        until(lambda: len(run.steps()) == 2 and run.state == "waiting")
        flows.close(finish=False)


def test_a_time_limit_begins_once(path: Path) -> None:
    @flow
    def limited() -> Any:
        return wait_event("go", timeout=3600, default="none")

    begin(path, limited)
    limit = wake_time(path)
    assert limit is not None
    assert time.time() + 3000 < limit < time.time() + 3601
    begin(path, limited)
    assert wake_time(path) == limit


def test_many_senders_and_one_order(path: Path) -> None:
    with Flows(path) as flows:
        senders = [
            threading.Thread(target=lambda first=first: [flows.send("n", first + n) for n in range(20)])
            for first in (0, 100, 200, 300)
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        events = list(flows._engine.history.events["n"].values)
    assert len(events) == 80
    assert history_of(str(path)).events["n"].values == events


# --- requests of other processes --------------------------------------------------------------------------------------


def test_send_of_this_process(path: Path) -> None:
    with pytest.raises(ropewalk.JournalError, match="No such file"):
        send(path, "go")
    with Flows(path) as flows:
        run = flows.start(waiting, "go", "go")
        send(path, "go", [1])
        send(path, "go", [2])
        assert run.result(30) == [[1], [2]]
        with pytest.raises(TypeError, match="name of an event"):
            send(path, "")


def test_send_of_another_process(path: Path) -> None:
    with Flows(path) as flows:
        run = flows.start(waiting, "go")
        code = f"from ropewalk.flows import send; send({str(path)!r}, 'go', {{'from': 'elsewhere'}})"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
        assert run.result(30) == [{"from": "elsewhere"}]


def received(flows: Flows) -> int:
    return len(flows._engine.history.events["go"].values)


def test_requests_are_served_exactly_once(path: Path) -> None:
    begin(path, waiting, *["go"] * 7)
    sent = 0
    for count in (3, 0, 2):
        for _ in range(count):
            send(path, "go", sent)
            sent += 1
        with Flows(path) as flows:
            until(lambda flows=flows, sent=sent: len(flows.get("run").steps()) == sent + 1)
            assert received(flows) == sent
            flows.close(finish=False)
    with Flows(path) as flows:
        for _ in range(2):
            send(path, "go", sent)
            sent += 1
        assert flows.get("run").result(30) == [0, 1, 2, 3, 4, 5, 6]
        flows.forget("run")
    with Flows(path) as flows:
        assert received(flows) == 7
        send(path, "go", 7)
        until(lambda: received(flows) == 8)


def test_requests_that_are_none_are_refused(path: Path) -> None:
    with Flows(path) as flows:
        flows.start(waiting, "go", id="run")
        send(path, "other")  # The first record of the file says its number.
        with ropewalk.journal.Journal(f"{path}.requests") as requests:
            for request in (b"\xff", b"[]", b"{}", b'{"do": "event"}', b'{"do": "cancel", "id": "other"}'):
                requests.append(request)
        send(path, "go", 5)
        assert flows.get("run").result(30) == [5]
    assert len(history_of(str(path)).refused) == 5


def test_refused_requests_fill_no_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Flows(path) as flows:
        engine = flows._engine
        for number in range(1, 301):
            engine.refuse_request(number, f"request {number}", "it is none")
        assert len(engine.history.refused) == 100
        assert engine.history.refused[-1][1] == "request 300"
    assert len(history_of(str(path)).refused) == 100


def test_steps_go_on_while_the_journal_is_compacted(
    path: Path, double: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()

    @flow
    def goes_on() -> int:
        step(gate.wait, 30, name="gate")
        return step(double, 1) + step(double, 2)

    with Flows(path) as flows:
        flows.start(waiting, id="old").result(30)
        run = flows.start(goes_on, id="run")
        until(run.steps)
        real = ropewalk.Journal.compact

        def slow(journal: Any, snapshot: Any, upto: int | None = None) -> None:
            gate.set()
            until(lambda: [one.state for one in run.steps()] == ["finished"] * 3)
            real(journal, snapshot, upto)

        monkeypatch.setattr(ropewalk.Journal, "compact", slow)
        assert flows.forget("old") == ["old"]
        assert run.result(30) == 6
    history = history_of(str(path))
    assert list(history.runs) == ["run"]
    assert len(history.runs["run"].steps) == 3


def test_a_cancellation_that_comes_while_no_process_has_the_runs(path: Path, double: Noted) -> None:
    from ropewalk.flows._requests import post

    begin(path, waiting, "go")
    post(str(path), {"do": "cancel", "id": "run"})
    send(path, "go")
    with Flows(path) as flows:
        assert flows.get("run").state == "cancelled"
        assert isinstance(flows.get("run").exception(0), ropewalk.FlowCancelled)


# --- events for one run -----------------------------------------------------------------------------------------------


@flow
def takes(count: int) -> list[Any]:
    return [wait_event("go") for _ in range(count)]


def test_an_event_for_one_run_is_that_run_s_alone(path: Path, impatient: None) -> None:
    with Flows(path) as flows:
        runs = {id: flows.start(takes, 2, id=id) for id in ("one", "other")}
        until(lambda: all(run.state == "waiting" for run in runs.values()))
        flows.send("go", "yours", run="one")
        flows.send("go", "all's")
        assert runs["one"].result(30) == ["yours", "all's"]
        until(lambda: len(runs["other"].steps()) == 2)
        flows.send("go", "the other's", run="other")
        assert runs["other"].result(30) == ["all's", "the other's"]
        # It stays: one that comes before the wait counts too.
        assert flows.start(takes, 1, id="later").result(30) == ["all's"]


def test_an_event_for_one_run_survives_the_process(path: Path) -> None:
    begin(path, takes, 3, id="one")
    begin(path, takes, 2, id="other")
    with Flows(path, resume=False) as flows:
        flows.send("go", 1, run="one")
        flows.send("go", 2)
    with Flows(path) as flows:
        until(lambda: len(flows.get("one").steps()) == 3 and len(flows.get("other").steps()) == 2)
        flows.close(finish=False)
    with Flows(path) as flows:
        flows.send("go", 3, run="one")
        flows.send("go", 4)
        assert flows.get("one").result(30) == [1, 2, 3]
        assert flows.get("other").result(30) == [2, 4]


def test_events_for_one_run_need_a_run_that_can_receive_them(path: Path) -> None:
    with Flows(path) as flows:
        flows.start(takes, 0, id="done").result(30)
        with pytest.raises(ropewalk.FlowUnknown, match="has no run 'gone'"):
            flows.send("go", run="gone")
        with pytest.raises(ropewalk.FlowError, match="'done' has succeeded"):
            flows.send("go", run="done")
        with pytest.raises(ropewalk.FlowUnknown, match="has no run 'gone'"):
            send(path, "go", run="gone")
        with pytest.raises(TypeError, match="id must be text"):
            flows.send("go", run=7)  # type: ignore[arg-type]
        assert "go" not in flows._engine.history.events


def test_an_event_for_one_run_comes_from_another_process_too(path: Path) -> None:
    with Flows(path) as flows:
        one, other = (flows.start(takes, 1, id=id) for id in ("one", "other"))
        send(path, "go", "yours", run="one")
        assert one.result(30) == ["yours"]
        send(path, "go", "all's")
        assert other.result(30) == ["all's"]


def test_forgetting_keeps_the_places_of_events_for_one_run(path: Path, impatient: None) -> None:
    with Flows(path) as flows:
        waits = flows.start(takes, 3, id="waits")
        ends = flows.start(takes, 1, id="ends")
        flows.send("go", "s" * 10_000, run="ends")
        assert ends.result(30) == ["s" * 10_000]
        flows.send("go", 1)
        until(lambda: len(waits.steps()) == 2)
        assert flows.forget("ends") == ["ends"]
        assert path.stat().st_size < 8_000, "nobody receives the value any more"
        flows.send("go", 2, run="waits")
        until(lambda: len(waits.steps()) == 3)
        flows.close(finish=False)
    with Flows(path) as flows:
        # A new run has the number of none that an event names.
        assert flows.start(takes, 1, id="ends").result(30) == [1]
        flows.send("go", 3)
        assert flows.get("waits").result(30) == [1, 2, 3]


# --- the end of a block -----------------------------------------------------------------------------------------------


def closings(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record for record in caplog.records if "was closed with" in record.getMessage()]
    assert {record.levelno for record in said} <= {logging.INFO}
    assert {record.name for record in said} <= {"ropewalk.flows"}
    return [record.getMessage() for record in said]


def test_a_block_says_what_it_leaves(path: Path, impatient: None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    when = datetime.now() + timedelta(hours=1)  # noqa: DTZ005 - the log has local time.

    def sleeping() -> None:
        sleep_until(when)

    sleeps = flow(name="sleeps_long")(sleeping)
    with Flows(path) as flows:
        flows.start(sleeps, id="sleeps")
        flows.start(asleep, 7200.0, 1, id="sleeps longer")
        flows.start(waiting, "approved", id="waits")
        flows.start(waiting, "approved", id="waits too")
    (said,) = closings(caplog)
    assert said == (
        f"{path} was closed with 4 runs asleep or waiting: 2 for a time, the first until {when:%Y-%m-%d %H:%M:%S}, "
        f"and 2 for events (approved). They go on when Flows opens the file again"
    )


@pytest.mark.parametrize("finish", [True, False])
def test_a_closing_says_what_waits_for_events(
    path: Path, impatient: None, caplog: pytest.LogCaptureFixture, finish: bool
) -> None:
    caplog.set_level(logging.INFO)
    flows = Flows(path)
    for number in range(7):
        run = flows.start(waiting, f"event-{number}")
        until(lambda run=run: run._phase == "suspended")
    flows.close(finish=finish)
    flows.close()
    (said,) = closings(caplog)
    assert (
        "with 7 runs asleep or waiting: 7 for events (event-0, event-1, event-2, event-3, event-4, ...). They"
        in said
    )


def test_a_block_that_leaves_nothing_says_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Flows(path) as flows:
        flows.start(waiting).result(30)
    assert not closings(caplog)
