"""The future of an operation that waits: to everybody but its own socket it is a future like any other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import windlass
import windlass.zmq as zmq
from windlass.zmq._wait import Wait
from windlass.zmq.asyncio import Context

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=[asyncio.run, windlass.run], ids=["asyncio", "windlass"])
def run(request: pytest.FixtureRequest) -> Run:
    runner: Run = request.param
    return lambda main: runner(asyncio.wait_for(main, 30))


async def result(future: asyncio.Future[Any]) -> Any:
    return await future


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_finishing_runs_the_task_at_once(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        future = Wait(loop=loop)
        ran: list[str] = []

        async def wait() -> None:
            ran.append(await future)
            assert asyncio.current_task() is task

        def finish() -> None:
            future.finish("result")
            ran.append("finished")

        task = asyncio.create_task(wait())
        await turns()
        loop.call_soon(finish)
        await task
        assert ran == ["result", "finished"]

    run(main())


@pytest.mark.parametrize("end", ["result", "exception", "cancel"])
def test_every_other_end_wakes_the_task_too(run: Run, end: str) -> None:
    async def main() -> None:
        future = Wait(loop=asyncio.get_running_loop())
        task = asyncio.create_task(result(future))
        await turns()
        if end == "result":
            future.set_result(1)
            assert await task == 1
        elif end == "exception":
            future.set_exception(LookupError())
            with pytest.raises(LookupError):
                await task
        else:
            assert future.cancel()
            assert not future.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(main())


def test_cancelling_the_task_cancels_the_future(run: Run) -> None:
    async def main() -> None:
        future = Wait(loop=asyncio.get_running_loop())
        task = asyncio.create_task(result(future))
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert future.cancelled()

    run(main())


def test_many_may_wait_for_it(run: Run) -> None:
    async def main() -> None:
        future = Wait(loop=asyncio.get_running_loop())
        tasks = [asyncio.create_task(result(future)) for _ in range(3)]
        told: list[Any] = []
        future.add_done_callback(told.append)
        removed = told.extend
        future.add_done_callback(removed)
        assert future.remove_done_callback(removed) == 1
        await turns()
        asyncio.get_running_loop().call_soon(future.finish, 7)
        assert await asyncio.gather(*tasks, future) == [7, 7, 7, 7]
        assert told == [future]
        assert await future == 7

    run(main())


def test_a_task_may_close_the_socket_when_it_is_woken(run: Run) -> None:
    async def main() -> None:
        with Context() as context, context.socket(zmq.PAIR) as left:
            right = context.socket(zmq.PAIR)
            left.bind("inproc://closing")
            right.connect("inproc://closing")

            async def take_one() -> bytes:
                message: bytes = await right.recv()
                right.close()
                return message

            first = asyncio.create_task(take_one())
            await turns()
            others = [right.recv(), right.poll(), right.recv_multipart()]
            await left.send_many([b"1", b"2", b"3"])
            assert await first == b"1"
            for future in others:
                with pytest.raises(asyncio.CancelledError):
                    await future

    run(main())


def test_tasks_that_take_turns_lose_nothing(run: Run) -> None:
    async def main() -> None:
        with Context() as context, context.socket(zmq.PAIR) as left, context.socket(zmq.PAIR) as right:
            left.bind("inproc://turns")
            right.connect("inproc://turns")
            taken: list[int] = []

            async def take() -> None:
                while len(taken) < 1000:
                    taken.append(int(await right.recv()))

            tasks = [asyncio.create_task(take()) for _ in range(4)]
            for number in range(1004):
                await left.send(b"%d" % number)
                if number % 7 == 0:
                    await asyncio.sleep(0)
            await asyncio.gather(*tasks)
            assert taken[:1000] == list(range(1000))

    run(main())
