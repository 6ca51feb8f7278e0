"""Workers that stop, die, send malformed records or leave while they share a bus."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.polling import is_alive, until

import ropewalk
from ropewalk import Bus
from ropewalk.bus import _link

#: A worker's buses and subscriptions, kept beyond the task that made them.
_KEPT: list[Any] = []


def pid_of(_bus: Bus) -> int:
    return os.getpid()


def listen(bus: Bus, pattern: str, **options: Any) -> int:
    _KEPT.append(bus.subscribe(pattern, **options))
    return os.getpid()


def receive(count: int) -> list[Any]:
    """From the last subscription; a gap stands as a string that tells how many were dropped."""
    taken: list[Any] = []
    while len(taken) < count:
        try:
            taken.append(_KEPT[-1].recv(timeout=30))
        except ropewalk.Lagged as gap:
            taken.append(f"lost {gap.count}")
    return taken


def publish(bus: Bus, topic: str, messages: list[Any]) -> None:
    bus.publish_many(topic, messages)


def publish_until_full(bus: Bus, topic: str, **options: Any) -> int:
    """How many messages there was room for."""
    sent = 0
    try:
        while sent < 1_000_000:
            bus.publish(topic, sent, **options)
            sent += 1
    except ropewalk.BusFull:
        return sent
    raise AssertionError("there is room for a million messages")


def publish_and_die(bus: Bus, topic: str, messages: list[Any], way: str) -> None:
    bus.publish_many(topic, messages)
    if way == "exit":
        os._exit(3)
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    ctypes.string_at(1)


def publish_from_a_thread(bus: Bus, topic: str, messages: list[Any]) -> None:
    threading.Thread(target=bus.publish_many, args=(topic, messages), daemon=True).start()


def keep(*buses: Bus) -> int:
    _KEPT.extend(buses)
    return os.getpid()


def let_go() -> None:
    _KEPT.clear()
    gc.collect()


def close_and_let_go() -> None:
    for bus in _KEPT:
        bus.close()
    let_go()


def own_cost() -> tuple[int, int]:
    """Descriptors of shared memory, and threads of buses, that this worker has."""
    return len(segments()), sum(thread.name.startswith("ropewalk-bus") for thread in threading.enumerate())


def scribble(bus: Bus, kind: str) -> None:
    """Writes to every word of the shared memory that the bus's front and the first ports have."""
    view = memoryview(bus._link_end._memory).cast("B")  # type: ignore[union-attr, arg-type]
    length = min(len(view), 500_000)
    view[:length] = {
        "zeros": bytes(length),
        "ones": b"\x01\x00\x00\x00" * (length // 4),
        "full": b"\xff" * length,
        "random": random.Random(7).randbytes(length),
    }[kind]
    _KEPT.append(bus)


def say(bus: Bus, raw: bytes) -> None:
    assert bus._link_end._port.offer(raw)  # type: ignore[union-attr]


def segments() -> list[Path]:
    """The descriptors of this process's switchboards."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            # Others, of arguments and results, are small or come and go.
            if "ropewalk-segment" in os.readlink(descriptor) and os.stat(descriptor).st_size > 32 << 20:
                found.append(descriptor)
        except OSError:
            continue
    return found


def shared_memory() -> int:
    """Bytes of memory that this process's shared segments have."""
    size = 0
    for descriptor in segments():
        # The memory of arrays may be freed meanwhile.
        with contextlib.suppress(FileNotFoundError):
            size += os.stat(descriptor).st_blocks * 512
    return size


def bus_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ropewalk-bus")]


def lines(bus: Bus) -> dict[int, Any]:
    """The lines to the workers that have a bus."""
    return getattr(bus._link_end, "_lines", {})


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus() as made:
        yield made


@pytest.fixture
def stopped(make_pool: Callable[..., Any], bus: Bus) -> Iterator[Callable[..., Any]]:
    """Makes pools of one worker that listens and then stands still."""
    pids: list[int] = []

    def stop(pattern: str, **options: Any) -> Any:
        pool = make_pool(1, kind="process")
        pids.append(pool.submit(listen, bus, pattern, **options).result(60))
        os.kill(pids[-1], signal.SIGSTOP)
        return pool, pids[-1]

    yield stop
    for pid in pids:
        if is_alive(pid):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("way", ["exit", "kill", "fault"])
def test_what_a_worker_published_before_it_died_arrives(
    make_pool: Callable[..., Any], bus: Bus, way: str
) -> None:
    last = bus.subscribe("last", capacity=100_000)
    for number in range(5):
        pool = make_pool(1, kind="process")
        messages = [(number, place) for place in range(300)]
        with pytest.raises(ropewalk.WorkerCrashed):
            pool.submit(publish_and_die, bus, "last", messages, way).result(60)
        assert [last.recv(timeout=30) for _ in messages] == messages
    until(lambda: not lines(bus))


def test_what_listens_in_another_worker_gets_last_words_too(make_pool: Callable[..., Any], bus: Bus) -> None:
    listener, speaker = make_pool(1, kind="process"), make_pool(1, kind="process")
    listener.submit(listen, bus, "last").result(60)
    with pytest.raises(ropewalk.WorkerCrashed):
        speaker.submit(publish_and_die, bus, "last", [1, 2, 3], "exit").result(60)
    assert listener.submit(receive, 3).result(60) == [1, 2, 3]


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest"])
def test_a_stopped_worker_that_may_miss_messages_holds_up_nobody(
    make_pool: Callable[..., Any], bus: Bus, stopped: Callable[..., Any], overflow: str
) -> None:
    pool, pid = stopped("news", overflow=overflow, capacity=50_000)
    other = make_pool(1, kind="process")
    other.submit(listen, bus, "**", capacity=200_000).result(60)
    here = bus.subscribe("**", capacity=200_000)
    count = 40_000
    bus.publish_many("news", range(count // 2))
    other.submit(publish, bus, "news", list(range(count // 2, count))).result(60)
    assert [here.recv(timeout=60) for _ in range(count)] == list(range(count))
    bus.publish("else", "there")
    other.submit(publish, bus, "else", ["back"]).result(60)
    assert [here.recv(timeout=60) for _ in range(2)] == ["there", "back"]
    os.kill(pid, signal.SIGCONT)
    until(lambda: not len(next(line for line in lines(bus).values() if line.link.statistics().dropped).link))
    bus.publish("news", "end")
    taken: list[Any] = []
    while not taken or taken[-1] != "end":
        taken += pool.submit(receive, 1).result(60)
    lost = sum(int(gap.split()[1]) for gap in taken if str(gap).startswith("lost"))
    got = [number for number in taken if isinstance(number, int)]
    assert got == sorted(got)
    assert lost > 0
    assert lost + len(got) == count


def test_a_stopped_worker_holds_up_only_whoever_publishes_what_it_must_not_miss(
    make_pool: Callable[..., Any], bus: Bus, stopped: Callable[..., Any]
) -> None:
    pool, pid = stopped("orders.*", capacity=200_000)
    sent = publish_until_full(bus, "orders.new", timeout=0.01)
    assert sent > 10_000
    # Everybody else's topics go on, here and between workers.
    one, two = make_pool(1, kind="process"), make_pool(1, kind="process")
    one.submit(listen, bus, "else").result(60)
    two.submit(publish, bus, "else", list(range(5000))).result(60)
    assert one.submit(receive, 5000).result(60) == list(range(5000))
    # A worker that publishes orders is held up once its own ring is full, and no other is.
    here = bus.subscribe("orders.*", capacity=200_000)
    two.submit(publish_from_a_thread, bus, "orders.more", list(range(5000))).result(60)
    until(lambda: len(here) > 0)
    three = make_pool(1, kind="process")
    three.submit(publish, bus, "else", ["alive"]).result(60)
    assert one.submit(receive, 1).result(60) == ["alive"]
    os.kill(pid, signal.SIGCONT)
    assert pool.submit(receive, sent).result(60) == list(range(sent))
    assert pool.submit(receive, 5000).result(60) == list(range(5000))
    assert [here.recv(timeout=60) for _ in range(5000)] == list(range(5000))


def test_a_stopped_worker_whose_overflow_is_error_is_told_to_the_publisher(
    bus: Bus, stopped: Callable[..., Any]
) -> None:
    stopped("strict", overflow="error", capacity=10)
    publish_until_full(bus, "strict")
    with pytest.raises(ropewalk.BusFull, match="overflow"):
        bus.publish("strict", 0)
    bus.publish("else", 1)


def test_a_full_subscription_here_holds_up_only_the_worker_that_publishes_to_it(
    make_pool: Callable[..., Any], bus: Bus
) -> None:
    full = bus.subscribe("slow", capacity=1)
    quick = bus.subscribe("quick")
    one, two = make_pool(1, kind="process"), make_pool(1, kind="process")
    one.submit(publish, bus, "slow", list(range(20))).result(60)
    until(lambda: len(full) == 1)
    two.submit(publish, bus, "quick", list(range(1000))).result(60)
    assert [quick.recv(timeout=30) for _ in range(1000)] == list(range(1000))
    assert [full.recv(timeout=30) for _ in range(20)] == list(range(20))


def test_what_a_subscription_here_refuses_is_logged_in_a_line(
    make_pool: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level("ERROR", "ropewalk.bus"),
        Bus() as bus,
        bus.subscribe("strict", capacity=1, overflow="error"),
    ):
        make_pool(1, kind="process").submit(publish, bus, "strict", [1, 2, 3]).result(60)
        until(lambda: len(caplog.records) == 2)
    for record in caplog.records:
        assert record.getMessage().startswith("a message of 'strict' was not delivered: ")
        assert "overflow" in record.getMessage()
        assert record.exc_info is None


def test_what_cannot_be_given_to_a_subscription_here_ends_no_link(make_pool: Callable[..., Any]) -> None:
    told: list[BaseException] = []
    with Bus(on_error=lambda error, _handler, _topic: told.append(error)) as bus:
        strict = bus.subscribe("strict", capacity=1, overflow="error")

        @bus.on("odd")
        def leave(_message: object) -> None:
            raise SystemExit(3)

        pool = make_pool(1, kind="process")
        pool.submit(publish, bus, "strict", [1, 2, 3]).result(60)
        pool.submit(publish, bus, "odd", [4]).result(60)
        until(lambda: len(told) == 3)
        assert [type(error) for error in told] == [ropewalk.BusFull, ropewalk.BusFull, SystemExit]
        assert strict.recv(timeout=30) == 1
        pool.submit(publish, bus, "strict", [5]).result(60)
        assert strict.recv(timeout=30) == 5


def test_ports_are_freed_while_others_talk(
    make_pool: Callable[..., Any], bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_link, "_PORTS", 3)
    heard = bus.subscribe("talk", overflow="drop_oldest")
    talker = make_pool(1, kind="process")
    stop = threading.Event()

    def talk() -> None:
        while not stop.is_set():
            talker.submit(publish, bus, "talk", list(range(200))).result(60)

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        until(lambda: len(heard) > 0)
        for _ in range(8):
            pool = make_pool(1, kind="process")
            # There is a port for it, although those before did not leave theirs.
            pid = pool.submit(keep, bus).result(60)
            os.kill(pid, signal.SIGKILL)
    finally:
        stop.set()
        thread.join(60)
    until(lambda: not lines(bus))


def test_no_descriptor_left_costs_no_worker_its_port(make_pool: Callable[..., Any], bus: Bus) -> None:
    heard = bus.subscribe("t")
    pool = make_pool(1, kind="process")
    pool.submit(keep, bus).result(60)
    before = until(lambda: list(lines(bus).values()))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0)]
    try:
        # Above what the test has, so that it fills up soon.
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 64, limits[1]))
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        time.sleep(3 * _link._SWEEP_INTERVAL)
        assert list(lines(bus).values()) == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)
    pool.submit(publish_to_kept, ["hello"]).result(60)
    assert heard.recv(timeout=30) == "hello"


def test_no_free_port_is_an_error_that_names_the_limit(
    make_pool: Callable[..., Any], bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_link, "_PORTS", 1)
    one, two = make_pool(1, kind="process"), make_pool(1, kind="process")
    one.submit(keep, bus).result(60)
    with pytest.raises(ropewalk.OutOfPorts, match="all 1 ports"):
        two.submit(pid_of, bus).result(60)
    # The worker and its other tasks are as they were; and once the port is free, so is the bus.
    with Bus() as other:
        assert two.submit(pid_of, other).result(60) in two.statistics().worker_pids
    one.submit(let_go).result(60)
    assert two.submit(pid_of, bus).result(60) in two.statistics().worker_pids


@pytest.mark.parametrize("way", [let_go, close_and_let_go])
def test_a_worker_lets_go_of_a_bus_that_nothing_there_holds(
    make_pool: Callable[..., Any], way: Callable[[], None]
) -> None:
    pool = make_pool(1, kind="process")
    pool.submit(keep).result(60)
    buses = [Bus() for _ in range(20)]
    pool.submit(keep, *buses).result(60)
    until(lambda: all(len(lines(bus)) == 1 for bus in buses))
    assert pool.submit(own_cost).result(60)[1] == 20
    pool.submit(way).result(60)
    until(lambda: pool.submit(own_cost).result(60)[1] == 0)
    until(lambda: not any(lines(bus) for bus in buses))
    # The same bus may come again.
    answers = buses[0].subscribe("again")
    pool.submit(publish, buses[0], "again", [1]).result(60)
    assert answers.recv(timeout=30) == 1
    for bus in buses:
        bus.close()


def test_closing_a_bus_here_frees_what_it_cost_there(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    pool.submit(keep).result(60)
    here, threads = len(segments()), len(bus_threads())
    for _ in range(5):
        buses = [Bus() for _ in range(10)]
        pool.submit(keep, *buses).result(60)
        for bus in buses:
            bus.close()
        until(lambda: pool.submit(own_cost).result(60)[1] == 0)
        pool.submit(let_go).result(60)
    until(lambda: len(bus_threads()) <= threads)
    until(lambda: len(segments()) <= here)


def test_a_bus_that_nobody_has_any_more_goes(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    pool.submit(keep).result(60)
    here, threads = len(segments()), len(bus_threads())
    for _ in range(10):
        pool.submit(pid_of, Bus()).result(60)
    gc.collect()
    until(lambda: len(bus_threads()) <= threads)
    until(lambda: len(segments()) <= here)


def test_a_bus_that_only_workers_have_goes_on(make_pool: Callable[..., Any]) -> None:
    one, two = make_pool(1, kind="process"), make_pool(1, kind="process")
    bus = Bus()
    futures = [pool.submit(keep, bus) for pool in (one, two)]
    del bus
    gc.collect()
    assert all(future.result(60) for future in futures)
    one.submit(listen_to_kept).result(60)
    two.submit(publish_to_kept, ["hello"]).result(60)
    assert one.submit(receive, 1).result(60) == ["hello"]


def listen_to_kept() -> None:
    _KEPT.append(_KEPT[0].subscribe("t"))


def publish_to_kept(messages: list[Any]) -> None:
    _KEPT[0].publish_many("t", messages)


def test_a_bus_costs_the_memory_of_the_workers_that_have_it(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="process")
    before = shared_memory()
    buses = [Bus() for _ in range(50)]
    pool.submit(keep, *buses).result(60)
    until(lambda: all(lines(bus) for bus in buses))
    cost = (shared_memory() - before) / len(buses)
    assert cost < 200_000, f"{cost:,.0f} bytes for each bus with one worker"
    pool.submit(let_go).result(60)
    until(lambda: not any(lines(bus) for bus in buses))
    assert (shared_memory() - before) / len(buses) < 50_000
    for bus in buses:
        bus.close()


@pytest.mark.parametrize("kind", ["zeros", "ones", "full", "random"])
def test_a_worker_that_scribbles_harms_one_bus_at_most(make_pool: Callable[..., Any], kind: str) -> None:
    told: list[BaseException] = []
    pool = make_pool(1, kind="process")
    other = make_pool(1, kind="process")
    with Bus(on_error=lambda error, _handler, _topic: told.append(error)) as bus, Bus() as sound:
        here = bus.subscribe("t", overflow="drop_oldest")
        pool.submit(listen, bus, "t", overflow="drop_oldest").result(60)
        pool.submit(scribble, bus, kind).result(60)
        for number in range(3000):
            bus.publish("t", bytes(100) + str(number).encode())
        assert len(here) == 3000
        answers = sound.subscribe("up")
        for worker in (pool, other):
            worker.submit(publish, sound, "up", ["sound"]).result(60)
            assert answers.recv(timeout=30) == "sound"
        # Whatever the hub made of it, the process that has the bus goes on, and so does the worker.
        assert pool.submit(pid_of, sound).result(60) in pool.statistics().worker_pids


@pytest.mark.parametrize(
    "raw", [b"p", b"pnonsense", b"p\x80\x04N.", b"m", b"mnonsense", b"m\x80\x04N.", b"x"]
)
def test_a_worker_that_says_nonsense_is_told_and_ends_nothing(
    make_pool: Callable[..., Any], raw: bytes
) -> None:
    told: list[BaseException] = []
    with Bus(on_error=lambda error, _handler, _topic: told.append(error)) as bus:
        heard = bus.subscribe("t")
        one, two = make_pool(1, kind="process"), make_pool(1, kind="process")
        one.submit(say, bus, raw).result(60)
        until(lambda: told)
        two.submit(publish, bus, "t", ["sound"]).result(60)
        assert heard.recv(timeout=30) == "sound"


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_objects_of_a_bus_leave_nothing_behind() -> None:
    def spend() -> None:
        with Bus() as bus:
            seen = bus.subscribe("t", capacity=1, overflow="drop_oldest")
            bus.on("t")(lambda _message: len(seen))
            for number in range(500_000):
                bus.publish("t", number)
            for _ in range(10_000):
                bus.subscribe("a.*").close()
        for _ in range(1_000):
            with Bus() as made:
                made.subscribe("t")
                made.on("t")(print)

    spend()
    gc.collect()
    before = resident(), threading.active_count(), len(os.listdir("/proc/self/fd"))
    spend()
    gc.collect()
    after = resident(), threading.active_count(), len(os.listdir("/proc/self/fd"))
    assert after[1:] == before[1:]
    assert after[0] - before[0] < 4_000_000


def test_a_worker_with_handlers_keeps_its_bus(make_pool: Callable[..., Any], bus: Bus) -> None:
    answers = bus.subscribe("answer")
    pool = make_pool(1, kind="process")
    pool.submit(add_handler, bus).result(60)
    pool.submit(let_go).result(60)
    bus.publish("question", 1)
    assert answers.recv(timeout=30) == 2
    pool.submit(take_handler_away).result(60)
    until(lambda: not lines(bus))


_HANDLERS: list[Any] = []


def add_handler(bus: Bus) -> None:
    handler = bus.on("question")(lambda number: bus.publish("answer", number + 1))
    _HANDLERS.append(handler)


def take_handler_away() -> None:
    handler = _HANDLERS.pop()
    bus = next(link._bus() for link in _link._links.values())
    assert bus is not None
    assert bus.off(handler) == 1
    del bus, handler
    gc.collect()
