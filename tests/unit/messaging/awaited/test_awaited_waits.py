"""Waiting operations: their order, and the effects of cancellation, timeouts, closing and errors."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.unit.messaging.awaited.waiting import Pair, Run, turns, until

import ropewalk.zmq as zmq
from ropewalk.zmq.asyncio import Context


def test_waiters_are_served_in_order(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        waiting = [pull.recv() for _ in range(20)]
        for number in range(20):
            await push.send(b"%d" % number)
        assert await asyncio.gather(*waiting) == [b"%d" % number for number in range(20)]

    run(main())


def test_a_cancelled_receive_loses_no_message(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        received: list[bytes] = []
        for number in range(300):
            with_luck = asyncio.ensure_future(pull.recv())
            if number % 3 == 0:
                await turns(number % 4)
            await push.send(b"%d" % number)
            if number % 2:
                await turns(number % 5)
            with_luck.cancel()
            try:
                received.append(await with_luck)
            except asyncio.CancelledError:
                received.append(await pull.recv())
        assert received == [b"%d" % number for number in range(300)]

    run(main())


def test_receives_with_a_deadline_lose_no_message_and_pile_nothing_up(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        for _ in range(50):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pull.recv(), 0.0005)
        assert pull._watch.receivers <= 1
        await push.send(b"kept")
        assert await asyncio.wait_for(pull.recv(), 10) == b"kept"

    run(main())


def test_a_receive_can_be_waited_for_in_every_way(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        futures = {pull.recv(), pull.recv()}
        push.send(b"1")
        push.send(b"2")
        done, _ = await asyncio.wait(futures)
        assert sorted(future.result() for future in done) == [b"1", b"2"]
        push.send(b"3")
        assert await asyncio.gather(pull.recv()) == [b"3"]
        told: list[bytes] = []
        future = pull.recv()
        future.add_done_callback(lambda done: told.append(done.result()))
        push.send(b"4")
        await until(lambda: told)
        assert told == [b"4"]

    run(main())


def test_a_send_waits_for_room_and_keeps_its_place(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair(sndhwm=1, rcvhwm=1, sndbuf=4096, rcvbuf=4096)
        sends: list[asyncio.Future[Any]] = []
        while len(sends) < 10_000 and (not sends or sends[-1].done()):
            sends.append(push.send(b"%d" % len(sends) + b" " * 8192))
            # What has not left at once may leave in a moment.
            await asyncio.wait(sends[-1:], timeout=0.1)
        assert not sends[-1].done()
        cancelled = push.send(b"never")
        last = push.send(b"last")
        cancelled.cancel()
        await turns()
        assert not last.done()
        for number in range(len(sends)):
            assert int(await pull.recv()) == number
        assert await pull.recv() == b"last"
        await asyncio.gather(*sends, last)
        assert await pull.poll(20) == 0

    run(main())


def test_timeouts_of_the_socket_hold(run: Run, pair: Pair, context: Context) -> None:
    async def main() -> None:
        push, pull = pair()
        pull.rcvtimeo = 10
        with pytest.raises(zmq.Again):
            await pull.recv()
        with pytest.raises(zmq.Again):
            await pull.recv_multipart()
        push.send(b"in time")
        pull.rcvtimeo = 10_000
        assert await pull.recv() == b"in time"
        alone = context.socket(zmq.PUSH)
        alone.sndtimeo = 10
        with pytest.raises(zmq.Again):
            await alone.send(b"nobody is there")
        with pytest.raises(zmq.Again):
            await alone.send_multipart([b"nobody", b"is there"])

    run(main())


def test_noblock_does_not_wait(run: Run, pair: Pair, context: Context) -> None:
    async def main() -> None:
        push, pull = pair()
        with pytest.raises(zmq.Again):
            await pull.recv(zmq.NOBLOCK)
        with pytest.raises(zmq.Again):
            await context.socket(zmq.PUSH).send(b"", zmq.NOBLOCK)
        push.send(b"x")
        await pull.poll(10_000)
        assert await pull.recv(zmq.NOBLOCK) == b"x"

    run(main())


def test_errors_come_with_the_future(run: Run, pair: Pair, context: Context) -> None:
    async def main() -> None:
        push, _ = pair()
        wrong = push.recv()
        with pytest.raises(zmq.ZMQError) as caught:
            await wrong
        assert caught.value.errno == zmq.ENOTSUP
        with pytest.raises(TypeError):
            await push.send("text")
        with pytest.raises(TypeError):
            await push.send_string(b"bytes")
        push.close()
        with pytest.raises(zmq.ZMQError) as caught:
            await push.send(b"")
        assert caught.value.errno == zmq.ENOTSOCK

    run(main())


def test_closing_cancels_who_waits(run: Run, pair: Pair, context: Context) -> None:
    async def main() -> None:
        _, pull = pair()
        alone = context.socket(zmq.PUSH)
        waiting = [
            pull.recv(),
            pull.recv_multipart(),
            pull.poll(),
            alone.send(b""),
            alone.poll(flags=zmq.POLLOUT),
        ]
        await turns()
        pull.close()
        alone.close()
        for future in waiting:
            with pytest.raises(asyncio.CancelledError):
                await future

    run(main())


def test_the_end_of_the_context_ends_who_waits(run: Run) -> None:
    async def main() -> None:
        context = Context()
        pull = context.socket(zmq.PULL)
        waiting = [pull.recv(), pull.poll()]
        ended = threading.Thread(target=context.term)
        ended.start()
        for future in waiting:
            with pytest.raises(zmq.ContextTerminated):
                await future
        pull.close()
        await asyncio.to_thread(ended.join)

    run(main())
