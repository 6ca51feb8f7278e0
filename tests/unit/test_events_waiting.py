"""Several receivers wait at one subscription to a pool's events: each event finds one of them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests import tasks
from tests.polling import until

import ropewalk

#: Seconds after which a receiver counts as forgotten.
_LONG = 30


@pytest.fixture
def fail(make_pool: Callable[..., Any]) -> Callable[[], int]:
    """A function that makes a task fail, and returns its number: one event."""
    pool = make_pool(1, kind="thread")

    def once() -> int:
        future = pool.submit(tasks.fail, "no")
        assert isinstance(future.exception(60), ValueError)
        number: int = future.task.id
        return number

    return once


@pytest.fixture
def failures() -> Iterator[Any]:
    with ropewalk.events.subscribe("pool.task.failed") as subscription:
        yield subscription


def _begin(coroutines: list[Any]) -> list[asyncio.Future[Any]]:
    begun: list[asyncio.Future[Any]] = [asyncio.ensure_future(each) for each in coroutines]
    return begun


async def _ended(waiting: list[asyncio.Future[Any]], count: int) -> list[int]:
    """Waits until this many of them have an event, and returns the tasks that the events are about."""
    async with asyncio.timeout(_LONG):
        while sum(task.done() for task in waiting) < count:
            await asyncio.wait(
                [task for task in waiting if not task.done()], return_when=asyncio.FIRST_COMPLETED
            )
    return sorted(task.result().task for task in waiting if task.done())


def test_each_event_wakes_another_coroutine(fail: Callable[[], int], failures: Any) -> None:
    async def main() -> None:
        waiting = _begin([failures.recv_async() for _ in range(4)])
        await asyncio.sleep(0)
        numbers = []
        for count in range(1, 5):
            numbers.append(await asyncio.to_thread(fail))
            assert await _ended(waiting, count) == numbers

    asyncio.run(main())


def test_a_consumer_that_takes_one_event_is_followed_by_another(
    fail: Callable[[], int], failures: Any
) -> None:
    async def main() -> None:
        first, second = _begin([failures.recv_async(), failures.recv_async()])
        await asyncio.sleep(0)
        numbers = [await asyncio.to_thread(fail)]
        assert await _ended([first, second], 1) == numbers
        # Nobody waits in the place of the one that has ended.
        numbers.append(await asyncio.to_thread(fail))
        assert await _ended([first, second], 2) == numbers
        numbers.append(await asyncio.to_thread(fail))
        assert (await failures.recv_async()).task == numbers[-1]

    asyncio.run(main())


def test_a_cancelled_consumer_leaves_its_event_to_another(fail: Callable[[], int], failures: Any) -> None:
    async def main() -> None:
        for _ in range(10):
            cancelled, other = _begin([failures.recv_async(), failures.recv_async()])
            await asyncio.sleep(0)
            number = await asyncio.to_thread(fail)
            cancelled.cancel()
            await asyncio.wait([cancelled])
            if not cancelled.cancelled():
                assert cancelled.result().task == number
                number = await asyncio.to_thread(fail)
            assert await _ended([other], 1) == [number]

    asyncio.run(main())


def test_a_coroutine_waits_beside_a_thread(fail: Callable[[], int], failures: Any) -> None:
    async def main(threads: ThreadPoolExecutor) -> None:
        for _ in range(20):
            waiting = _begin([failures.recv_async()])
            await asyncio.sleep(0)
            beside = threads.submit(failures.recv, timeout=_LONG)
            await asyncio.to_thread(until, beside.running)
            waiting.append(asyncio.ensure_future(asyncio.wrap_future(beside)))
            numbers = [await asyncio.to_thread(fail)]
            assert await _ended(waiting, 1) == numbers
            numbers.append(await asyncio.to_thread(fail))
            assert await _ended(waiting, 2) == numbers

    with ThreadPoolExecutor(1) as threads:
        asyncio.run(main(threads))


def test_loops_of_two_threads_wait_together(fail: Callable[[], int], failures: Any) -> None:
    waits = threading.Barrier(3)
    taken: list[list[int]] = [[], []]

    async def main(mine: list[int]) -> None:
        waiting = _begin([failures.recv_async() for _ in range(4)])
        await asyncio.sleep(0)
        await asyncio.to_thread(waits.wait, _LONG)
        mine.extend(await _ended(waiting, 4))

    with ThreadPoolExecutor(2) as threads:
        loops = [threads.submit(asyncio.run, main(mine)) for mine in taken]
        waits.wait(_LONG)
        numbers = [fail() for _ in range(8)]
        for loop in loops:
            loop.result(2 * _LONG)
    assert sorted(taken[0] + taken[1]) == numbers


def test_a_full_subscription_with_a_filter_keeps_no_event_from_others(
    fail: Callable[[], int], failures: Any
) -> None:
    async def main() -> None:
        waiting = _begin([failures.recv_async() for _ in range(20)])
        await asyncio.sleep(0)
        numbers = [await asyncio.to_thread(fail) for _ in range(20)]
        assert await _ended(waiting, 20) == numbers
        for blocks in (block, error):
            # It holds what a subscription without a filter would.
            assert [blocks.recv(timeout=_LONG).task for _ in numbers] == numbers
        # The thread that filters may still be behind.
        await asyncio.to_thread(until, lambda: drops.statistics().dropped == 19)
        with pytest.raises(ropewalk.Lagged) as lagged:
            drops.recv(timeout=_LONG)
        assert lagged.value.count == 19
        assert drops.recv(timeout=_LONG).task == numbers[-1]

    def every(overflow: Any) -> Any:
        options: Any = {"capacity": 1, "overflow": overflow, "where": lambda _: True}  # pyright: ignore
        return ropewalk.events.subscribe("pool.task.failed", **options)

    with every("block") as block, every("error") as error, every("drop_oldest") as drops:
        asyncio.run(main())


def test_a_slow_handler_and_a_filter_are_told_what_they_missed(
    fail: Callable[[], int], make_pool: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The thread that serves both holds 65,536 events."""
    go = threading.Event()
    handled: list[int] = []

    def slow(event: ropewalk.PoolEvent) -> None:
        go.wait(60)
        handled.append(event.task or 0)

    most = 66_000
    before = ropewalk.events.statistics().dropped
    ropewalk.events.on("pool.task.failed")(slow)
    try:
        with (
            caplog.at_level(logging.WARNING, "ropewalk.bus"),
            ropewalk.events.subscribe("pool.task.failed", where=lambda _: True, capacity=most) as filtered,
        ):
            pool = make_pool(1, kind="thread", capacity=2 * most)
            for future in [pool.submit(tasks.fail, "no") for _ in range(most)]:
                assert future.exception(60) is not None
            go.set()
            received = lost = 0
            while received + lost < most:
                try:
                    received += len(filtered.recv_many(most, timeout=_LONG))
                except ropewalk.Lagged as lagged:
                    lost += lagged.count
            assert lost > 0
            assert ropewalk.events.statistics().dropped - before == 2 * lost
            until(lambda: len(handled) == received)
            assert f"missed {lost} messages of 'pool.task.failed'" in caplog.text
            number = fail()
            assert filtered.recv(timeout=_LONG).task == number
    finally:
        go.set()
        assert ropewalk.events.off(slow) == 1


def test_a_handler_that_exits_keeps_no_event_from_others(
    fail: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda report: printed.append(report.exc_type))

    def leave(_: ropewalk.PoolEvent) -> None:
        raise SystemExit

    ropewalk.events.on("pool.task.failed")(leave)
    try:
        with ropewalk.events.subscribe("pool.task.failed", where=lambda _: True) as filtered:
            numbers = [fail() for _ in range(5)]
            assert [filtered.recv(timeout=_LONG).task for _ in numbers] == numbers
            until(lambda: printed == [SystemExit] * 5)
    finally:
        assert ropewalk.events.off(leave) == 1


def _listen(events: ropewalk.Bus) -> None:
    _kept.append(events.subscribe("pool.task.failed", capacity=1))


_kept: list[Any] = []


def test_a_worker_that_does_not_receive_keeps_no_event_from_others(
    make_pool: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[int] = []

    def handler(event: ropewalk.PoolEvent) -> None:
        handled.append(event.task or 0)

    most = 13_000
    make_pool(1, kind="process").submit(_listen, ropewalk.events).result(60)
    ropewalk.events.on("pool.task.failed")(handler)
    try:
        with caplog.at_level(logging.WARNING, "ropewalk.bus"):
            pool = make_pool(1, kind="thread", capacity=2 * most)
            for future in [pool.submit(tasks.fail, "no") for _ in range(most)]:
                assert future.exception(60) is not None
            until(lambda: len(handled) == most)
    finally:
        assert ropewalk.events.off(handler) == 1
    lines = [record for record in caplog.records if "pool.task.failed" in record.getMessage()]
    assert lines
    assert all(
        "a worker process does not receive" in line.getMessage() and not line.exc_info for line in lines
    )
