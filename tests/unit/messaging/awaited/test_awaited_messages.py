"""The arguments and results of an asynchronous socket's methods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from tests.unit.messaging.awaited.waiting import Pair, Run, turns, until

import ropewalk.zmq as zmq


def test_a_message_is_received(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        received = pull.recv()
        assert not received.done()
        assert await push.send(b"hello") is None
        assert await received == b"hello"

    run(main())


def test_what_is_there_is_received_at_once(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        for number in range(3):
            await push.send(b"%d" % number)
        assert await pull.poll(10_000) == zmq.POLLIN
        assert await pull.recv() == b"0"
        # All came in one piece or come soon; a future that is done was done by the call.
        await pull.poll(10_000)
        future = pull.recv()
        assert future.done()
        assert future.result() == b"1"
        assert await pull.recv() == b"2"

    run(main())


def test_a_send_happens_though_nobody_awaits_it(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        push.send(b"sent")
        assert await pull.recv() == b"sent"

    run(main())


def test_each_method_has_its_kind_of_message(run: Run, pair: Pair) -> None:
    async def main() -> None:
        left, right = pair(zmq.PAIR, zmq.PAIR)
        await left.send_multipart([b"one", b"two"])
        assert await right.recv_multipart() == [b"one", b"two"]
        await left.send(b"first", zmq.SNDMORE)
        await left.send(b"last")
        assert await right.recv() == b"first"
        assert right.rcvmore
        assert await right.recv() == b"last"
        await left.send_string("grüße")
        assert await right.recv_string() == "grüße"
        await left.send_json({"a": [1, 2]})
        assert await right.recv_json() == {"a": [1, 2]}
        await left.send_pyobj({1, 2})
        assert await right.recv_pyobj() == {1, 2}
        await left.send_serialized([1, 2], lambda numbers: [b"%d" % number for number in numbers])
        assert await right.recv_serialized(lambda parts: [int(part) for part in parts]) == [1, 2]
        await left.send(b"x" * 10)
        buffer = bytearray(20)
        assert await right.recv_into(buffer) == 10
        assert bytes(buffer[:10]) == b"x" * 10
        await left.send(b"frame", copy=False)
        frame = await right.recv(copy=False)
        assert isinstance(frame, zmq.Frame)
        assert frame.bytes == b"frame"
        tracker = await left.send(b"tracked", copy=False, track=True)
        assert await right.recv() == b"tracked"
        await until(lambda: tracker.done)

    run(main())


def test_every_kind_of_receive_waits_too(run: Run, pair: Pair) -> None:
    async def main() -> None:
        left, right = pair(zmq.PAIR, zmq.PAIR)
        buffer = bytearray(4)
        waiting: list[Awaitable[Any]] = [
            right.recv_multipart(),
            right.recv_string(),
            right.recv_json(),
            right.recv_pyobj(),
            right.recv_into(buffer),
            right.recv_serialized(len),
            right.recv(copy=False),
        ]
        await turns()
        await left.send_multipart([b"1", b"2"])
        await left.send_string("text")
        await left.send_json([3])
        await left.send_pyobj(4)
        await left.send(b"five")
        await left.send_multipart([b"6"] * 6)
        await left.send(b"seven")
        done = await asyncio.gather(*waiting)
        assert done[:6] == [[b"1", b"2"], "text", [3], 4, 4, 6]
        assert buffer == b"five"
        assert done[6].bytes == b"seven"

    run(main())


def test_many_at_once(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair(sndhwm=10, rcvhwm=10)
        messages = [b"%d" % number for number in range(500)]
        sending = push.send_many(messages)
        received: list[bytes] = []
        while len(received) < len(messages):
            some = await pull.recv_many(64)
            assert 1 <= len(some) <= 64
            received += some
        assert received == messages
        assert await sending == len(messages)
        assert await push.send_many([[b"a", b"b"], b"c"]) == 2
        received = await pull.recv_many(1)
        received += await pull.recv_many(1)
        assert received == [[b"a", b"b"], b"c"]

    run(main())


def test_a_message_that_cannot_be_decoded_fails_its_own_receive(run: Run, pair: Pair) -> None:
    async def main() -> None:
        push, pull = pair()
        bad, good = pull.recv_json(), pull.recv_json()
        push.send(b"{")
        push.send(b"{}")
        with pytest.raises(ValueError):
            await bad
        assert await good == {}

    run(main())


def test_two_tasks_talk_through_a_router(run: Run, pair: Pair) -> None:
    async def main() -> None:
        router, dealer = pair(zmq.ROUTER, zmq.DEALER)

        async def serve() -> None:
            for _ in range(500):
                identity, number = await router.recv_multipart()
                await router.send_multipart([identity, b"%d" % (int(number) * 2)])

        async with asyncio.TaskGroup() as group:
            group.create_task(serve())
            for number in range(500):
                await dealer.send(b"%d" % number)
                assert await dealer.recv() == b"%d" % (number * 2)

    run(main())
