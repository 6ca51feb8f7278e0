"""Table: a call of an object that lives in another process."""

from __future__ import annotations

import multiprocessing
import multiprocessing.managers
from collections.abc import Callable
from typing import Any

from harness import workloads
from harness.clock import repeat
from harness.measure import Size, percentile
from harness.pools import OUR_THREADS, OURS
from harness.table import Contest, Line, Row, at_most, times_better, times_the_peer

PLAIN = "ropewalk, a plain task"
STATE = "ropewalk, a session's task"
PIPE = "multiprocessing.Pipe"
MANAGER = "multiprocessing.Manager"
RAY = "Ray"

PLAYERS: dict[str, tuple[str, ...]] = {
    OURS: ("ropewalk",),
    OUR_THREADS: ("ropewalk",),
    PLAIN: ("ropewalk",),
    STATE: ("ropewalk",),
    PIPE: (),
    MANAGER: (),
    RAY: ("ray",),
}

#: A call of the number, and what ends the object.
Made = tuple[Callable[[int], int], Callable[[], object]]


def _ours(peer: str) -> Made:
    import ropewalk

    pool = ropewalk.Pool(
        2, kind="thread" if peer == OUR_THREADS else "process", preload=["harness.workloads"]
    )
    if peer == PLAIN:
        return (lambda number: pool.submit(workloads.increment, number).result()), pool.shutdown
    if peer == STATE:
        session = pool.session("numbers", list, mode="queue")
        return (lambda number: session.submit(workloads.increment, number).result()), pool.shutdown
    numbers = pool.actor(workloads.Numbers)
    return (lambda number: int(numbers.increment(number).result())), pool.shutdown


def _with_pipe() -> Made:
    near, far = multiprocessing.Pipe()
    server = multiprocessing.get_context("fork").Process(target=workloads.serve_numbers, args=(far,))
    server.start()

    def call(number: int) -> int:
        near.send(number)
        answer: int = near.recv()
        return answer

    def close() -> None:
        near.send(None)
        server.join()

    return call, close


class _Manager(multiprocessing.managers.BaseManager):
    Numbers: Callable[[], workloads.Numbers]


def _with_manager() -> Made:
    _Manager.register("Numbers", workloads.Numbers)
    manager = _Manager(ctx=multiprocessing.get_context("fork"))
    manager.start()
    return manager.Numbers().increment, manager.shutdown


def _with_ray() -> Made:
    import ray

    ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")
    numbers: Any = ray.remote(workloads.Numbers).remote()
    return (lambda number: int(ray.get(numbers.increment.remote(number)))), ray.shutdown


def _make(peer: str) -> Made:
    if peer == PIPE:
        return _with_pipe()
    if peer == MANAGER:
        return _with_manager()
    return _with_ray() if peer == RAY else _ours(peer)


def calling(peer: str, seconds: float) -> dict[str, float]:
    """Times of one call after another, without a pause."""
    import time

    call, close = _make(peer)
    if call(41) != 42:
        raise RuntimeError("the object's answer is wrong")
    repeat(seconds / 4, lambda: call(1))
    clock = time.perf_counter_ns
    hot: list[int] = []
    until = clock() + int(seconds * 1e9)
    while (began := clock()) < until or len(hot) < 50:
        call(1)
        hot.append(clock() - began)
    close()
    return {"hot p50": percentile(hot, 0.5) / 1e3, "hot p99": percentile(hot, 0.99) / 1e3}


ALONE = Contest(calling, players=PLAYERS, seconds=Size(0.4, 0.02))
PEERS = {PIPE: None, MANAGER: times_better(2), RAY: times_better(50)}

ROW = Row(
    "actor",
    "one call of an object in another process",
    "From the call to the result in hand, one after another, everything warm: a method that adds 1. The plain task is "
    "the same function, submitted to the same kind of pool. multiprocessing.Pipe: a loop that answers what it gets, "
    "which is the least that two processes can do with pipes.",
    (
        Line("actor, p50", "µs", ALONE, "hot p50", at_most(10), {PLAIN: times_the_peer(1.2), **PEERS}),
        Line("actor, p99", "µs", ALONE, "hot p99", None, {PLAIN: None, PIPE: None, MANAGER: None, RAY: None}),
        Line("session, p50", "µs", ALONE, "hot p50", None, {PLAIN: times_the_peer(1.2)}, STATE),
        Line("threads: actor, p50", "µs", ALONE, "hot p50", None, {PIPE: None}, OUR_THREADS),
    ),
)
