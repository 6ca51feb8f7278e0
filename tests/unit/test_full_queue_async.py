"""An event loop and a full queue: a coroutine waits for room, and the loop goes on."""

from __future__ import annotations

import asyncio
import gc
import operator
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.tasks import Gate

import ropewalk

SECONDS = 60


@contextmanager
def watched(gate: Gate) -> Iterator[Callable[[], None]]:
    """Opens the gate if the loop did not come to it itself, so that a loop which stands still fails the test."""
    opened = threading.Event()
    stood_still = threading.Event()

    def watch() -> None:
        if not opened.wait(10):
            stood_still.set()
            gate.open()

    def open_gate() -> None:
        opened.set()
        gate.open()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield open_gate
    finally:
        opened.set()
        watcher.join()
    assert not stood_still.is_set(), "the event loop stood still"


def full_pool(make_pool: Callable[..., Any], gate: Gate, kind: str, **settings: Any) -> Any:
    """A pool whose worker is at work, with no room for another task."""
    pool = make_pool(1, kind=kind, capacity=1, **settings)
    pool.submit(gate.hold)
    until(gate.marks)
    pool.submit(tasks.square, 0)
    return pool


async def turns(number: int = 50) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def test_run_waits_for_room(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    async def main() -> None:
        running = [asyncio.create_task(pool.run(tasks.square, n)) for n in range(20)]
        await turns()
        assert pool.statistics().submitted == 2
        assert not any(task.done() for task in running)
        open_gate()
        assert await asyncio.wait_for(asyncio.gather(*running), SECONDS) == [n * n for n in range(20)]

    pool = full_pool(make_pool, gate, kind)
    with watched(gate) as open_gate:
        asyncio.run(main())


def test_submit_async_waits_for_room_and_not_for_the_result(
    make_pool: Callable[..., Any], gate: Gate, kind: str
) -> None:
    async def main() -> None:
        view = pool.options(priority=3)
        waiting = [asyncio.create_task(each.submit_async(tasks.square, number=7)) for each in (pool, view)]
        await turns()
        assert not any(task.done() for task in waiting)
        open_gate()
        for future in await asyncio.wait_for(asyncio.gather(*waiting), SECONDS):
            assert isinstance(future, ropewalk.Future)
            assert await asyncio.wait_for(asyncio.wrap_future(future), SECONDS) == 49

    pool = full_pool(make_pool, gate, kind)
    with watched(gate) as open_gate:
        asyncio.run(main())


def test_stream_async_waits_for_room(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    async def read(submitter: Any) -> list[int]:
        return [number async for number in await submitter.stream_async(range, 3)]

    async def main() -> None:
        views = [pool, pool.options(buffersize=2), pool.session("key", None)]
        waiting = [asyncio.create_task(read(each)) for each in views]
        await turns()
        assert not any(task.done() for task in waiting)
        open_gate()
        assert await asyncio.wait_for(asyncio.gather(*waiting), SECONDS) == [[0, 1, 2]] * 3

    pool = full_pool(make_pool, gate, kind)
    with watched(gate) as open_gate:
        asyncio.run(main())


def test_stream_async_raises_where_nobody_waits_for_room(make_pool: Callable[..., Any], gate: Gate) -> None:
    async def main() -> None:
        with pytest.raises(ropewalk.QueueFull):
            await pool.stream_async(range, 3)
        with pytest.raises(TypeError, match="stream needs a callable, not 3"):
            await pool.stream_async(3)

    pool = full_pool(make_pool, gate, "thread", overflow="error")
    asyncio.run(main())
    gate.open()


def test_submit_async_raises_where_nobody_waits_for_room(make_pool: Callable[..., Any], gate: Gate) -> None:
    async def main() -> None:
        with pytest.raises(ropewalk.QueueFull):
            await pool.submit_async(tasks.square, 7)

    pool = full_pool(make_pool, gate, "thread", overflow="error")
    asyncio.run(main())
    gate.open()


def test_calls_that_wait_for_room_go_in_order(make_pool: Callable[..., Any], gate: Gate) -> None:
    order: list[int] = []

    async def main() -> None:
        running = [asyncio.create_task(pool.run(order.append, n)) for n in range(30)]
        await turns()
        open_gate()
        await asyncio.wait_for(asyncio.gather(*running), SECONDS)

    pool = full_pool(make_pool, gate, "thread")
    with watched(gate) as open_gate:
        asyncio.run(main())
    assert order == list(range(30))


def test_a_cancelled_wait_for_room_takes_nothing(
    make_pool: Callable[..., Any], gate: Gate, kind: str
) -> None:
    class Argument:
        pass

    async def main() -> None:
        arguments = [Argument() for _ in range(5)]
        dropped = [weakref.ref(argument) for argument in arguments]
        waiting = [asyncio.create_task(pool.run(tasks.identity, argument)) for argument in arguments]
        last = asyncio.create_task(pool.run(tasks.square, 7))
        await turns()
        del arguments
        for task in waiting:
            task.cancel()
            await turns(5)
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(result, asyncio.CancelledError)
        del waiting, task, result
        await turns()  # Python 3.11 keeps them until the next one.
        gc.collect()
        assert not any(reference() for reference in dropped)
        assert pool.statistics().submitted == 2
        assert not last.done()
        open_gate()
        assert await asyncio.wait_for(last, SECONDS) == 49

    pool = full_pool(make_pool, gate, kind)
    with watched(gate) as open_gate:
        asyncio.run(main())
    assert pool.statistics().submitted == 3


def test_one_that_is_cancelled_as_room_is_made_leaves_it_to_the_next(
    make_pool: Callable[..., Any], gate: Gate, kind: str
) -> None:
    async def main() -> None:
        first = asyncio.create_task(pool.run(tasks.square, 5))
        second = asyncio.create_task(pool.run(tasks.square, 6))
        await turns()
        open_gate()
        filler.result(
            SECONDS
        )  # The loop has not run since, so the wake-up for the room reaches a cancelled call.
        first.cancel()
        assert await asyncio.wait_for(second, SECONDS) == 36
        assert first.cancelled()

    pool = make_pool(1, kind=kind, capacity=1)
    pool.submit(gate.hold)
    until(gate.marks)
    filler = pool.submit(tasks.square, 0)
    with watched(gate) as open_gate:
        asyncio.run(main())


def test_a_wait_for_room_learns_of_the_end(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    async def main() -> None:
        waiting = [asyncio.create_task(pool.run(tasks.square, n)) for n in range(3)]
        results = pool.map(tasks.square, range(3))
        mapping = asyncio.ensure_future(anext(results))
        await turns()
        pool.shutdown(wait=False, cancel_futures=True)
        for task in [*waiting, mapping]:
            with pytest.raises(ropewalk.PoolClosed):
                await asyncio.wait_for(task, SECONDS)
        open_gate()

    pool = full_pool(make_pool, gate, kind)
    with watched(gate) as open_gate:
        asyncio.run(main())


def test_a_pool_that_refuses_does_so_at_once(make_pool: Callable[..., Any], gate: Gate, kind: str) -> None:
    async def main() -> None:
        with pytest.raises(ropewalk.QueueFull):
            await pool.run(tasks.square, 1)
        with pytest.raises(ropewalk.QueueFull):
            async for _ in pool.map(tasks.square, range(3)):
                pass

    pool = full_pool(make_pool, gate, kind, overflow="error")
    asyncio.run(main())


@pytest.mark.parametrize("how", ["map", "map_unordered"])
def test_a_map_waits_for_room(make_pool: Callable[..., Any], gate: Gate, kind: str, how: str) -> None:
    async def main() -> None:
        results = getattr(pool, how)(tasks.square, range(40))
        first = asyncio.ensure_future(anext(results))
        await turns()
        assert not first.done()
        open_gate()
        came = [await asyncio.wait_for(first, SECONDS)]
        came += [result async for result in results]
        assert sorted(came) == [n * n for n in range(40)]
        if how == "map":
            assert came == sorted(came)

    pool = full_pool(make_pool, gate, kind)
    with watched(gate) as open_gate:
        asyncio.run(main())


def test_maps_and_calls_share_the_room(make_pool: Callable[..., Any], kind: str) -> None:
    async def over(results: Any) -> list[int]:
        return [result async for result in results]

    async def main() -> None:
        maps = [over(pool.map(tasks.square, range(30), chunksize=2)) for _ in range(4)]
        calls = [pool.run(tasks.square, n) for n in range(60)]
        came = await asyncio.wait_for(asyncio.gather(*maps, *calls), SECONDS)
        assert came[:4] == [[n * n for n in range(30)]] * 4
        assert came[4:] == [n * n for n in range(60)]

    pool = make_pool(2, kind=kind, capacity=1)
    asyncio.run(main())


def test_an_await_of_a_map_that_is_cancelled_loses_nothing(
    make_pool: Callable[..., Any], gate: Gate, kind: str
) -> None:
    async def main() -> None:
        results = pool.map(tasks.square, range(20))
        for _ in range(3):
            waiting = asyncio.ensure_future(anext(results))
            await turns(5)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        open_gate()
        assert [result async for result in results] == [n * n for n in range(20)]

    pool = full_pool(make_pool, gate, kind)
    with watched(gate) as open_gate:
        asyncio.run(main())


def test_a_map_that_is_dropped_or_closed_waits_no_more(
    make_pool: Callable[..., Any], gate: Gate, kind: str
) -> None:
    async def main() -> None:
        for end in ("close", "drop"):
            results = pool.map(tasks.square, range(20))
            known = weakref.ref(results)
            waiting = asyncio.ensure_future(anext(results))
            await turns(5)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            if end == "close":
                results.close()
                with pytest.raises(StopAsyncIteration):
                    await anext(results)
            del results, waiting
            await turns()  # Python 3.11 keeps what a cancelled task refers to until the next one.
            gc.collect()
            assert known() is None
        open_gate()
        assert await asyncio.wait_for(pool.run(tasks.square, 3), SECONDS) == 9

    pool = full_pool(make_pool, gate, kind)
    with watched(gate) as open_gate:
        asyncio.run(main())
    assert pool.statistics().submitted == 3


def test_a_map_in_a_thread_fills_the_pool_while_its_first_task_runs(
    make_pool: Callable[..., Any], gate: Gate, kind: str
) -> None:
    pool = make_pool(2, kind=kind, capacity=1)
    calls = [gate.hold, *[lambda: 1] * 10]
    results = pool.map(operator.call, calls)
    came: list[int] = []
    reader = threading.Thread(target=lambda: came.extend(results))
    reader.start()
    # The first result is wanted first, and the others are run all the same.
    until(lambda: pool.statistics().completed >= 10)
    assert not came
    gate.open()
    reader.join(SECONDS)
    assert len(came) == 11
