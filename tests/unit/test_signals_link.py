"""A bus that is shared with a pool's workers."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests import tasks
from tests.polling import until

import ropewalk
from ropewalk import Bus

#: A worker's subscriptions, kept beyond the task that made them.
_KEPT: list[Any] = []


def publish(bus: Bus, topic: str, messages: list[Any]) -> int:
    bus.publish_many(topic, messages)
    return os.getpid()


def listen(bus: Bus, pattern: str, **options: Any) -> int:
    _KEPT.append(bus.subscribe(pattern, **options))
    return os.getpid()


def receive(count: int) -> list[Any]:
    return [_KEPT[-1].recv(timeout=30) for _ in range(count)]


def waits_until_closed(bus: Bus) -> int:
    never = bus.subscribe("never")
    bus.publish("ready", None)
    return len(list(never))


def answer(bus: Bus) -> None:
    bus.on("question")(lambda m: bus.publish("answer", (os.getpid(), m)))


def same(bus: Bus, other: Bus) -> bool:
    return bus is other


def closed_over(bus: Bus) -> Callable[[], None]:
    return lambda: bus.publish("t", 1)


def lines(bus: Bus) -> dict[int, Any]:
    """The lines to the workers that have a bus."""
    return getattr(bus._link_end, "_lines", {})


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus() as made:
        yield made


def test_what_workers_publish_arrives_in_order(make_pool: Callable[..., Any], bus: Bus) -> None:
    subscription = bus.subscribe("up.*", topics=True)
    pool = make_pool(2, kind="process")
    futures = [pool.submit(publish, bus, f"up.{who}", list(range(1000))) for who in range(4)]
    taken = [subscription.recv(timeout=30) for _ in range(4000)]
    for who in range(4):
        assert [m for topic, m in taken if topic == f"up.{who}"] == list(range(1000))
    assert all(future.result() != os.getpid() for future in futures)


def test_a_worker_s_subscription_misses_nothing_that_comes_after_it(
    make_pool: Callable[..., Any], bus: Bus
) -> None:
    pool = make_pool(1, kind="process")
    pool.submit(listen, bus, "down.*").result(60)
    bus.publish("down.a", 1)
    bus.publish("elsewhere", threading.Lock())  # Nobody there wants it, so it need not be pickled.
    bus.publish("down.b", bytes(300_000))
    bus.publish("down.c", lambda n: n + 1)
    one, two, three = pool.submit(receive, 2).result(60) + pool.submit(receive, 1).result(60)
    assert (one, len(two), three(1)) == (1, 300_000, 2)


def test_workers_hear_each_other_and_not_themselves_twice(make_pool: Callable[..., Any], bus: Bus) -> None:
    one, two = make_pool(1, kind="process"), make_pool(1, kind="process")
    for pool in (one, two):
        pool.submit(listen, bus, "talk").result(60)
    here = bus.subscribe("talk")
    one.submit(publish, bus, "talk", ["hello", "again"]).result(60)
    for pool in (one, two):
        assert pool.submit(receive, 2).result(60) == ["hello", "again"]
    assert here.recv(timeout=30) == "hello"
    two.submit(publish, bus, "talk", ["end"]).result(60)
    for pool in (one, two):
        assert pool.submit(receive, 1).result(60) == ["end"]


def test_handlers_in_workers_answer(make_pool: Callable[..., Any], bus: Bus) -> None:
    answers = bus.subscribe("answer")
    pool = make_pool(1, kind="process")
    pool.submit(answer, bus).result(60)
    bus.publish("question", 7)
    pid, question = answers.recv(timeout=30)
    assert (pid, question) == (pool.statistics().worker_pids[0], 7)


def test_it_is_the_same_bus_each_time(make_pool: Callable[..., Any], bus: Bus) -> None:
    pool = make_pool(1, kind="process")
    assert pool.submit(same, bus, bus).result(60)
    assert pool.submit(tasks.identity, bus).result(60) is bus
    assert make_pool(1, kind="thread").submit(tasks.identity, bus).result(60) is bus


def test_closing_it_closes_the_workers_ends(make_pool: Callable[..., Any]) -> None:
    bus = Bus()
    pool = make_pool(1, kind="process")
    ready = bus.subscribe("ready")
    future = pool.submit(waits_until_closed, bus)
    ready.recv(timeout=60)
    bus.close()
    assert future.result(60) == 0
    with pytest.raises(ropewalk.BusClosed):
        pool.submit(publish, bus, "t", [1]).result(60)


def test_what_was_published_before_a_worker_leaves_arrives(make_pool: Callable[..., Any], bus: Bus) -> None:
    subscription = bus.subscribe("t", capacity=100_000)
    pool = make_pool(1, kind="process")
    pool.submit(publish, bus, "t", list(range(20_000)))
    pool.shutdown()
    assert [subscription.recv(timeout=30) for _ in range(20_000)] == list(range(20_000))


def test_a_worker_that_dies_takes_nobody_with_it(make_pool: Callable[..., Any], bus: Bus) -> None:
    subscription = bus.subscribe("t")
    pool = make_pool(1, kind="process")
    for _ in range(3):
        pid = pool.submit(listen, bus, "down").result(60)
        os.kill(pid, signal.SIGKILL)
        for number in range(2000):  # More than a ring holds.
            bus.publish("down", f"{number:0100}")
        pool.submit(publish, bus, "t", ["alive"]).result(60)
        assert subscription.recv(timeout=30) == "alive"
    until(lambda: not lines(bus))


def test_what_cannot_be_pickled_is_told(make_pool: Callable[..., Any]) -> None:
    told: list[tuple[BaseException, str]] = []
    bus = Bus(on_error=lambda error, _, topic: told.append((error, topic)))
    pool = make_pool(1, kind="process")
    pool.submit(listen, bus, "down").result(60)
    bus.publish("down", threading.Lock())
    bus.publish("down", 2)
    assert pool.submit(receive, 1).result(60) == [2]
    assert [(type(error), topic) for error, topic in told] == [(ropewalk.EncodeError, "down")]
    bus.close()


def test_it_travels_in_a_call_only(make_pool: Callable[..., Any], bus: Bus) -> None:
    heard = bus.subscribe("t")
    make_pool(1, kind="process").submit(closed_over(bus)).result(60)
    assert heard.recv(timeout=30) == 1
    with pytest.raises(TypeError, match="as an argument"):
        pickle.dumps(bus)


def test_a_fork_has_a_bus_of_its_own(bus: Bus) -> None:
    subscription = bus.subscribe("t")
    bus.publish("t", "before")
    never = bus.subscribe("never")
    waiter = threading.Thread(target=list, args=(never,))
    waiter.start()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            bus.publish("t", "child")
            if subscription.recv_many(9) == ["before", "child"]:
                status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    bus.publish("t", "parent")
    assert subscription.recv_many(9) == ["before", "parent"]
    never.close()
    waiter.join(30)
