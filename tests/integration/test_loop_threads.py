"""Loops in several threads that call each other by `call_soon_threadsafe`: no call is lost or reordered."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from tests.integration.event_loops import is_under_test, new_event_loop, run

LOOPS = 4


class Room:
    """A loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = new_event_loop()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        asyncio.set_event_loop(None)

    def end(self) -> None:
        """Stops the loop once what was sent before is done."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        assert self.loop.is_closed()


@pytest.fixture
def rooms() -> Any:
    made = [Room() for _ in range(LOOPS)]
    yield made
    for room in made:
        room.end()


def test_tokens_that_wander_between_loops(rooms: list[Room]) -> None:
    tokens, hops = 50, 400
    arrived: Future[None] = Future()
    ended: list[int] = []
    visits: list[Counter[int]] = [Counter() for _ in rooms]

    def visit(place: int, token: int, left: int, choice: random.Random) -> None:
        assert asyncio.get_running_loop() is rooms[place].loop
        visits[place][token] += 1
        if left:
            there = choice.randrange(len(rooms))
            rooms[there].loop.call_soon_threadsafe(visit, there, token, left - 1, choice)
        else:
            rooms[0].loop.call_soon_threadsafe(end, token)

    def end(token: int) -> None:
        ended.append(token)
        if len(ended) == tokens:
            arrived.set_result(None)

    for token in range(tokens):
        rooms[token % len(rooms)].loop.call_soon_threadsafe(
            visit, token % len(rooms), token, hops, random.Random(token)
        )
    arrived.result(90)
    assert sorted(ended) == list(range(tokens))
    assert sum(visits, Counter()) == Counter(dict.fromkeys(range(tokens), hops + 1))


def test_every_sender_keeps_its_order(rooms: list[Room]) -> None:
    count = 3000
    received: list[list[tuple[int, int]]] = [[] for _ in rooms]
    start = threading.Barrier(8)

    def send(name: int) -> None:
        start.wait()
        for number in range(count):
            for place, room in enumerate(rooms):
                room.loop.call_soon_threadsafe(received[place].append, (name, number))

    with ThreadPoolExecutor(8) as senders:
        list(senders.map(send, range(8)))
    for room in rooms:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), room.loop).result(60)
    for messages in received:
        assert len(messages) == 8 * count
        for name in range(8):
            assert [number for sender, number in messages if sender == name] == list(range(count))


def test_each_call_runs_in_its_senders_context(rooms: list[Room]) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    seen: list[tuple[str, str]] = []

    def send(name: int) -> None:
        for number in range(200):
            value = f"{name}-{number}"
            variable.set(value)
            rooms[number % LOOPS].loop.call_soon_threadsafe(
                lambda sent: seen.append((sent, variable.get())), value
            )

    with ThreadPoolExecutor(4) as senders:
        list(senders.map(send, range(4)))
    for room in rooms:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), room.loop).result(60)
    assert len(seen) == 800
    assert [sent for sent, _ in seen] == [value for _, value in seen]


def test_calls_that_are_cancelled_from_their_own_loop_do_not_run(rooms: list[Room]) -> None:
    ran: list[int] = []
    first = rooms[0].loop

    def plan() -> None:
        handles = [first.call_soon_threadsafe(ran.append, number) for number in range(1000)]
        for handle in handles[::2]:
            handle.cancel()

    first.call_soon_threadsafe(plan)
    for _ in range(2):
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), first).result(60)
    assert ran == list(range(1, 1000, 2))


def test_coroutines_that_ask_other_loops(rooms: list[Room]) -> None:
    async def depth(place: int, left: int) -> int:
        assert asyncio.get_running_loop() is rooms[place].loop
        if left == 0:
            return 0
        there = (place + 1) % len(rooms)
        return 1 + await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(depth(there, left - 1), rooms[there].loop)
        )

    async def main() -> list[int]:
        return await asyncio.gather(
            *(
                asyncio.wrap_future(
                    asyncio.run_coroutine_threadsafe(depth(n % LOOPS, 10), rooms[n % LOOPS].loop)
                )
                for n in range(100)
            )
        )

    assert run(main()) == [10] * 100


def test_a_cancellation_crosses_loops(rooms: list[Room]) -> None:
    async def main() -> None:
        began, ended = asyncio.Event(), asyncio.Event()
        here = asyncio.get_running_loop()

        async def wait_for_ever() -> None:
            here.call_soon_threadsafe(began.set)
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                here.call_soon_threadsafe(ended.set)

        there = asyncio.run_coroutine_threadsafe(wait_for_ever(), rooms[0].loop)
        waiting = asyncio.ensure_future(asyncio.wrap_future(there))
        await began.wait()
        waiting.cancel()
        await ended.wait()
        assert there.cancelled()

    run(main())


def test_a_closed_loop_refuses_calls_from_threads() -> None:
    room = Room()
    room.end()
    with pytest.raises(RuntimeError, match="closed"):
        room.loop.call_soon_threadsafe(print)


def test_sends_that_race_with_the_end_are_run_or_refused() -> None:
    for _ in range(10):
        room = Room()
        ran: list[tuple[int, int]] = []
        started = threading.Barrier(4)

        def send(name: int, room: Room = room, ran: Any = ran, started: Any = started) -> int:
            started.wait()
            for number in itertools.count():
                try:
                    room.loop.call_soon_threadsafe(ran.append, (name, number))
                except RuntimeError:
                    return number
            raise AssertionError("numbers have no end")

        with ThreadPoolExecutor(3) as senders:
            accepted = [senders.submit(send, name) for name in range(3)]
            started.wait()
            room.end()
        # What ran is a beginning of what each sender sent: the rest came after the stop.
        for name, future in enumerate(accepted):
            numbers = [number for sender, number in ran if sender == name]
            assert numbers == list(range(len(numbers)))
            assert len(numbers) <= future.result()


def test_loops_that_come_and_go_in_many_threads() -> None:
    async def main(name: int) -> int:
        loop = asyncio.get_running_loop()
        assert is_under_test(loop)
        left = await loop.run_in_executor(None, pow, name, 2)
        await asyncio.sleep(0.001)
        return left

    def work(name: int) -> list[int]:
        return [run(main(name)) for _ in range(20)]

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(work, range(4))) == [[name * name] * 20 for name in range(4)]
