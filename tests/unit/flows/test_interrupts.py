"""Ctrl-C in the middle of a change: what is on the disk has happened, in memory too, and the rest has not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until

import ropewalk
from ropewalk.flows import Flows, Run, flow, step, wait_event
from ropewalk.flows._engine import Engine
from ropewalk.flows._history import History, history_of

BROKEN: list[bool] = []

#: Where Ctrl-C comes: the method, and whether it comes before the method or behind it.
PLACES: dict[str, tuple[Any, str, bool]] = {
    "before the record": (ropewalk.Journal, "append", True),
    "behind the record": (ropewalk.Journal, "append", False),
    "behind the records": (ropewalk.Journal, "append_all", False),
    "behind the compaction": (ropewalk.Journal, "compact", False),
    "before the record counts": (Engine, "apply", True),
    "inside of the record": (History, "apply", False),
    "behind the record counts": (Engine, "apply", False),
    "before the run is queued": (Engine, "queue", True),
    "behind the queue": (Engine, "queue", False),
    "before the thread": (threading.Thread, "start", True),
    "behind the thread": (threading.Thread, "start", False),
}


@flow
def takes_events(count: int) -> list[Any]:
    return [wait_event("go") for _ in range(count)]


@flow
def breaks_at_first() -> int:
    return step(perhaps)


def perhaps() -> int:
    if BROKEN:
        raise ValueError("broken")
    return 5


def interrupted(patch: pytest.MonkeyPatch, place: str, change: Callable[[], object]) -> bool:
    """Makes a change in which the main thread gets Ctrl-C once; returns whether it did."""
    owner, name, before = PLACES[place]
    real = getattr(owner, name)
    left = [True]

    def stopped(*args: Any, **kwargs: Any) -> Any:
        comes = left and threading.current_thread() is threading.main_thread()
        if comes:
            left.clear()
        if not (comes and before):
            real(*args, **kwargs)
        if comes:
            raise KeyboardInterrupt
        return None

    with patch.context() as inner:
        inner.setattr(owner, name, stopped)
        with suppress(KeyboardInterrupt):
            change()
    return not left


def agree(flows: Flows, path: Path) -> None:
    """Memory and file say the same in the end."""
    until(lambda: not flows._engine.is_torn)
    with flows._engine.lock:
        said, known = history_of(str(path)), flows._engine.history
        assert {run.id: (run.number, run.state) for run in said.runs.values()} == {
            run.id: (run.number, run.state) for run in known.runs.values()
        }
        assert {name: events.values for name, events in said.events.items()} == {
            name: events.values for name, events in known.events.items()
        }
        assert list(said.runs) == [run.id for run in flows.runs()]
        assert known.next_number >= said.next_number


@pytest.mark.parametrize("place", PLACES)
def test_a_start(path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    with Flows(path) as flows:
        came = interrupted(monkeypatch, place, lambda: flows.start(breaks_at_first, id="new"))
        assert came == (place not in ("behind the records", "behind the compaction"))
        agree(flows, path)
        if place == "before the record":
            assert flows.runs() == []
        else:
            until(lambda: flows.get("new").state == "succeeded")
        assert flows.start(breaks_at_first, id="new").result(30) == 5
        assert flows.wait(30)


@pytest.mark.parametrize("is_suspended", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_an_event(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    place: str,
    is_suspended: bool,
) -> None:
    if is_suspended:
        request.getfixturevalue("impatient")
    with Flows(path) as flows:
        run = flows.start(takes_events, 2, id="run")
        until(lambda: run._phase == "suspended" if is_suspended else run.state == "waiting")
        until(lambda: not is_suspended or not flows._engine._threads)
        interrupted(monkeypatch, place, lambda: flows.send("go", 1))
        if place != "before the record":
            until(lambda: len(run.steps()) == 2)
        agree(flows, path)
        flows.send("go", 2)
        if place == "before the record":
            flows.send("go", 3)
        assert run.result(30) == ([2, 3] if place == "before the record" else [1, 2])


@pytest.mark.parametrize("place", PLACES)
def test_a_cancellation(path: Path, monkeypatch: pytest.MonkeyPatch, impatient: None, place: str) -> None:
    with Flows(path) as flows:
        run = flows.start(takes_events, 1, id="run")
        until(lambda: run._phase == "suspended")
        interrupted(monkeypatch, place, run.cancel)
        if place != "before the record":
            assert isinstance(run.exception(30), ropewalk.FlowCancelled)
        agree(flows, path)
        assert run.cancel()
        assert run.state == "cancelled"
        flows.send("go", 1)
        run.retry()
        assert run.result(30) == [1]


@pytest.mark.parametrize("place", PLACES)
def test_a_retry(path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    BROKEN.append(True)
    with Flows(path) as flows:
        run = flows.start(breaks_at_first, id="run")
        assert isinstance(run.exception(30), ValueError)
        until(lambda: not flows._engine._threads)
        BROKEN.clear()
        interrupted(monkeypatch, place, run.retry)
        if place == "before the record":
            assert run.state == "failed"
            run.retry()
        until(lambda: run.state == "succeeded")
        assert run.result(30) == 5
        agree(flows, path)
    with Flows(path) as flows:
        assert flows.get("run").result(0) == 5


@pytest.mark.parametrize("place", PLACES)
def test_a_fork(path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    chain = flow(name="chained")(lambda: (step(abs, -1), step(perhaps)))
    with Flows(path) as flows:
        assert flows.start(chain, id="old").result(30) == (1, 5)
        until(lambda: not flows._engine._threads)
        interrupted(monkeypatch, place, lambda: flows.fork("old", "perhaps", "new"))
        if place == "inside of the record":
            # It came while the old run was read.
            assert [run.id for run in flows.runs()] == ["old"]
            flows.fork("old", "perhaps", "new")
        until(lambda: len(flows.runs()) == 2)
        assert flows.get("new").result(30) == (1, 5)
        agree(flows, path)
    assert history_of(str(path)).runs["new"].forked_from == "old"


@pytest.mark.parametrize("place", ["behind the compaction"])
def test_forgetting(path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    with Flows(path) as flows:
        runs: list[Run[Any]] = [flows.start(breaks_at_first, id=id) for id in ("one", "two")]
        assert [run.result(30) for run in runs] == [5, 5]
        assert interrupted(monkeypatch, place, lambda: flows.forget("one"))
        until(lambda: len(flows.runs()) == 1)
        agree(flows, path)
        assert flows.start(breaks_at_first, id="one").result(30) == 5
        agree(flows, path)


def test_a_mending_that_cannot_read_is_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Flows(path) as flows:
        run = flows.start(takes_events, 1, id="run")
        until(lambda: run.state == "waiting")
        os_error = ropewalk.JournalError("no descriptor")

        def unreadable(*args: Any, **kwargs: Any) -> Any:
            raise os_error

        with monkeypatch.context() as patch:
            patch.setattr("ropewalk.flows._mending.history_of", unreadable)
            interrupted(monkeypatch, "behind the record", lambda: flows.send("go", 1))
            with pytest.raises(ropewalk.JournalError, match="no descriptor"):
                flows.send("go", 2)
        assert run.result(30) == [1]
        agree(flows, path)
