"""The order in which waiting tasks go, and the end of those for which a full queue has no room."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.tasks import Gate

import ropewalk


def held(pool: Any, gate: Gate) -> Any:
    """A task that keeps the only worker of the pool busy until the gate is open."""
    future = pool.submit(gate.hold)
    until(gate.marks)
    return future


class Order:
    """Notes in which order tasks were run: for one thread at a time."""

    def __init__(self) -> None:
        self.came: list[Any] = []

    def note(self, name: Any) -> None:
        self.came.append(name)


def test_a_full_queue_drops_the_oldest(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind, capacity=3, overflow="drop_oldest", name=f"dropping-{kind}")
    with ropewalk.events.subscribe("pool.task.failed") as failures:
        held(pool, gate)
        futures = [pool.submit(tasks.square, n) for n in range(8)]
        for dropped in futures[:5]:
            with pytest.raises(ropewalk.TaskDropped) as caught:
                dropped.result(60)
            error = caught.value
            assert (error.code, error.depth, error.capacity) == ("RW-TASK-DROPPED", 3, 3)
            assert "3 tasks" in str(error)
            assert dropped.done()
            assert not dropped.cancelled()
            assert dropped.task.attempt == 0
        now = pool.statistics()
        assert (now.queued, now.dropped, now.failed) == (3, 5, 5)
        ours = [event for _ in range(5) if (event := failures.recv(timeout=30)).pool == f"dropping-{kind}"]
        assert [(event.reason, event.queued) for event in ours] == [("dropped", 3)] * 5
    gate.open()
    assert [future.result(60) for future in futures[5:]] == [25, 36, 49]


def test_a_dropped_task_is_told_to_whoever_awaits_it(
    make_pool: Callable[..., Any], gate: Gate, kind: str
) -> None:
    async def main() -> None:
        pool = make_pool(1, kind=kind, capacity=1, overflow="drop_oldest")
        held(pool, gate)
        first = asyncio.ensure_future(pool.run(tasks.square, 2))
        while pool.statistics().queued == 0:
            await asyncio.sleep(0.002)
        second = asyncio.ensure_future(pool.run(tasks.square, 3))
        with pytest.raises(ropewalk.TaskDropped):
            await first
        gate.open()
        assert await second == 9

    asyncio.run(main())


def test_a_submission_that_never_waits_drops_too(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="thread", capacity=1, overflow="drop_oldest")
    held(pool, gate)
    first, second = pool.submit_nowait(tasks.square, 2), pool.submit_nowait(tasks.square, 3)
    assert isinstance(first.exception(60), ropewalk.TaskDropped)
    gate.open()
    assert second.result(60) == 9


def test_a_map_drops_no_task(make_pool: Callable[..., Any], kind: str) -> None:
    pool = make_pool(2, kind=kind, capacity=2, overflow="drop_oldest")
    assert list(pool.map(tasks.square, range(500))) == [n * n for n in range(500)]
    assert sorted(pool.map_unordered(tasks.square, range(100))) == [n * n for n in range(100)]

    async def main() -> list[int]:
        return [value async for value in pool.map(tasks.square, range(200))]

    assert asyncio.run(main()) == [n * n for n in range(200)]
    assert pool.statistics().dropped == 0


def test_a_task_below_all_that_wait_is_the_one_that_is_dropped(
    make_pool: Callable[..., Any], gate: Gate, kind: str
) -> None:
    pool = make_pool(1, kind=kind, capacity=1, overflow="drop_oldest", priority=1)
    held(pool, gate)
    waits = pool.submit(tasks.square, 2)
    lower = pool.options(priority=0).submit(tasks.square, 3)
    assert isinstance(lower.exception(60), ropewalk.TaskDropped)
    gate.open()
    assert waits.result(60) == 4


def test_a_full_queue_says_its_numbers(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    for overflow, submit in (("error", "submit"), ("block", "submit_nowait")):
        pool = make_pool(1, kind=kind, capacity=2, overflow=overflow)
        pool.submit(gate.hold, overflow)
        until(lambda: gate.marks(overflow))  # noqa: B023
        pool.submit(tasks.square, 1)
        pool.submit(tasks.square, 2)
        with pytest.raises(ropewalk.QueueFull, match="2 tasks wait, and its capacity is 2") as caught:
            getattr(pool, submit)(tasks.square, 3)
        assert (caught.value.depth, caught.value.capacity) == (2, 2)
        if overflow == "error":
            with pytest.raises(ropewalk.QueueFull, match="capacity is 2"):
                list(pool.map(tasks.square, range(9)))


def test_clients_take_turns(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool, order = make_pool(1, kind="thread"), Order()
    held(pool, gate)
    flood, double = pool.options(client="flood"), pool.options(client="double", share=2)
    futures: list[Future[None]] = [flood.submit(order.note, ("flood", n)) for n in range(6)]
    futures += [double.submit(order.note, ("double", n)) for n in range(4)]
    futures += [pool.submit(order.note, ("none", n)) for n in range(2)]
    now = pool.statistics()
    assert [(client.name, client.queued) for client in now.clients] == [("double", 4), ("flood", 6)]
    assert now.queued == 12
    gate.open()
    for future in futures:
        future.result(60)
    assert order.came == [
        *[("flood", 0), ("double", 0), ("double", 1), ("none", 0)],
        *[("flood", 1), ("double", 2), ("double", 3), ("none", 1)],
        *[("flood", n) for n in range(2, 6)],
    ]
    assert pool.statistics().clients == ()


def test_a_client_in_process_workers(make_pool: Callable[..., Any], gate: Gate) -> None:
    pool = make_pool(1, kind="process")
    held(pool, gate)
    flood = [pool.options(client="flood").submit(gate.mark, "flood") for _ in range(50)]
    polite = pool.options(client="polite").submit(gate.marks, "flood")
    gate.open()
    assert len(polite.result(60)) <= 2
    for future in flood:
        future.result(60)


def test_the_tasks_of_a_map_are_a_clients(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    held(pool, gate)
    results = pool.options(client="mapped").map(tasks.square, range(5))
    assert [client.name for client in pool.statistics().clients] == ["mapped"]
    gate.open()
    assert list(results) == [0, 1, 4, 9, 16]


def test_aging_ends_a_wait_behind_higher_priorities(make_pool: Callable[..., Any]) -> None:
    pool, order = make_pool(1, kind="thread", aging=0.01), Order()
    stop = threading.Event()
    busy: list[Future[None]] = []

    def flow() -> None:
        # Each task leaves one of the same priority behind: the queue is never without one.
        order.note("high")
        if not stop.is_set():
            busy.append(pool.options(priority=5).submit(flow))
            busy.append(pool.options(priority=5).submit(time.sleep, 0))

    pool.options(priority=5).submit(flow)
    low = pool.submit(order.note, "low")
    low.result(60)
    stop.set()
    assert "high" in order.came


def test_the_age_of_the_oldest_waiting_task(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    assert pool.statistics().oldest_seconds is None
    held(pool, gate)
    begin = time.monotonic()
    future = pool.submit(tasks.square, 2)
    until(lambda: pool.statistics().oldest_seconds > 0.01)
    assert pool.statistics().oldest_seconds <= time.monotonic() - begin
    gate.open()
    future.result(60)
    assert pool.statistics().oldest_seconds is None


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"client": 3}, TypeError, "client must be a text or None, not 3"),
        ({"client": ""}, ValueError, "client must be a name of one character or more"),
        ({"client": "a", "share": 0}, ValueError, "share must be 1 or more, not 0"),
        ({"client": "a", "share": 1.5}, TypeError, "share must be a whole number, not 1.5"),
        ({"share": 2}, ValueError, "share is a client's: give client=, too"),
        ({"weight": 2}, TypeError, "share="),
        ({"tenant": "a"}, TypeError, "client="),
    ],
)
def test_wrong_clients(make_pool: Callable[..., Any], given: dict[str, Any], error: type, text: str) -> None:
    pool = make_pool(1, kind="thread")
    with pytest.raises(error, match=text):
        pool.options(**given)


def test_a_view_of_a_view_keeps_its_client_and_not_another_ones_share(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="thread")
    double = pool.options(client="a", share=2)
    assert "client='a', share=2" in repr(double.options(priority=1))
    assert "client='b', share=1" in repr(double.options(client="b"))
    assert "client='a', share=3" in repr(double.options(share=3))
    assert "client=None, share=1" in repr(double.options(client=None))


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"aging": 0}, ValueError, "aging must be more than 0 seconds, or None"),
        ({"aging": -1}, ValueError, "aging must be 0 or more seconds, not -1"),
        ({"aging": "1"}, TypeError, "aging must be a number of seconds or None, not '1'"),
        ({"ageing": 1}, TypeError, "aging="),
        ({"overflow": "drop"}, ValueError, "overflow must be 'block', 'error' or 'drop_oldest', not 'drop'"),
    ],
)
def test_wrong_queues(given: dict[str, Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        ropewalk.Pool(1, kind="thread", **given)
