"""Several receivers wait at one subscription to a pool's events: each event finds one of them."""

from __future__ import annotations

import asyncio
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
    return [asyncio.ensure_future(coroutine) for coroutine in coroutines]


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
