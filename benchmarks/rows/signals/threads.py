"""Table: messages from thread to thread."""

from __future__ import annotations

import queue
from typing import Any

from harness.clock import per_message
from harness.measure import Size
from harness.table import Contest, Line, Row, times_better, times_the_peer


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
        return per_message(messages, produce_batches, consume_batches)
    return per_message(messages, produce, consume)


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

    return per_message(messages, produce, consume)


MESSAGES = Size(500_000, 2000)
BUS = Contest(bus_threads, needs=("ropewalk",), messages=MESSAGES, batch=0)
BATCHES = Contest(bus_threads, needs=("ropewalk",), messages=MESSAGES, batch=250)
SIMPLE = Contest(queue_threads, kind="SimpleQueue", messages=MESSAGES).by("SimpleQueue")
QUEUE = Contest(queue_threads, kind="Queue", messages=Size(100_000, 1000)).by("Queue")

ROW = Row(
    "threads",
    "thread to thread, ns a message",
    "From the start of the publishing thread to the last reception, for 500,000 integers (100,000 for Queue), in a "
    "subscription or queue with room for all; methods are bound before.",
    (
        Line(
            "one by one", "ns", BUS, "ns", None, {SIMPLE: times_the_peer(1.1), QUEUE: times_better(15)}, "Bus"
        ),
        Line("by batches of 250", "ns", BATCHES, "ns", None, {SIMPLE: times_the_peer(0.75)}, "Bus, batches"),
    ),
)
