"""A map whose iteration ends early: which of its tasks run on, and which are ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.tasks import Gate


@pytest.fixture(params=["map", "map_unordered"])
def held(request: pytest.FixtureRequest, make_pool: Callable[..., Any], gate: Gate) -> Any:
    """Makes maps: of each, the first input has a result, and the second is held in the only worker."""
    pool = make_pool(1, kind="process")

    def work(number: int) -> Any:
        if number == 1:
            return gate.hold("1", 1)
        gate.mark(str(number))
        return number

    def make() -> Any:
        return getattr(pool, request.param)(work, [0, 1, 2], chunksize=1)

    make.pool = pool  # type: ignore[attr-defined]
    return make


def assert_free(pool: Any) -> None:
    """The only worker, which was held, has been replaced: it takes another task."""
    assert pool.submit(tasks.square, 3).result(60) == 9
    until(lambda: pool.statistics().running == pool.statistics().queued == 0)


def assert_held(pool: Any, gate: Gate) -> None:
    """The task that is held goes on to its end, and no other of the map is run."""
    behind = pool.submit(tasks.square, 3)
    (pid,) = gate.marks("1")
    assert pid in pool.statistics().worker_pids
    gate.open()
    assert behind.result(60) == 9
    assert gate.marks("2") == []
    assert pid in pool.statistics().worker_pids


async def begun(gate: Gate) -> None:
    while not gate.marks("1"):
        await asyncio.sleep(0.002)


def test_a_cancelled_loop_frees_the_workers(held: Any, gate: Gate) -> None:
    async def loop() -> None:
        async for _ in held():
            pass

    async def main() -> None:
        task = asyncio.create_task(loop())
        await begun(gate)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as kept:
            await task
        # The traceback is there still, and keeps the frames of the loop.
        assert kept.value.__traceback__ is not None
        assert_free(held.pool)

    asyncio.run(main())


def test_a_loop_that_times_out_frees_the_workers(held: Any, gate: Gate) -> None:
    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError) as kept:  # noqa: PT012
            async with asyncio.timeout(None) as limit:
                async for _ in held():
                    await begun(gate)
                    limit.reschedule(0)
        assert kept.value.__traceback__ is not None
        assert_free(held.pool)

    asyncio.run(main())


def test_a_loop_that_is_cancelled_in_its_body_frees_the_workers(held: Any, gate: Gate) -> None:
    async def loop() -> None:
        async for _ in held():
            await asyncio.sleep(900)

    async def main() -> None:
        task = asyncio.create_task(loop())
        await begun(gate)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert_free(held.pool)

    asyncio.run(main())


def test_a_loop_that_is_interrupted_in_its_body_frees_the_workers(held: Any, gate: Gate) -> None:
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        for _ in held():
            until(lambda: gate.marks("1"))
            raise KeyboardInterrupt
    assert_free(held.pool)


@pytest.mark.parametrize("ending", [KeyboardInterrupt, asyncio.CancelledError])
def test_closing_says_why_it_closes(held: Any, gate: Gate, ending: type[BaseException]) -> None:
    with pytest.raises(ending), contextlib.closing(held()) as results:  # noqa: PT012
        next(results)
        until(lambda: gate.marks("1"))
        raise ending
    assert_free(held.pool)


def test_aclosing_after_a_cancellation_frees_the_workers(held: Any, gate: Gate) -> None:
    kept = []

    async def loop() -> None:
        async with contextlib.aclosing(held()) as results:
            kept.append(results)
            async for _ in results:
                pass

    async def main() -> None:
        task = asyncio.create_task(loop())
        await begun(gate)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert_free(held.pool)

    asyncio.run(main())


async def give_up(results: Any, gate: Gate) -> None:
    """Takes the result that there is, and stops to wait for the next."""
    assert await anext(results) == 0
    await begun(gate)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(anext(results), 0.02)


def test_a_map_that_was_given_up_ends_when_it_is_dropped(held: Any, gate: Gate) -> None:
    async def main() -> None:
        results = held()
        # Not by `give_up`: the free-threaded 3.13 keeps the frame of a coroutine that a timeout went through.
        first = await anext(results)
        assert first == 0
        await begun(gate)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(anext(results), 0.02)
        (pid,) = gate.marks("1")
        # It can be asked again for as long as it is there.
        assert (held.pool.statistics().running, held.pool.statistics().worker_pids) == (1, (pid,))
        del results
        assert_free(held.pool)

    asyncio.run(main())


def test_a_map_that_was_given_up_ends_when_it_is_closed(held: Any, gate: Gate) -> None:
    async def main() -> None:
        results = held()
        await give_up(results, gate)
        await results.aclose()
        assert_free(held.pool)
        assert [value async for value in results] == []

    asyncio.run(main())


def test_a_map_that_is_asked_again_was_not_given_up(held: Any, gate: Gate) -> None:
    async def main() -> None:
        results = held()
        await give_up(results, gate)
        asked = asyncio.ensure_future(anext(results))
        await asyncio.sleep(0)
        assert not asked.done()
        gate.open()
        assert await asked == 1
        assert [value async for value in results] == [2]
        assert len(gate.marks("1")) == 1

    asyncio.run(main())


def test_an_exception_in_a_loop_lets_what_runs_finish(held: Any, gate: Gate) -> None:
    with pytest.raises(LookupError):  # noqa: PT012
        for _ in held():
            until(lambda: gate.marks("1"))
            raise LookupError
    assert_held(held.pool, gate)


def test_an_exception_in_an_asynchronous_loop_lets_what_runs_finish(held: Any, gate: Gate) -> None:
    async def main() -> None:
        async for _ in held():
            await begun(gate)
            raise LookupError

    with pytest.raises(LookupError):
        asyncio.run(main())
    assert_held(held.pool, gate)


def test_a_generator_that_is_closed_lets_what_runs_finish(held: Any, gate: Gate) -> None:
    def loop() -> Generator[int, None, None]:
        yield from held()

    values = loop()
    assert next(values) == 0
    until(lambda: gate.marks("1"))
    values.close()
    assert_held(held.pool, gate)


def test_an_asynchronous_generator_that_is_closed_does_too(held: Any, gate: Gate) -> None:
    async def loop() -> AsyncGenerator[int, None]:
        async for value in held():
            yield value

    async def main() -> None:
        values = loop()
        assert await anext(values) == 0
        await begun(gate)
        await values.aclose()

    asyncio.run(main())
    assert_held(held.pool, gate)
