"""Faults of the bus: interrupts, abandoned threads, receivers that never receive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from tests.polling import until

import ropewalk
from ropewalk import Bus


def start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    "blocks",
    [
        "bus.subscribe('t').recv()",
        "bus.subscribe('t').recv_many(3)",
        "next(bus.subscribe('t'))",
        "[bus.publish('full', n) for n in range(3)]",
    ],
)
def test_an_interrupt_ends_a_wait(blocks: str) -> None:
    process = start(f"""
        import ropewalk
        bus = ropewalk.Bus()
        full = bus.subscribe("full", capacity=1)
        try:
            print("ready", flush=True)
            {blocks}
        except KeyboardInterrupt:
            print("interrupted", len(full))
    """)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "S")
        os.kill(process.pid, signal.SIGINT)
        assert process.stdout.read().startswith("interrupted")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_threads_that_wait_do_not_hold_up_the_end() -> None:
    process = start("""
        import threading, ropewalk
        bus = ropewalk.Bus()
        full = bus.subscribe("full", capacity=1)
        bus.publish("full", 0)
        never = bus.subscribe("never")
        for work in (never.recv, lambda: bus.publish("full", 1), lambda: list(never)):
            threading.Thread(target=work, daemon=True).start()
        ropewalk.events.subscribe("pool.**")
        print("done")
    """)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "done\n")


def test_a_subscriber_that_never_reads_is_bounded_by_its_policy() -> None:
    bus = Bus()
    oldest = bus.subscribe("t", capacity=10, overflow="drop_oldest")
    newest = bus.subscribe("t", capacity=10, overflow="drop_newest")
    for number in range(100_000):
        bus.publish("t", number)
    assert (len(oldest), len(newest)) == (10, 10)
    assert oldest.statistics().dropped == newest.statistics().dropped == 99_990
    blocking = bus.subscribe("t", capacity=10)
    publisher = threading.Thread(target=bus.publish_many, args=("t", range(100)))
    publisher.start()
    until(lambda: len(blocking) == 10)
    assert publisher.is_alive()
    blocking.close()
    publisher.join(30)
    assert not publisher.is_alive()


def test_10000_subscriptions_of_one_topic() -> None:
    bus = Bus()
    made = [bus.subscribe("t.*") for _ in range(10_000)]
    bus.publish("t.a", 1)
    assert all(subscription.recv_nowait() == 1 for subscription in made)
    del made
    bus.publish("t.a", 2)
    assert bus.statistics().subscriptions == 0


def test_more_topics_than_are_remembered() -> None:
    bus = Bus()
    subscription = bus.subscribe("t.*", capacity=10**6)
    for number in range(10_000):
        bus.publish(f"t.{number}", number)
    assert subscription.recv_many(10**6) == list(range(10_000))


def publish_one(bus: Bus) -> None:
    bus.publish("t", 1)


def test_a_bus_that_is_closed_arrives_closed() -> None:
    bus = Bus()
    bus.close()
    with ropewalk.Pool(1, kind="process") as pool, pytest.raises(ropewalk.BusClosed):
        pool.submit(publish_one, bus).result(60)
