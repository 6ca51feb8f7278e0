"""The bus with event loops."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import ropewalk
from ropewalk import Bus


def test_a_loop_receives_what_a_thread_publishes() -> None:
    async def main() -> list[int]:
        bus = Bus()
        subscription = bus.subscribe("t", capacity=100)
        publisher = threading.Thread(target=lambda: (bus.publish_many("t", range(5000)), bus.close()))
        publisher.start()
        taken = [message async for message in subscription]
        publisher.join()
        return taken

    assert asyncio.run(main()) == list(range(5000))


def test_every_way_to_receive() -> None:
    async def main() -> None:
        bus = Bus()
        subscription = bus.subscribe("t")
        one = asyncio.create_task(receive_one(subscription))
        await asyncio.sleep(0)
        bus.publish("t", 1)
        assert await one == 1
        bus.publish_many("t", range(5))
        assert await subscription.recv_many_async(3) == [0, 1, 2]
        assert await anext(aiter(subscription)) == 3
        assert await subscription.recv_async() == 4
        with pytest.raises(ValueError, match="at least 1"):
            subscription.recv_many_async(0)
        subscription.close()
        with pytest.raises(ropewalk.BusClosed):
            await subscription.recv_async()
        assert [message async for message in subscription] == []

    asyncio.run(main())


async def receive_one(subscription: Any) -> Any:
    return await subscription.recv_async()


def test_lag_is_told() -> None:
    async def main() -> None:
        subscription = (bus := Bus()).subscribe("t", capacity=1, overflow="drop_oldest")
        bus.publish_many("t", range(3))
        with pytest.raises(ropewalk.Lagged) as caught:
            await subscription.recv_async()
        assert caught.value.count == 2
        assert await subscription.recv_async() == 2

    asyncio.run(main())


def test_a_burst_wakes_the_loop_once() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        woken = 0
        plain = loop.call_soon_threadsafe

        def counting(*args: Any, **kwargs: Any) -> Any:
            nonlocal woken
            woken += 1
            return plain(*args, **kwargs)

        loop.call_soon_threadsafe = counting  # type: ignore[method-assign]
        bus = Bus()
        subscription = bus.subscribe("t")
        receiver = asyncio.create_task(take(subscription, 1000))
        await asyncio.sleep(0)
        # The loop is kept busy meanwhile: what it is asked to do waits.
        publisher = threading.Thread(target=bus.publish_many, args=("t", range(1000)))
        publisher.start()
        publisher.join()
        assert await receiver == list(range(1000))
        return woken

    assert asyncio.run(main()) == 1


async def take(subscription: Any, count: int) -> list[Any]:
    return [await subscription.recv_async() for _ in range(count)]


def test_several_loops() -> None:
    bus = Bus()
    shared = bus.subscribe("t", capacity=50)
    ready = threading.Barrier(4)
    taken: list[list[int]] = [[] for _ in range(3)]

    def run(mine: list[int]) -> None:
        async def main() -> None:
            ready.wait()
            async for message in shared:
                mine.append(message)
                await asyncio.sleep(0)

        asyncio.run(main())

    threads = [threading.Thread(target=run, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    ready.wait()
    bus.publish_many("t", range(3000))
    bus.close()
    for thread in threads:
        thread.join(60)
    assert sorted(taken[0] + taken[1] + taken[2]) == list(range(3000))


def test_cancelling_loses_no_message() -> None:
    async def main() -> None:
        bus = Bus()
        subscription = bus.subscribe("t")
        for number in range(200):
            first = asyncio.create_task(receive_one(subscription))
            second = asyncio.create_task(receive_one(subscription))
            await asyncio.sleep(0)
            bus.publish("t", number)  # Wakes the first.
            first.cancel()
            assert await asyncio.wait_for(second, 30) == number
            with pytest.raises(asyncio.CancelledError):
                await first
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(subscription.recv_async(), 0.01)
        bus.publish("t", "kept")
        assert await subscription.recv_async() == "kept"

    asyncio.run(main())


def test_a_publisher_that_never_rests_starves_nobody() -> None:
    async def main() -> None:
        bus = Bus()
        subscription = bus.subscribe("t")
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        for number in range(3000):
            bus.publish("t", number)
            await subscription.recv_async()
        assert turns >= 5
        task.cancel()

    asyncio.run(main())


def test_publishing_never_stops_its_own_loop() -> None:
    async def main() -> None:
        bus = Bus()
        subscription = bus.subscribe("t", capacity=2)
        bus.publish_many("t", range(2))
        with pytest.raises(ropewalk.BusFull, match="publish_async"):
            bus.publish("t", 2)
        publisher = asyncio.create_task(publish_all(bus, range(2, 500)))
        taken = [await subscription.recv_async() for _ in range(500)]
        assert taken == list(range(500))
        await publisher
        blocked = asyncio.create_task(publish_all(bus, range(5)))
        await asyncio.sleep(0.01)
        blocked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await blocked
        assert subscription.recv_many(9) == [0, 1]

    asyncio.run(main())


async def publish_all(bus: Bus, messages: Any) -> None:
    for message in messages:
        await bus.publish_async("t", message)


def test_asynchronous_handlers() -> None:
    async def main() -> None:
        told: list[BaseException] = []
        bus = Bus(on_error=lambda error, *_: told.append(error))
        seen: list[Any] = []
        done = asyncio.Event()

        @bus.on("n.*", topics=True)
        async def handler(topic: str, message: int) -> None:
            await asyncio.sleep(0)
            if message == 3:
                raise ValueError(message)
            seen.append((topic, message))
            if message == 9:
                done.set()

        threading.Thread(target=lambda: [bus.publish("n.x", n) for n in range(10)]).start()
        await asyncio.wait_for(done.wait(), 30)
        assert seen == [("n.x", n) for n in range(10) if n != 3]
        assert [type(error) for error in told] == [ValueError]
        assert bus.off(handler) == 1
        bus.publish("n.x", 10)
        await asyncio.sleep(0.01)
        assert len(seen) == 9

    asyncio.run(main())


def test_an_asynchronous_handler_needs_a_loop() -> None:
    async def handler(_: object) -> None: ...

    with pytest.raises(RuntimeError, match="no event loop runs"):
        Bus().on("t")(handler)


def test_a_loop_that_is_gone_holds_up_nobody() -> None:
    bus = Bus()
    subscription = bus.subscribe("t")

    async def main() -> None:
        asyncio.create_task(receive_one(subscription))  # noqa: RUF006 -- it is to be left behind
        await asyncio.sleep(0)

    asyncio.run(main())
    bus.publish_many("t", range(3))
    assert subscription.recv_many(9) == [0, 1, 2]

    async def again() -> None:
        bus.publish("t", 3)
        assert await subscription.recv_async() == 3

    asyncio.run(again())


def test_an_awaitable_is_a_coroutine_for_those_who_look() -> None:
    bus = Bus()
    subscription = bus.subscribe("t")
    bus.publish("t", (1, 2))
    waiting = subscription.recv_async()
    step: Callable[[None], Any] = waiting.send  # type: ignore[attr-defined]
    with pytest.raises(StopIteration) as caught:
        step(None)
    assert caught.value.value == (1, 2)
    with pytest.raises(RuntimeError, match="twice"):
        step(None)
    other = subscription.recv_async()
    with pytest.raises(KeyError):
        other.throw(KeyError("a"))  # type: ignore[attr-defined]
    subscription.recv_async().close()  # type: ignore[attr-defined]


async def numbers(subscription: Any) -> AsyncIterator[int]:
    async for message in subscription:
        yield message


def test_it_serves_asynchronous_generators() -> None:
    async def main() -> list[int]:
        bus = Bus()
        subscription = bus.subscribe("t")
        bus.publish_many("t", range(300))
        bus.close()
        return [number async for number in numbers(subscription)]

    assert asyncio.run(main()) == list(range(300))


@pytest.mark.parametrize("silent", [False, True])
def test_a_loop_that_accepts_no_attributes_leaves_nothing_behind(silent: bool) -> None:
    class Bare(asyncio.SelectorEventLoop):
        def __setattr__(self, name: str, value: object) -> None:
            if name != "_ropewalk_mailbox":
                super().__setattr__(name, value)
            elif not silent:
                raise AttributeError(name)

    def mailboxes() -> int:
        return sum(type(known).__name__ == "Mailbox" for known in gc.get_objects())

    async def main() -> None:
        loop = asyncio.get_running_loop()
        before = mailboxes()
        for number in range(100):
            loop.call_soon(bus.publish, "t", number)
            assert await messages.recv_async() == number
        assert mailboxes() - before < 10

    bus = ropewalk.Bus()
    messages = bus.subscribe("t")
    loop = Bare()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
