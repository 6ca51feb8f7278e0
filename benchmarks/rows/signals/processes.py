"""Table: messages from a worker process to its parent."""

from __future__ import annotations

import time
from typing import Any

from harness import workloads
from harness.measure import Size
from harness.table import Contest, Line, Row


def bus_processes(messages: int) -> dict[str, float]:
    """A worker publishes, this process receives one by one; from submission to the last reception."""
    import ropewalk

    bus = ropewalk.Bus()
    subscription = bus.subscribe("numbers", capacity=messages)
    with ropewalk.Pool(1, kind="process") as pool:
        pool.submit(workloads.publish, bus, 1).result()
        subscription.recv()
        began = time.perf_counter_ns()
        pool.submit(workloads.publish, bus, messages)
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
    process = context.Process(target=workloads.put_all, args=(made, messages))
    began = time.perf_counter_ns()
    process.start()
    for _ in range(messages):
        made.get()
    took = time.perf_counter_ns() - began
    process.join()
    return {"ns": took / messages}


MESSAGES = Size(100_000, 500)
BUS = Contest(bus_processes, needs=("ropewalk",), messages=MESSAGES)
QUEUE = Contest(queue_processes, kind="Queue", messages=MESSAGES).by("mp.Queue")
SIMPLE = Contest(queue_processes, kind="SimpleQueue", messages=MESSAGES).by("mp.SimpleQueue")

ROW = Row(
    "processes",
    "worker process to parent, ns a message",
    "100,000 integers, from the submission of the task (ours, worker warm) or the start of a forked process (peers) to "
    "the last reception; pickled on both sides.",
    (Line("worker to parent", "ns", BUS, "ns", None, {QUEUE: None, SIMPLE: None}, "Bus"),),
)
