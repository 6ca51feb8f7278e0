"""The events that pools publish."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests import tasks
from tests.polling import until

import ropewalk


@pytest.fixture
def heard() -> Iterator[Callable[[str, str], ropewalk.PoolEvent]]:
    """The next event of a pool on a topic; others are passed over."""
    with ropewalk.events.subscribe("pool.**") as subscription:

        def next_of(pool: str, topic: str) -> ropewalk.PoolEvent:
            while True:
                event: ropewalk.PoolEvent = subscription.recv(timeout=30)
                if (event.pool, event.topic) == (pool, topic):
                    return event

        yield next_of


def test_a_worker_s_life(make_pool: Callable[..., Any], heard: Any) -> None:
    pool = make_pool(1, kind="process", name="lives")
    started = heard("lives", "pool.worker.started")
    assert started.pid == until(lambda: pool.statistics().worker_pids)[0]
    future = pool.submit(tasks.killed_by, signal.SIGKILL)
    with pytest.raises(ropewalk.WorkerCrashed):
        future.result(60)
    failed = heard("lives", "pool.task.failed")
    assert (failed.task, failed.reason, failed.pid) == (future.task.id, "crashed", started.pid)
    crashed = heard("lives", "pool.worker.crashed")
    assert (crashed.pid, crashed.signal, crashed.exit_code) == (started.pid, signal.SIGKILL, None)
    again = heard("lives", "pool.worker.started")
    assert again.pid != started.pid
    with pytest.raises(ropewalk.TaskTimeout):
        pool.options(task_timeout=0.05).submit(tasks.spin).result(60)
    assert heard("lives", "pool.task.failed").reason == "timed out"
    assert heard("lives", "pool.worker.recycled").pid == again.pid
    pool.shutdown()
    assert heard("lives", "pool.ended").reason is None


def test_a_worker_that_leaves(make_pool: Callable[..., Any], heard: Any) -> None:
    pool = make_pool(1, kind="process", name="leaves")
    with pytest.raises(ropewalk.WorkerCrashed):
        pool.submit(tasks.leave, 7).result(60)
    assert heard("leaves", "pool.worker.crashed").exit_code == 7


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_failed_tasks(make_pool: Callable[..., Any], heard: Any, kind: str) -> None:
    name = f"fails-{kind}"
    pool = make_pool(1, kind=kind, name=name)
    future = pool.submit(tasks.fail, "no")
    with pytest.raises(ValueError, match="no"):
        future.result(60)
    event = heard(name, "pool.task.failed")
    assert (event.task, event.reason) == (future.task.id, "raised")
    assert (event.pid == os.getpid()) == (kind == "thread")


def test_a_full_queue(make_pool: Callable[..., Any], heard: Any, gate: tasks.Gate) -> None:
    pool = make_pool(1, kind="process", name="full", capacity=1, overflow="error")
    taken = 0
    with pytest.raises(ropewalk.QueueFull):  # noqa: PT012 -- how many it takes is its own affair
        while taken < 1000:
            pool.submit(gate.hold)
            taken += 1
    assert heard("full", "pool.saturated").queued == 1


def test_a_broken_pool(make_pool: Callable[..., Any], heard: Any) -> None:
    pool = make_pool(1, kind="process", name="breaks", initializer=tasks.fail, initargs=("no",))
    with pytest.raises(ropewalk.InitializerFailed):
        pool.submit(tasks.square, 2).result(60)
    assert heard("breaks", "pool.broken").reason == "an initializer failed"


def _fail_once(make_pool: Callable[..., Any], name: str) -> None:
    with pytest.raises(ValueError, match="no"):
        make_pool(1, kind="thread", name=name).submit(tasks.fail, "no").result(60)


def test_a_subscription_starts_no_thread() -> None:
    script = """
import threading
import ropewalk

with ropewalk.events.subscribe("pool.task.failed") as failures:
    with ropewalk.Pool(1, kind="thread", name="quiet") as pool:
        pool.submit(int, "x").exception()
    assert failures.recv(timeout=30).pool == "quiet"
names = [thread.name for thread in threading.enumerate()]
assert "ropewalk-events" not in names, names
ropewalk.events.on("pool.ended")(print)
names = [thread.name for thread in threading.enumerate()]
assert "ropewalk-events" in names, names
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_receiver_that_waits_is_woken(make_pool: Callable[..., Any]) -> None:
    received: list[ropewalk.PoolEvent] = []
    with ropewalk.events.subscribe("pool.task.failed") as failures:
        waits = threading.Thread(target=lambda: received.append(failures.recv(timeout=30)))
        waits.start()
        _fail_once(make_pool, "wakes")
        waits.join(30)
    assert [event.reason for event in received] == ["raised"]


def test_every_way_to_receive(make_pool: Callable[..., Any]) -> None:
    with ropewalk.events.subscribe("pool.**", topics=True) as pairs:
        pool = make_pool(1, kind="thread", name="ways")
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                pool.submit(tasks.fail, "no").result(60)
        assert len(pairs) == 3
        topic, event = pairs.recv()
        assert (topic, event.topic, event.pool) == ("pool.task.failed",) * 2 + ("ways",)
        assert [event.pool for _, event in pairs.recv_many(9)] == ["ways", "ways"]
        with pytest.raises(ropewalk.BusEmpty):
            pairs.recv_nowait()
        with pytest.raises(ropewalk.BusEmpty):
            pairs.recv(timeout=0.01)
        ropewalk.events.publish("pool.of.mine", 1)
        assert pairs.recv() == ("pool.of.mine", 1)
        pool.shutdown()
        pairs.close()
        assert [topic for topic, _ in pairs] == ["pool.ended"]
        counted = pairs.statistics()
        assert (counted.accepted, counted.received, counted.waiting) == (5, 5, 0)


def test_handlers_and_filters_are_served_in_order(make_pool: Callable[..., Any]) -> None:
    calls: list[tuple[str, str]] = []

    def first(topic: str, event: ropewalk.PoolEvent) -> None:
        if event.pool == "served":
            calls.append(("first", topic))

    def fails(event: ropewalk.PoolEvent) -> None:
        if event.pool == "served":
            calls.append(("fails", event.topic))
            raise ValueError("a handler's own")

    ropewalk.events.on("pool.**", topics=True, priority=1)(first)
    ropewalk.events.on("pool.**", where=lambda event: event.topic != "pool.ended")(fails)
    try:
        with ropewalk.events.subscribe("pool.**", where=lambda event: event.pool == "served") as filtered:
            pool = make_pool(1, kind="thread", name="served")
            with pytest.raises(ValueError, match="no"):
                pool.submit(tasks.fail, "no").result(60)
            pool.shutdown()
            topics = [filtered.recv(timeout=30).topic, filtered.recv(timeout=30).topic]
        until(lambda: len(calls) == 3)
    finally:
        assert (ropewalk.events.off(first), ropewalk.events.off(fails)) == (1, 1)
    assert topics == ["pool.task.failed", "pool.ended"]
    assert calls == [
        ("first", "pool.task.failed"),
        ("fails", "pool.task.failed"),
        ("first", "pool.ended"),
    ]


def test_coroutines_wait_for_events(make_pool: Callable[..., Any]) -> None:
    handled: list[str] = []

    async def handler(event: ropewalk.PoolEvent) -> None:
        handled.append(event.pool)

    async def main() -> None:
        with ropewalk.events.subscribe("pool.task.failed") as failures:
            ropewalk.events.on("pool.task.failed")(handler)
            waiting = [asyncio.ensure_future(failures.recv_async()) for _ in range(3)]
            await asyncio.sleep(0.01)
            for number in range(3):
                await asyncio.to_thread(_fail_once, make_pool, f"awaited-{number}")
            events = await asyncio.wait_for(asyncio.gather(*waiting), 30)
            assert sorted(event.pool for event in events) == [f"awaited-{number}" for number in range(3)]
            while len(handled) < 3:
                await asyncio.sleep(0.001)
            assert ropewalk.events.off(handler) == 1

    asyncio.run(main())


def test_what_has_no_room_is_told_by_a_gap(make_pool: Callable[..., Any]) -> None:
    with ropewalk.events.subscribe("pool.task.failed", capacity=1, overflow="drop_oldest") as last:
        pool = make_pool(1, kind="thread", name="gaps")
        numbers = []
        for _ in range(3):
            future = pool.submit(tasks.fail, "no")
            with pytest.raises(ValueError, match="no"):
                future.result(60)
            numbers.append(future.task.id)
        with pytest.raises(ropewalk.Lagged) as lagged:
            last.recv_nowait()
        assert lagged.value.count == 2
        assert last.recv_nowait().task == numbers[-1]


def test_a_forked_child_has_listeners_of_its_own() -> None:
    script = """
import os
import ropewalk

failures = ropewalk.events.subscribe("pool.task.failed")
handled = []
ropewalk.events.on("pool.task.failed")(lambda event: handled.append(event.pool))
child = os.fork()
name = "child" if child == 0 else "parent"
with ropewalk.Pool(1, kind="thread", name=name) as pool:
    pool.submit(int, "x").exception()
assert failures.recv(timeout=30).pool == name
while not handled:
    pass
assert handled == [name]
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=60)


def test_events_reach_a_worker_that_listens(make_pool: Callable[..., Any]) -> None:
    with make_pool(1, kind="process", name="listens") as pool:
        listening = pool.submit(_first_failure, ropewalk.events)
        while not listening.done():
            _fail_once(make_pool, "heard-afar")
        assert listening.result(60) == "heard-afar"


def _first_failure(events: ropewalk.Bus) -> str:
    with events.subscribe("pool.task.failed") as failures:
        event: ropewalk.PoolEvent = failures.recv(timeout=30)
        return event.pool
