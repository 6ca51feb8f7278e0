"""The futures of waiting operations: they are asyncio's own, and a task that awaits one runs at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import ropewalk
import ropewalk.zmq as zmq
from ropewalk.zmq.asyncio import Context, Socket

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=[asyncio.run, ropewalk.run], ids=["asyncio", "ropewalk"])
def run(request: pytest.FixtureRequest) -> Run:
    runner: Run = request.param
    return lambda main: runner(asyncio.wait_for(main, 30))


def pair(context: Context) -> tuple[Socket, Socket]:
    left, right = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    left.bind("inproc://pair")
    right.connect("inproc://pair")
    return left, right


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_task_is_run_before_the_loop_turns_again(run: Run) -> None:
    async def main() -> None:
        with Context() as context:
            left, right = pair(context)
            seen: list[str] = []

            async def wait() -> None:
                seen.append(await right.recv_string())
                assert asyncio.current_task() is task

            task = asyncio.create_task(wait())
            await turns()
            await left.send(b"message")

            def serve() -> None:
                right._watch._readable()
                seen.append("served")

            asyncio.get_running_loop().call_soon(serve)
            await task
            assert seen == ["message", "served"]
            left.close()
            right.close()

    run(main())


@pytest.mark.parametrize("end", ["result", "exception", "cancel"])
def test_a_future_that_somebody_else_ends_takes_no_message(run: Run, end: str) -> None:
    async def main() -> None:
        with Context() as context:
            left, right = pair(context)
            future = right.recv()
            assert type(future) is asyncio.Future

            async def wait() -> Any:
                return await future

            task = asyncio.create_task(wait())
            await turns()
            if end == "result":
                future.set_result(b"1")
                assert await task == b"1"
            elif end == "exception":
                future.set_exception(LookupError())
                with pytest.raises(LookupError):
                    await task
            else:
                assert task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert future.cancelled()
            await left.send(b"kept")
            assert await right.recv() == b"kept"
            left.close()
            right.close()

    run(main())


def test_many_may_wait_for_it(run: Run) -> None:
    async def main() -> None:
        with Context() as context:
            left, right = pair(context)
            future = right.recv()

            async def wait() -> Any:
                return await future

            tasks = [asyncio.create_task(wait()) for _ in range(3)]
            told: list[Any] = []
            future.add_done_callback(told.append)
            removed = told.extend
            future.add_done_callback(removed)
            assert future.remove_done_callback(removed) == 1
            await turns()
            await left.send(b"7")
            assert await asyncio.gather(*tasks, future) == [b"7"] * 4
            assert told == [future]
            assert await future == b"7"
            left.close()
            right.close()

    run(main())


def test_a_receive_that_is_told_of_many_connections_serves_them_all(run: Run) -> None:
    # What is readable is taken for the only connection while there is one only: others must be let in all the same.
    async def main() -> None:
        with Context() as context, context.socket(zmq.REP) as server:
            port = server.bind_to_random_port("tcp://127.0.0.1")
            served: set[bytes] = set()

            async def serve() -> None:
                while True:
                    name = await server.recv()
                    served.add(name)
                    await server.send(name)

            serving = asyncio.create_task(serve())

            async def ask(name: bytes, until: int) -> None:
                with context.socket(zmq.REQ) as client:
                    client.connect(f"tcp://127.0.0.1:{port}")
                    while len(served) < until:
                        await client.send(name)
                        assert await client.recv() == name

            first = asyncio.create_task(ask(b"0", 8))
            while not served:
                await asyncio.sleep(0)
            await asyncio.gather(first, *(ask(b"%d" % number, number + 1) for number in range(1, 8)))
            serving.cancel()

    run(main())


def test_a_receive_in_vain_does_not_take_the_signal_of_a_send_that_waits(run: Run) -> None:
    async def main() -> None:
        with Context() as context, context.socket(zmq.DEALER) as left, context.socket(zmq.DEALER) as right:
            port = left.bind_to_random_port("tcp://127.0.0.1")
            sent = left.send(b"first")
            await turns()
            assert not sent.done()
            right.connect(f"tcp://127.0.0.1:{port}")
            # The loop does not turn meanwhile: only these receives see the peer's handshake, and its end.
            deadline = time.monotonic() + 10
            while not right.getsockopt(zmq.EVENTS) & zmq.POLLOUT and time.monotonic() < deadline:
                assert isinstance(left.recv(zmq.NOBLOCK).exception(), zmq.Again)
            for _ in range(20):
                assert isinstance(left.recv(zmq.NOBLOCK).exception(), zmq.Again)
                time.sleep(0.001)
            await sent
            assert await right.recv() == b"first"

    run(main())


def test_what_was_left_unwritten_is_written_by_a_wait(run: Run) -> None:
    # Nobody looks at the kernel before a wait that follows many in vain.
    async def main() -> None:
        with Context() as context, context.socket(zmq.DEALER) as left, context.socket(zmq.DEALER) as right:
            right.connect(f"tcp://127.0.0.1:{left.bind_to_random_port('tcp://127.0.0.1')}")

            async def echo() -> None:
                while True:
                    for message in await right.recv_many(100):
                        right.send(message)

            echoing = asyncio.create_task(echo())
            for number in range(200):
                burst = [b"%d" % number] * (number % 5 + 1)
                for message in burst:
                    left.send(message)
                assert [await left.recv() for _ in burst] == burst
            echoing.cancel()

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
