"""Rows: messages between threads, to an event loop, to handlers, to worker processes; and that none is lost."""

from __future__ import annotations

import asyncio
import collections
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

import _workloads
from _measure import Case, Options, Outcome
from _report import Figure, at_least, figure, times_better, times_the_peer
from _row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def _per_message(
    messages: int, produce: Callable[[], object], consume: Callable[[], object]
) -> dict[str, float]:
    """Nanoseconds for a message: from the start of the publishing thread to the last reception."""
    thread = threading.Thread(target=produce)
    began = time.perf_counter_ns()
    thread.start()
    consume()
    took = time.perf_counter_ns() - began
    thread.join()
    return {"ns": took / messages}


# --- thread to thread --------------------------------------------------------


def bus_threads(messages: int, batch: int) -> dict[str, float]:
    """One subscription; ``batch`` 0: everything one by one; else published and received so many at once."""
    import ropewalk

    bus = ropewalk.Bus()
    subscription = bus.subscribe("numbers", capacity=messages)

    def produce() -> None:
        publish = bus.publish
        for number in range(messages):
            publish("numbers", number)

    def consume() -> None:
        receive = subscription.recv
        for _ in range(messages):
            receive()

    def produce_batches() -> None:
        for start in range(0, messages, batch):
            bus.publish_many("numbers", range(start, start + batch))

    def consume_batches() -> None:
        taken = 0
        while taken < messages:
            taken += len(subscription.recv_many(batch))

    if batch:
        return _per_message(messages, produce_batches, consume_batches)
    return _per_message(messages, produce, consume)


def queue_threads(kind: str, messages: int) -> dict[str, float]:
    """A queue of the standard library, its methods bound before."""
    made: Any = getattr(queue, kind)()

    def produce() -> None:
        put = made.put
        for number in range(messages):
            put(number)

    def consume() -> None:
        get = made.get
        for _ in range(messages):
            get()

    return _per_message(messages, produce, consume)


def _thread_cases(options: Options) -> Sequence[Case]:
    fast, slow = options.size(500_000, 2000), options.size(100_000, 1000)
    return (
        Case("Bus", "_rows_signals:bus_threads", {"messages": fast, "batch": 0}, ("ropewalk",)),
        Case("Bus, batches", "_rows_signals:bus_threads", {"messages": fast, "batch": 250}, ("ropewalk",)),
        Case("SimpleQueue", "_rows_signals:queue_threads", {"kind": "SimpleQueue", "messages": fast}),
        Case("Queue", "_rows_signals:queue_threads", {"kind": "Queue", "messages": slow}),
    )


def _thread_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    ns, one, many = "ns", ("Bus", "ns"), ("Bus, batches", "ns")
    yield figure(outcomes, "one by one", ns, one, ("SimpleQueue", ns), goal=times_the_peer(1.1))
    yield figure(outcomes, "one by one", ns, one, ("Queue", ns), goal=times_better(15))
    yield figure(outcomes, "by batches of 250", ns, many, ("SimpleQueue", ns), goal=times_the_peer(0.75))


# --- thread to event loop ----------------------------------------------------


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


def _loop_cases(options: Options) -> Sequence[Case]:
    fast, slow = options.size(300_000, 2000), options.size(20_000, 500)
    return (
        Case("Bus", "_rows_signals:bus_loop", {"messages": fast, "batch": 0}, ("ropewalk",)),
        Case("Bus, batches", "_rows_signals:bus_loop", {"messages": fast, "batch": 250}, ("ropewalk",)),
        Case("deque, one wake", "_rows_signals:deque_loop", {"messages": fast}),
        Case("call_soon_threadsafe", "_rows_signals:threadsafe_loop", {"messages": slow}),
        Case("janus", "_rows_signals:janus_loop", {"messages": slow}, ("janus",)),
    )


def _loop_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    ns, one, many = "ns", ("Bus", "ns"), ("Bus, batches", "ns")
    yield figure(outcomes, "async for", ns, one, ("deque, one wake", ns), goal=times_the_peer(1.5))
    yield figure(outcomes, "by batches", ns, many, ("deque, one wake", ns), goal=times_the_peer(1.5))
    yield figure(outcomes, "async for", ns, one, ("janus", ns), goal=times_better(10))
    yield figure(outcomes, "async for", ns, one, ("call_soon_threadsafe", ns), goal=times_better(25))


# --- broadcast ---------------------------------------------------------------


def _timed(call: Callable[[int], object], calls: int) -> dict[str, float]:
    for number in range(calls // 10):
        call(number)
    began = time.perf_counter_ns()
    for number in range(calls):
        call(number)
    return {"ns": (time.perf_counter_ns() - began) / calls}


def _handlers(count: int) -> list[Callable[[int], None]]:
    """Functions of their own, which do nothing."""

    def make() -> Callable[[int], None]:
        def handler(_: int) -> None:
            return None

        return handler

    return [make() for _ in range(count)]


def broadcast(peer: str, handlers: int, calls: int) -> dict[str, float]:
    """One message to so many handlers that do nothing; nanoseconds for the message."""
    functions = _handlers(handlers)
    call: Callable[[int], object]
    if peer == "Bus":
        import ropewalk

        bus = ropewalk.Bus()
        for function in functions:
            bus.on("numbers.*")(function)
        publish = bus.publish

        def call(number: int) -> None:
            publish("numbers.new", number)

    elif peer == "loop":

        def call(number: int) -> None:
            for function in functions:
                function(number)

    elif peer == "psygnal":
        import psygnal

        signal = psygnal.SignalInstance((int,))
        for function in functions:
            signal.connect(function, check_nargs=False)
        emit = signal.emit

        def call(number: int) -> None:
            emit(number)

    elif peer == "blinker":
        import blinker

        named = blinker.Signal()
        for function in functions:
            named.connect(function)
        send = named.send

        def call(number: int) -> None:
            send(number)

    else:
        nothing = [].__len__

        def call(_: int) -> None:
            nothing()

    return _timed(call, calls)


def _broadcast_cases(options: Options) -> Sequence[Case]:
    needs = {"Bus": ("ropewalk",), "psygnal": ("psygnal",), "blinker": ("blinker",)}
    cases = [
        Case(
            f"{peer} {count}",
            "_rows_signals:broadcast",
            {"peer": peer, "handlers": count, "calls": options.size(400_000 // (count + 19), 20)},
            needs.get(peer, ()),
        )
        for count in (1, 100)
        for peer in ("Bus", "loop", "psygnal", "blinker")
    ]
    floor = {"peer": "floor", "handlers": 0, "calls": options.size(400_000, 20)}
    return [*cases, Case("an empty call", "_rows_signals:broadcast", floor)]


def _broadcast_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    yield figure(outcomes, "the floor: a frame that calls an empty method", "ns", ("an empty call", "ns"))
    for count in (1, 100):
        what, ours = f"to {count} handler{'s' if count > 1 else ''}", (f"Bus {count}", "ns")
        for peer, goal in (
            ("loop", times_the_peer(1.3)),
            ("psygnal", times_better(5)),
            ("blinker", times_better(35)),
        ):
            yield figure(outcomes, what, "ns", ours, (f"{peer} {count}", "ns"), goal=goal)


# --- processes ---------------------------------------------------------------


def bus_processes(messages: int) -> dict[str, float]:
    """A worker publishes, this process receives one by one; from submission to the last reception."""
    import ropewalk

    bus = ropewalk.Bus()
    subscription = bus.subscribe("numbers", capacity=messages)
    with ropewalk.Pool(1, kind="process") as pool:
        pool.submit(_workloads.publish, bus, 1).result()
        subscription.recv()
        began = time.perf_counter_ns()
        pool.submit(_workloads.publish, bus, messages)
        for _ in range(messages):
            subscription.recv()
        took = time.perf_counter_ns() - began
    bus.close()
    return {"ns": took / messages}


def queue_processes(kind: str, messages: int) -> dict[str, float]:
    """The same by a queue of multiprocessing."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    made: Any = getattr(context, kind)()
    made.put(0)
    made.get()
    process = context.Process(target=_workloads.put_all, args=(made, messages))
    began = time.perf_counter_ns()
    process.start()
    for _ in range(messages):
        made.get()
    took = time.perf_counter_ns() - began
    process.join()
    return {"ns": took / messages}


def _process_cases(options: Options) -> Sequence[Case]:
    count = options.size(100_000, 500)
    return (
        Case("Bus", "_rows_signals:bus_processes", {"messages": count}, ("ropewalk",)),
        Case("mp.Queue", "_rows_signals:queue_processes", {"kind": "Queue", "messages": count}),
        Case("mp.SimpleQueue", "_rows_signals:queue_processes", {"kind": "SimpleQueue", "messages": count}),
    )


def _process_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    for peer in ("mp.Queue", "mp.SimpleQueue"):
        yield figure(outcomes, "worker to parent", "ns", ("Bus", "ns"), (peer, "ns"))


# --- delivery ----------------------------------------------------------------


def delivery(messages: int, overflow: str) -> dict[str, float]:
    """Two threads publish, two receive from a queue of a hundred; what share arrives, and what is told of the rest."""
    import ropewalk

    bus = ropewalk.Bus()
    subscription = bus.subscribe("numbers", capacity=100, overflow=overflow)  # type: ignore[arg-type]
    counts = {"received": 0, "told": 0}
    lock = threading.Lock()

    def receive() -> None:
        received = told = 0
        while True:
            try:
                for _ in subscription:
                    received += 1
                break
            except ropewalk.Lagged as lag:
                told += lag.count
        with lock:
            counts["received"] += received
            counts["told"] += told

    receivers = [threading.Thread(target=receive) for _ in range(2)]
    publishers = [
        threading.Thread(target=bus.publish_many, args=("numbers", range(messages // 2))) for _ in range(2)
    ]
    for thread in (*receivers, *publishers):
        thread.start()
    for thread in publishers:
        thread.join()
    bus.close()
    for thread in receivers:
        thread.join()
    known = counts["received"] + counts["told"]
    return {"arrived": 100 * counts["received"] / messages, "accounted": 100 * known / messages}


def _delivery_cases(options: Options) -> Sequence[Case]:
    count = options.size(200_000, 2000)
    return [
        Case(overflow, "_rows_signals:delivery", {"messages": count, "overflow": overflow}, ("ropewalk",))
        for overflow in ("block", "drop_oldest", "drop_newest")
    ]


def _delivery_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    whole = at_least(100)
    yield figure(outcomes, "arrived, by default", "%", ("block", "arrived"), goal=whole, more_is_better=True)
    for overflow in ("drop_oldest", "drop_newest"):
        what = f"{overflow}: arrived or told by Lagged"
        yield figure(outcomes, what, "%", (overflow, "accounted"), goal=whole, more_is_better=True)


THREADS = Row(
    "threads",
    "thread to thread, ns a message",
    "From the start of the publishing thread to the last reception, for 500,000 integers (100,000 for Queue), in a "
    "subscription or queue with room for all; methods are bound before.",
    _thread_cases,
    _thread_figures,
)
ASYNCIO = Row(
    "asyncio",
    "thread to event loop, ns a message",
    "From the start of the publishing thread to the last reception in the loop, for 300,000 integers (20,000 for janus "
    "and call_soon_threadsafe). The deque is emptied in one go after each wake.",
    _loop_cases,
    _loop_figures,
)
BROADCAST = Row(
    "broadcast",
    "one message to many handlers in the same thread, ns a message",
    "The call that publishes, from a Python function around it (the floor shows what that costs); handlers are Python "
    "functions that do nothing. The loop is the same function around a for loop over them.",
    _broadcast_cases,
    _broadcast_figures,
)
PROCESSES = Row(
    "processes",
    "worker process to parent, ns a message",
    "100,000 integers, from the submission of the task (ours, worker warm) or the start of a forked process (peers) to "
    "the last reception; pickled on both sides.",
    _process_cases,
    _process_figures,
)
DELIVERY = Row(
    "delivery",
    "what arrives",
    "Two publishers, two receivers, 200,000 messages through a subscription with room for 100.",
    _delivery_cases,
    _delivery_figures,
)
