"""Each event of a pool has the fields that docs/telemetry.md names for its topic, and no others."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.law.test_events import _table
from tests.polling import until

import ropewalk

TABLE = _table()


@pytest.fixture
def seen() -> Iterator[Callable[..., list[ropewalk.PoolEvent]]]:
    """Collects events; called with a topic it waits for the first ones, and returns all."""
    events: list[ropewalk.PoolEvent] = []
    with ropewalk.events.subscribe("pool.**", capacity=100_000) as subscription:

        def of(topic: str, count: int = 1, seconds: float = 30) -> list[ropewalk.PoolEvent]:
            def found() -> list[ropewalk.PoolEvent]:
                while True:
                    try:
                        events.append(subscription.recv(timeout=0))
                    except TimeoutError:
                        return [event for event in events if event.topic == topic]

            until(lambda: len(found()) >= count, seconds)
            return found()

        yield of
    defaults = {field.name: field.default for field in dataclasses.fields(ropewalk.PoolEvent)}
    for event in events:
        said = {
            name
            for name, value in dataclasses.asdict(event).items()
            if name not in ("topic", "pool") and value not in (None, 0, defaults[name])
        }
        assert said <= TABLE[event.topic], event


class Leaves:
    """A state that notes its end."""

    def __init__(self, note: Path) -> None:
        self.note = note

    def close(self) -> None:
        self.note.touch()


class Kept:
    def value(self) -> int:
        return 1

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_retries_are_events(make_pool: Callable[..., Any], seen: Any, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    future = pool.options(retries=2).submit(tasks.fail, "again")
    assert isinstance(future.exception(60), ValueError)
    retried = seen("pool.task.retried")
    assert [(event.task, event.reason) for event in retried] == [(future.task.id, "raised")] * 2
    (failed,) = seen("pool.task.failed")
    assert (failed.task, failed.reason) == (future.task.id, "raised")


def test_a_crash_that_is_retried_is_an_event(make_pool: Callable[..., Any], seen: Any) -> None:
    pool = make_pool(1, kind="process", retries=1)
    future = pool.submit(tasks.leave, 3)
    assert isinstance(future.exception(60), ropewalk.WorkerCrashed)
    (retried,) = seen("pool.task.retried")
    assert (retried.task, retried.reason) == (future.task.id, "crashed")
    assert retried.pid == seen("pool.worker.crashed")[0].pid
    assert seen("pool.worker.crashed")[0].exit_code == 3


def test_streams_are_events(make_pool: Callable[..., Any], seen: Any, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    assert list(pool.stream(range, 3)) == [0, 1, 2]
    (opened,) = seen("pool.stream.opened")
    (closed,) = seen("pool.stream.closed")
    assert opened.task == closed.task is not None
    assert closed.reason == "returned"


def test_sessions_are_events(make_pool: Callable[..., Any], seen: Any) -> None:
    pool = make_pool(1, kind="process")
    with pool.actor(Kept, max_restarts=1) as actor:
        assert actor.call("value").result(60) == 1
        assert actor.call("value").result(60) == 1
        (made,) = seen("pool.session.made")
        assert made.generation == 1
        assert made.session.startswith("Kept")
        assert made.worker == pool.statistics().workers_detail[0].id
        assert actor.call("die").exception(60) is not None
        (lost,) = seen("pool.session.lost")
        assert (lost.session, lost.reason) == (made.session, "made again")
        assert actor.call("value").result(60) == 1
        assert [event.generation for event in seen("pool.session.made")] == [1, 2]


def test_a_state_that_a_replaced_worker_takes_along_is_an_event(
    make_pool: Callable[..., Any], seen: Any
) -> None:
    pool = make_pool(1, kind="process")
    idle, unused = pool.session("idle", dict, mode="queue"), pool.session("unused", dict, mode="queue")
    pid = idle.submit(os.getpid).result(60)
    assert unused.generation == 0
    pool.recycle(pid=pid)
    (lost,) = seen("pool.session.lost")
    assert (lost.session, lost.reason, lost.pid) == ("idle", "made again", pid)
    assert idle.submit(os.getpid).result(60) != pid
    seen("pool.session.made", 2)
    assert len(seen("pool.session.lost")) == 1


@pytest.mark.parametrize("end", ["shutdown", "terminate", "kill_workers"])
def test_the_end_of_a_pool_loses_no_state(make_pool: Callable[..., Any], seen: Any, end: str) -> None:
    pool = make_pool(2, kind="process")
    session, actor = pool.session("state", dict), pool.actor(Kept)
    assert session.submit(len, "abc").result(60) == 3
    assert actor.call("value").result(60) == 1
    getattr(pool, end)()
    seen("pool.ended")
    with pytest.raises(AssertionError):
        seen("pool.session.lost", seconds=0)


@pytest.mark.parametrize("how", ["close", "the end of the handle", "ttl"])
def test_a_state_that_is_dropped_is_not_lost(
    make_pool: Callable[..., Any], seen: Any, how: str, tmp_path: Path
) -> None:
    pool = make_pool(1, kind="process")
    session = pool.session("state", Leaves, (tmp_path / "left",), ttl=0.01 if how == "ttl" else None)
    actor = pool.actor(Leaves, tmp_path / "left")
    assert session.submit(len, "abc").result(60) == 3
    if how == "close":
        session.close()
    elif how == "the end of the handle":
        del actor
    until(lambda: pool.submit(len, "").result(60) or (tmp_path / "left").exists())
    pool.shutdown()
    seen("pool.ended")
    with pytest.raises(AssertionError):
        seen("pool.session.lost", seconds=0)


def test_a_pool_that_breaks_loses_its_states_for_good(make_pool: Callable[..., Any], seen: Any) -> None:
    pool = make_pool(1, kind="process", on_crash="break")
    session = pool.session("state", dict)
    assert session.submit(len, "abc").result(60) == 3
    assert pool.submit(tasks.leave, 3).exception(60) is not None
    (lost,) = seen("pool.session.lost")
    assert (lost.session, lost.reason) == ("state", "gone for good")


def test_states_of_threads_are_events(make_pool: Callable[..., Any], seen: Any) -> None:
    pool = make_pool(2, kind="thread")
    session, actor = pool.session("state", dict), pool.actor(Kept)
    assert session.generation == 0
    assert actor.call("value").result(60) == 1
    future = session.submit(len, "abc")
    assert future.result(60) == 3
    made = {event.session.partition("-")[0]: event for event in seen("pool.session.made", 2)}
    assert set(made) == {"state", "Kept"}
    assert {(event.worker, event.generation) for event in made.values()} == {(None, 1)}
    assert (session.generation, actor.generation, future.task.session_generation) == (1, 1, 1)
    # One state for all threads, which only the end of the session drops.
    assert list(session.map(len, ["a", "b"])) == [1, 1]
    session.close()
    pool.shutdown()
    seen("pool.ended")
    assert len(seen("pool.session.made", 2)) == 2
    with pytest.raises(AssertionError):
        seen("pool.session.lost", seconds=0)


def test_the_life_of_workers_is_events(make_pool: Callable[..., Any], seen: Any) -> None:
    pool = make_pool(2, kind="process")
    (worker,) = {event.pid for event in seen("pool.worker.started")[:1]}
    pool.recycle(pid=worker)
    (recycled,) = seen("pool.worker.recycled")
    assert (recycled.pid, recycled.reason) == (worker, "asked")
    pool.resize(1)
    assert [event.workers for event in seen("pool.resized")] == [1]
    future = pool.options(hang_timeout=0.1).submit(time.sleep, 100)
    assert isinstance(future.exception(60), ropewalk.TaskHung)
    assert [event.task for event in seen("pool.task.hung")] == [future.task.id]
    pool.shutdown()
    assert seen("pool.ended")
