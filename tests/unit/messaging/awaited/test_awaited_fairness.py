"""Busy and idle asynchronous sockets let other callbacks of the loop run."""

from __future__ import annotations

import asyncio
import os

from tests.unit.messaging.awaited.waiting import Pair, Run, turns

import ropewalk.zmq as zmq
from ropewalk.zmq.asyncio import Context, Socket


def test_a_receiver_is_not_forgotten_while_others_send(run: Run, pair: Pair) -> None:
    # Sending looks at the socket, and so may take the signal that the receiver waits for.
    async def main() -> None:
        left, right = pair(zmq.PAIR, zmq.PAIR)

        async def echo() -> None:
            for _ in range(200):
                await right.send(await right.recv())

        async def chatter(socket: Socket, other: asyncio.Task[None]) -> None:
            while not other.done():
                assert left.get(zmq.EVENTS) is not None
                await asyncio.sleep(0)

        echoing = asyncio.create_task(echo())
        chattering = asyncio.create_task(chatter(left, echoing))
        for number in range(200):
            received = left.recv()
            await left.send(b"%d" % number)
            assert await received == b"%d" % number
        await asyncio.gather(echoing, chattering)

    run(main())


def test_a_loop_that_only_receives_lets_others_run(run: Run, pair: Pair) -> None:
    async def main() -> None:
        left, right = pair(zmq.PAIR, zmq.PAIR)
        ran = 0

        async def other() -> None:
            nonlocal ran
            while True:
                ran += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await turns()
        before = ran
        for _ in range(2000):
            await left.send(b"x")
            # It is there before it is asked for, so that no receive has to wait.
            assert right.get(zmq.EVENTS) is not None
            await right.recv()
        assert ran - before >= 2
        task.cancel()

    run(main())


def test_a_loop_that_only_sends_lets_others_run(run: Run, context: Context) -> None:
    async def main() -> None:
        publisher = context.socket(zmq.PUB)
        publisher.bind_to_random_port("tcp://127.0.0.1")
        ticks = 0

        async def other() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        for _ in range(2000):
            await publisher.send(b"nobody hears it")
        assert ticks >= 2
        task.cancel()

    run(main())


def test_an_idle_socket_does_not_keep_the_loop_busy(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        waiting = pull.recv()
        push.send(b"1")
        await waiting
        # These are wanted by nobody: the loop must not turn for them, and must hear of them again.
        for number in range(100):
            push.send(b"%d" % number)
        before = os.times()
        await asyncio.sleep(0.5)
        after = os.times()
        assert after.user + after.system - before.user - before.system < 0.4
        for number in range(100):
            assert await pull.recv() == b"%d" % number
        last = pull.recv()
        push.send(b"last")
        assert await last == b"last"

    run(main())
