"""Table: messages from a thread to an event loop."""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from typing import Any

from harness.measure import Size
from harness.table import Contest, Line, Row, times_better, times_the_peer


def bus_loop(messages: int, batch: int) -> dict[str, float]:
    """``async for`` in a loop, or ``recv_many_async``; another thread publishes one by one."""
    import ropewalk

    async def main() -> dict[str, float]:
        bus = ropewalk.Bus()
        subscription = bus.subscribe("numbers", capacity=messages)

        def produce() -> None:
            publish = bus.publish
            for number in range(messages):
                publish("numbers", number)

        thread = threading.Thread(target=produce)
        began = time.perf_counter_ns()
        thread.start()
        taken = 0
        if batch:
            while taken < messages:
                taken += len(await subscription.recv_many_async(batch))
        else:
            async for _ in subscription:
                taken += 1
                if taken == messages:
                    break
        took = time.perf_counter_ns() - began
        thread.join()
        return {"ns": took / messages}

    return asyncio.run(main())


def deque_loop(messages: int) -> dict[str, float]:
    """The least that does it: a deque, and one ``call_soon_threadsafe`` while the loop has not looked."""

    async def main() -> dict[str, float]:
        loop, waiting = asyncio.get_running_loop(), collections.deque[int]()
        ready, pending = asyncio.Event(), False

        def wake() -> None:
            nonlocal pending
            pending = False
            ready.set()

        def produce() -> None:
            nonlocal pending
            append = waiting.append
            for number in range(messages):
                append(number)
                if not pending:
                    pending = True
                    loop.call_soon_threadsafe(wake)

        thread = threading.Thread(target=produce)
        began = time.perf_counter_ns()
        thread.start()
        taken = 0
        while taken < messages:
            await ready.wait()
            ready.clear()
            while waiting:
                waiting.popleft()
                taken += 1
        took = time.perf_counter_ns() - began
        thread.join()
        return {"ns": took / messages}

    return asyncio.run(main())


def threadsafe_loop(messages: int) -> dict[str, float]:
    """``call_soon_threadsafe`` for each message."""

    async def main() -> dict[str, float]:
        loop, done, taken = asyncio.get_running_loop(), asyncio.Event(), 0

        def take(_: int) -> None:
            nonlocal taken
            taken += 1
            if taken == messages:
                done.set()

        def produce() -> None:
            for number in range(messages):
                loop.call_soon_threadsafe(take, number)

        thread = threading.Thread(target=produce)
        began = time.perf_counter_ns()
        thread.start()
        await done.wait()
        took = time.perf_counter_ns() - began
        thread.join()
        return {"ns": took / messages}

    return asyncio.run(main())


def janus_loop(messages: int) -> dict[str, float]:
    """janus.Queue: its thread's side puts, its loop's side gets."""
    import janus

    async def main() -> dict[str, float]:
        made: Any = janus.Queue()

        def produce() -> None:
            put = made.sync_q.put
            for number in range(messages):
                put(number)

        thread = threading.Thread(target=produce)
        began = time.perf_counter_ns()
        thread.start()
        get = made.async_q.get
        for _ in range(messages):
            await get()
        took = time.perf_counter_ns() - began
        thread.join()
        await made.aclose()
        return {"ns": took / messages}

    return asyncio.run(main())


MESSAGES, FEW = Size(300_000, 2000), Size(20_000, 500)
BUS = Contest(bus_loop, needs=("ropewalk",), messages=MESSAGES, batch=0)
BATCHES = Contest(bus_loop, needs=("ropewalk",), messages=MESSAGES, batch=250)
DEQUE = Contest(deque_loop, messages=MESSAGES).by("deque, one wake")
THREADSAFE = Contest(threadsafe_loop, messages=FEW).by("call_soon_threadsafe")
JANUS = Contest(janus_loop, needs=("janus",), messages=FEW).by("janus")

ROW = Row(
    "asyncio",
    "thread to event loop, ns a message",
    "From the start of the publishing thread to the last reception in the loop, for 300,000 integers (20,000 for janus "
    "and call_soon_threadsafe). The deque is emptied in one go after each wake.",
    (
        Line(
            "async for",
            "ns",
            BUS,
            "ns",
            None,
            {DEQUE: times_the_peer(1.5), JANUS: times_better(10), THREADSAFE: times_better(25)},
            "Bus",
        ),
        Line("by batches", "ns", BATCHES, "ns", None, {DEQUE: times_the_peer(1.5)}, "Bus, batches"),
    ),
)
