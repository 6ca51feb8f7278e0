"""The bus: topics, handlers, subscriptions, overflow policies."""

from __future__ import annotations

import gc
import itertools
import logging
import pickle
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from tests.polling import until

import ropewalk
from ropewalk import Bus


class Message:
    """Something that can be referred to weakly."""


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus() as made:
        yield made


@pytest.mark.parametrize(
    ("pattern", "heard", "not_heard"),
    [
        ("orders.new", ["orders.new"], ["orders", "orders.new.eu", "orders.old"]),
        ("orders.*", ["orders.new", "orders.old"], ["orders", "orders.new.eu"]),
        ("orders.**", ["orders", "orders.new", "orders.new.eu"], ["order", "new.orders"]),
        ("**.eu", ["eu", "orders.eu", "a.b.eu"], ["eu.orders"]),
        ("*.b.**.d", ["a.b.d", "a.b.c.c.d"], ["b.d", "a.b.c"]),
        ("**", ["a", "a.b.c"], []),
    ],
)
def test_patterns(bus: Bus, pattern: str, heard: list[str], not_heard: list[str]) -> None:
    subscription = bus.subscribe(pattern)
    for topic in [*heard, *not_heard]:
        bus.publish(topic, topic)
    assert subscription.recv_many(100) == heard
    assert subscription.pattern == pattern


@pytest.mark.parametrize("topic", ["", ".", "a.", ".a", "a..b", "a.*", "**"])
def test_malformed_topics(bus: Bus, topic: str) -> None:
    with pytest.raises(ropewalk.InvalidTopic, match="malformed at byte"):
        bus.publish(topic, 1)


@pytest.mark.parametrize("pattern", ["", "a.", "a..b", "a*", "***", "a.b**"])
def test_malformed_patterns(bus: Bus, pattern: str) -> None:
    with pytest.raises(ValueError, match="malformed at byte"):
        bus.subscribe(pattern)
    with pytest.raises(ropewalk.InvalidTopic):
        bus.on(pattern)(print)


def test_bad_arguments(bus: Bus) -> None:
    for call in (
        lambda: bus.publish(3, 1),  # type: ignore[arg-type]
        lambda: bus.publish("a"),  # type: ignore[call-arg]
        lambda: bus.publish("a", 1, 2, 3),  # type: ignore[call-arg]
        lambda: bus.publish("a", 1, wrong=2),  # type: ignore[call-arg]
        lambda: bus.publish("a", topic="a"),  # type: ignore[call-arg]
        lambda: bus.subscribe(3),  # type: ignore[call-overload]
        lambda: bus.subscribe("a", where=3),  # type: ignore[call-overload]
        lambda: bus.on("a")(3),  # type: ignore[type-var]
        lambda: bus.subscribe("a", capacity="3"),  # type: ignore[call-overload]
        lambda: Bus(on_error=3),  # type: ignore[arg-type]
        lambda: pickle.dumps(bus),
    ):
        with pytest.raises(TypeError):
            call()
    for call in (
        lambda: bus.subscribe("a", capacity=0),
        lambda: bus.subscribe("a", overflow="explode"),  # type: ignore[call-overload]
        lambda: Bus(max_depth=0),
        lambda: bus.subscribe("a").recv_many(0),
        lambda: bus.subscribe("a").recv(timeout=float("nan")),
    ):
        with pytest.raises(ValueError):
            call()
    bus.publish(message=1, topic="a")


# --- handlers ----------------------------------------------------------------


def test_handlers_are_called_in_the_publisher_s_thread_by_priority(bus: Bus) -> None:
    seen: list[tuple[str, int]] = []
    for name, priority in (("b", 0), ("a", 5), ("c", 0), ("z", -1)):
        bus.on("t", priority=priority)(lambda m, name=name: seen.append((name, threading.get_ident())))
    bus.publish("t", 1)
    me = threading.get_ident()
    assert seen == [(name, me) for name in "abcz"]


def test_filters_and_topics(bus: Bus) -> None:
    even: list[int] = []
    named: list[tuple[str, int]] = []
    bus.on("n.*", where=lambda m: m % 2 == 0)(even.append)
    bus.on("n.*", topics=True)(lambda topic, m: named.append((topic, m)))
    queue = bus.subscribe("**", where=lambda m: m > 2, topics=True)
    for number in range(5):
        bus.publish(f"n.{number}", number)
    assert even == [0, 2, 4]
    assert named == [(f"n.{n}", n) for n in range(5)]
    assert queue.recv_many(9) == [("n.3", 3), ("n.4", 4)]


@pytest.mark.parametrize("others", [0, 1, 5])
def test_what_a_handler_or_a_filter_raises_is_told_and_stops_nobody(
    caplog: pytest.LogCaptureFixture, others: int
) -> None:
    told: list[tuple[BaseException, Any, str]] = []
    bus = Bus(on_error=lambda *what: told.append(what))
    seen: list[int] = []

    def bad(message: int) -> None:
        raise ValueError(message)

    for _ in range(others):
        bus.on("t")(seen.append)
    bus.on("t")(bad)
    for _ in range(others):
        bus.on("t")(seen.append)
    queue = bus.subscribe("t", where=bad)
    bus.publish("t", 7)
    assert seen == [7] * (2 * others)
    assert [(type(error), handler, topic) for error, handler, topic in told] == [(ValueError, bad, "t")] * 2
    assert len(queue) == 0
    assert bus.statistics().failed == 2

    plain = Bus()
    plain.on("t")(bad)
    with caplog.at_level(logging.ERROR, "ropewalk.bus"):
        plain.publish("t", 8)
    assert "a handler of 't' failed" in caplog.text
    assert "ValueError: 8" in caplog.text


def test_what_is_no_error_goes_on_to_the_publisher(bus: Bus) -> None:
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    bus.on("t")(stop)
    with pytest.raises(KeyboardInterrupt):
        bus.publish("t", 1)
    bus.on("t")(print)
    with pytest.raises(KeyboardInterrupt):
        bus.publish("t", 1)
    assert bus.statistics().failed == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_of_on_error_stops_nobody() -> None:
    def worse(*_: object) -> None:
        raise RuntimeError("worse")

    bus = Bus(on_error=worse)
    seen: list[int] = []
    bus.on("t")(lambda _: 1 / 0)
    bus.on("t")(seen.append)
    bus.publish("t", 1)
    assert seen == [1]


@pytest.mark.parametrize("mixed", [False, True])
def test_handlers_may_take_each_other_away(bus: Bus, mixed: bool) -> None:
    seen: list[str] = []
    if mixed:
        bus.subscribe("t")

    def first(_: object) -> None:
        seen.append("first")
        bus.off(first)
        bus.off(third)

    def third(_: object) -> None:
        seen.append("third")

    bus.on("t")(first)
    bus.on("t")(lambda _: seen.append("second"))
    bus.on("t")(third)
    bus.publish("t", 1)
    bus.publish("t", 2)
    assert seen == ["first", "second", "second"]


def test_who_comes_during_a_delivery_gets_the_next_message(bus: Bus) -> None:
    seen: list[int] = []
    bus.on("t")(lambda m: m == 1 and bus.on("t")(seen.append))
    bus.publish("t", 1)
    assert seen == []
    bus.publish("t", 2)
    assert seen == [2]


def test_off_takes_every_pattern_and_bound_methods(bus: Bus) -> None:
    seen: list[int] = []
    bus.on("a")(seen.append)
    bus.on("b.*")(seen.append)
    assert bus.off(seen.append) == 2
    assert bus.off(seen.append) == 0
    bus.publish("a", 1)
    assert seen == []


def test_handlers_that_publish_without_end_are_stopped() -> None:
    told: list[BaseException] = []
    bus = Bus(max_depth=10, on_error=lambda error, *_: told.append(error))
    depth = 0

    @bus.on("t")
    def again(message: int) -> None:
        nonlocal depth
        depth += 1
        bus.publish("t", message + 1)

    bus.publish("t", 0)
    assert depth == 10
    assert [type(error) for error in told] == [ropewalk.PublishTooDeep]
    assert isinstance(told[0], RecursionError)
    bus.publish("t", 0)
    assert depth == 20


def test_a_handler_is_let_go(bus: Bus) -> None:
    def make() -> weakref.ref[Any]:
        def handler(_: object) -> None: ...

        bus.on("t")(handler)
        for number in range(3):
            bus.publish("t", number)
        bus.off(handler)
        return weakref.ref(handler)

    gone = make()
    gc.collect()
    assert gone() is None


def test_topics_are_told_apart_however_they_are_named(bus: Bus) -> None:
    class Name(str):
        __slots__ = ()

    names = [f"topic.{number}" for number in range(40)]
    everything = bus.subscribe("**", topics=True)
    for turn in range(4):
        some = bus.subscribe(f"topic.{turn}")
        for again in range(3):
            for name in names:
                for same in (name, "".join(name), Name(name)):
                    bus.publish(same, again)
        assert [topic for topic, _ in everything.recv_many(1000)] == [n for n in names for _ in range(3)] * 3
        assert some.recv_many(1000) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        some.close()
    bus.close()
    for name in names:
        with pytest.raises(ropewalk.BusClosed):
            bus.publish(name, 0)


# --- subscriptions -----------------------------------------------------------


def test_each_subscription_gets_everything_in_order(bus: Bus) -> None:
    one, two = bus.subscribe("t"), bus.subscribe("**")
    assert bus.publish_many("t", range(5)) == 5
    assert [one.recv() for _ in range(5)] == [0, 1, 2, 3, 4] == two.recv_many(9)


def test_nothing_to_receive(bus: Bus) -> None:
    subscription = bus.subscribe("t")
    for receive in (
        subscription.recv_nowait,
        lambda: subscription.recv(timeout=0.01),
        lambda: subscription.recv_many(3, timeout=0),
        lambda: subscription.recv_many_nowait(3),
    ):
        with pytest.raises(ropewalk.BusEmpty) as caught:
            receive()
        assert isinstance(caught.value, TimeoutError)


def test_recv_many_nowait_takes_what_is_there(bus: Bus) -> None:
    subscription = bus.subscribe("t", capacity=4, overflow="drop_oldest")
    bus.publish_many("t", range(4))
    assert subscription.recv_many_nowait(3) == [0, 1, 2]
    assert subscription.recv_many_nowait(3) == [3]
    bus.publish_many("t", range(5))
    with pytest.raises(ropewalk.Lagged):
        subscription.recv_many_nowait(9)
    assert subscription.recv_many_nowait(9) == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="at least 1"):
        subscription.recv_many_nowait(0)
    subscription.close()
    with pytest.raises(ropewalk.BusClosed):
        subscription.recv_many_nowait(1)


def test_dropping_the_oldest_tells_the_gap_where_it_is(bus: Bus) -> None:
    subscription = bus.subscribe("t", capacity=3, overflow="drop_oldest")
    bus.publish_many("t", range(5))
    with pytest.raises(ropewalk.Lagged) as caught:
        subscription.recv()
    assert caught.value.count == 2
    assert subscription.recv_many(9) == [2, 3, 4]
    assert len(subscription) == 0
    assert subscription.statistics() == ropewalk.SubscriptionStatistics(0, 3, 5, 3, 2, 0)


def test_dropping_the_newest_tells_the_gap_where_it_is(bus: Bus) -> None:
    subscription = bus.subscribe("t", capacity=2, overflow="drop_newest")
    bus.publish_many("t", range(4))
    assert subscription.recv() == 0
    bus.publish("t", 4)
    bus.publish("t", 5)
    assert subscription.recv_many(9) == [1]
    with pytest.raises(ropewalk.Lagged) as caught:
        subscription.recv_nowait()
    assert caught.value.count == 2
    assert subscription.recv_many(9) == [4]
    with pytest.raises(ropewalk.Lagged) as caught:
        subscription.recv_many(9)
    assert caught.value.count == 1
    with pytest.raises(ropewalk.BusEmpty):
        subscription.recv_nowait()
    counted = subscription.statistics()
    assert (counted.accepted, counted.received, counted.dropped) == (3, 3, 3)


def test_an_iteration_goes_on_after_a_lag(bus: Bus) -> None:
    subscription = bus.subscribe("t", capacity=1, overflow="drop_oldest")
    bus.publish_many("t", range(3))
    subscription.close()
    taken: list[object] = []
    while True:
        try:
            taken.extend(subscription)
            break
        except ropewalk.Lagged as lag:
            taken.append(f"lost {lag.count}")
    assert taken == ["lost 2", 2]


def test_an_error_comes_after_everybody_else_was_served(bus: Bus) -> None:
    refusing = bus.subscribe("t", capacity=1, overflow="error", priority=5)
    other = bus.subscribe("t")
    bus.publish("t", 1)
    with pytest.raises(ropewalk.BusFull):
        bus.publish("t", 2)
    assert (len(refusing), other.recv_many(9)) == (1, [1, 2])
    assert refusing.statistics().refused == 1


def test_blocking_waits_for_room_and_loses_nothing(bus: Bus) -> None:
    subscription = bus.subscribe("t", capacity=3)
    publisher = threading.Thread(target=bus.publish_many, args=("t", range(1000)))
    publisher.start()
    assert [subscription.recv(timeout=30) for _ in range(1000)] == list(range(1000))
    publisher.join()
    assert subscription.statistics().peak <= 3
    bus.publish_many("t", range(3))
    with pytest.raises(ropewalk.BusFull):
        bus.publish("t", 3, timeout=0.01)
    with pytest.raises(ropewalk.BusFull):
        bus.publish_nowait("t", 3)
    assert subscription.recv_many(9) == [0, 1, 2]
    bus.publish_nowait("t", 4)
    assert subscription.recv_nowait() == 4


def test_closing_ends_those_who_wait_at_either_end() -> None:
    bus = Bus()
    full, empty = bus.subscribe("full", capacity=1), bus.subscribe("empty")
    bus.publish("full", 1)
    ends: list[str] = []

    def run(name: str, work: Any) -> None:
        try:
            ends.append(f"{name} {work()}")
        except ropewalk.BusClosed:
            ends.append(f"{name} closed")

    works = {
        "publish": lambda: bus.publish("full", 2),
        "recv": empty.recv,
        "many": lambda: empty.recv_many(3),
        "iterate": lambda: list(empty),
    }
    threads = [threading.Thread(target=run, args=item) for item in works.items()]
    for thread in threads:
        thread.start()
    bus.close()
    for thread in threads:
        thread.join(30)
    assert sorted(ends) == ["iterate []", "many closed", "publish closed", "recv closed"]
    assert list(full) == [1]
    with pytest.raises(ropewalk.BusClosed):
        full.recv()
    for call in (lambda: bus.publish("t", 1), lambda: bus.subscribe("t"), lambda: bus.on("t")(print)):
        with pytest.raises(ropewalk.BusClosed):
            call()
    assert full.closed
    assert bus.closed


def test_a_subscription_that_nobody_has_is_none(bus: Bus) -> None:
    subscription = bus.subscribe("t", capacity=1)
    assert bus.statistics().subscriptions == 1
    del subscription
    gc.collect()
    assert bus.statistics().subscriptions == 0
    bus.publish_many("t", range(10))  # Nobody is waited for.


def test_a_subscription_keeps_its_bus_and_cycles_are_collected() -> None:
    bus = Bus()
    subscription = bus.subscribe("t")
    bus.publish("t", subscription)
    bus.on("t")(lambda _, bus=bus: bus)
    for _ in range(3):
        bus.publish("t", Message())
    gone = weakref.ref(bus)
    del bus
    gc.collect()
    assert gone() is not None
    del subscription
    gc.collect()
    assert gone() is None


def test_a_handler_that_raises_lagged_missed_nothing(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    class Mine(ropewalk.Lagged):
        def __init__(self) -> None:
            ropewalk.RopewalkError.__init__(self, "mine")

    errors = [ropewalk.Lagged(5), Mine()]

    def handler(_: object) -> None:
        raise errors.pop(0)

    bus.on("t")(handler)
    bus.publish("t", 1)
    bus.publish("t", 2)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert all(record.getMessage().startswith("a handler of 't' failed: ") for record in caplog.records)


@pytest.mark.parametrize("overflow", ["block", "drop_oldest", "drop_newest", "error"])
def test_no_message_is_kept_or_lost_from_memory(bus: Bus, overflow: Any) -> None:
    alive: weakref.WeakSet[Message] = weakref.WeakSet()
    subscription = bus.subscribe("t", capacity=100, overflow=overflow)
    seen: list[int] = []
    bus.on("t")(lambda m: seen.append(id(m)))
    for number in range(5000):
        message = Message()
        alive.add(message)
        try:
            bus.publish("t", message, timeout=0)
        except ropewalk.BusFull:
            assert overflow in ("block", "error")
        del message
        if number % 150 == 149:
            while len(subscription):
                try:
                    assert all(type(m) is Message for m in subscription.recv_many(7))
                except ropewalk.Lagged:
                    continue
    gc.collect()
    assert len(seen) == 5000
    assert len(alive) == len(subscription)
    subscription.close()
    del subscription
    gc.collect()
    assert len(alive) == 0


def test_many_publishers_and_receivers(bus: Bus) -> None:
    subscription = bus.subscribe("t", capacity=64)
    counts = 4, 4, 5000
    taken: list[list[tuple[int, int]]] = [[] for _ in range(counts[1])]

    def publish(number: int) -> None:
        for at in range(counts[2]):
            bus.publish("t", (number, at))

    def receive(mine: list[tuple[int, int]]) -> None:
        mine.extend(subscription)

    receivers = [threading.Thread(target=receive, args=(mine,)) for mine in taken]
    publishers = [threading.Thread(target=publish, args=(n,)) for n in range(counts[0])]
    for thread in [*receivers, *publishers]:
        thread.start()
    for thread in publishers:
        thread.join(60)
    subscription.close()
    for thread in receivers:
        thread.join(60)
    for mine in taken:
        for number in range(counts[0]):
            ats = [at for who, at in mine if who == number]
            assert ats == sorted(ats)
    assert sorted(itertools.chain(*taken)) == [(n, at) for n in range(counts[0]) for at in range(counts[2])]


def test_coming_and_going_while_others_publish(bus: Bus) -> None:
    stop = threading.Event()
    kept = bus.subscribe("t.*", capacity=10**7)
    published = [0, 0]

    def publish(which: int) -> None:
        while not stop.is_set():
            bus.publish(f"t.{which}", which)
            published[which] += 1

    publishers = [threading.Thread(target=publish, args=(which,)) for which in (0, 1)]
    for thread in publishers:
        thread.start()
    try:
        for number in range(2500):
            mine: list[int] = []
            with bus.subscribe("t.0", overflow="drop_newest") as queue:
                bus.on("t.*")(mine.append)
                bus.publish("t.0", 5)
                bus.off(mine.append)
                assert 5 in mine
                assert len(queue) > 0
            if number % 100 == 0:
                assert until(lambda: len(kept) > 0)
    finally:
        stop.set()
        for thread in publishers:
            thread.join(30)
    assert len(kept) == sum(published) + 2500
    assert bus.statistics().subscriptions == 1
