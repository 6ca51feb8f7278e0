"""Buses in forked children: a shared one says that it is not the parent's, another one is a copy."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.forking import in_a_child
from tests.polling import until

import ropewalk
from ropewalk import Bus

# From Python 3.12 on: of forks beside threads.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus() as made:
        yield made


def is_refused(use: Callable[[], object]) -> None:
    """The use raises an error that says what to do, and not that of a bus that the program has closed."""
    with pytest.raises(ropewalk.BusError, match=r"forked.*connect") as raised:
        use()
    assert type(raised.value) is ropewalk.BusError


@pytest.mark.parametrize("side", ["bound", "connected"])
def test_a_shared_bus_is_refused_in_a_forked_child(bus: Bus, side: str) -> None:
    endpoint = bus.bind("shm://*")
    other = Bus()
    other.connect(endpoint)
    shared = bus if side == "bound" else other
    words, heard = shared.subscribe("words"), bus.subscribe("heard")
    called: list[object] = []
    shared.on("words")(called.append)
    shared.publish("words", "before")
    until(lambda: len(words) == len(called) == 1)

    def use() -> None:
        is_refused(lambda: shared.publish("words", 1))
        is_refused(lambda: shared.publish_nowait("words", 1))
        is_refused(lambda: shared.publish_many("words", [1]))
        is_refused(lambda: asyncio.run(shared.publish_async("words", 1)))
        is_refused(lambda: shared.subscribe("words"))
        is_refused(lambda: shared.on("words")(called.append))
        is_refused(lambda: shared.bind("shm://*"))
        is_refused(lambda: shared.connect(endpoint))
        is_refused(words.recv)
        is_refused(words.recv_nowait)
        is_refused(lambda: words.recv_many(2))
        is_refused(lambda: words.recv_many_nowait(2))
        is_refused(lambda: next(words))
        is_refused(lambda: asyncio.run(words.recv_async()))
        is_refused(lambda: asyncio.run(words.recv_many_async(2)))

        async def iterate() -> None:
            async for _ in words:
                pass

        is_refused(lambda: asyncio.run(iterate()))
        assert len(called) == 1
        assert shared.closed
        shared.statistics()
        shared.close()
        # A bus of its own joins.
        with Bus() as mine:
            mine.connect(endpoint)
            mine.publish("heard", "from the child")

    assert in_a_child(use) == 0
    # The parent's goes on, with all that it had.
    assert heard.recv(timeout=60) == "from the child"
    shared.publish("words", "after")
    assert [words.recv(timeout=60), words.recv(timeout=60)] == ["before", "after"]
    assert called == ["before", "after"]
    other.close()


def _fork_in_a_task(bus: Bus) -> int:
    return in_a_child(lambda: is_refused(lambda: bus.publish("words", 1)))


def test_a_forked_child_of_a_worker_does_not_publish_into_nothing(
    make_pool: Callable[..., Any], bus: Bus
) -> None:
    pool = make_pool(1, kind="process")
    assert pool.submit(_fork_in_a_task, bus).result(60) == 0


def test_a_bus_that_none_shares_is_a_copy_in_a_forked_child(bus: Bus) -> None:
    words = bus.subscribe("words")

    def use() -> None:
        bus.publish("words", "child")
        assert words.recv(timeout=60) == "child"
        # And it can be shared from now on.
        with Bus() as other:
            other.connect(bus.bind("shm://*"))
            other.publish("words", "other")
            assert words.recv(timeout=60) == "other"

    assert in_a_child(use) == 0
    with pytest.raises(ropewalk.BusEmpty):
        words.recv_nowait()


def test_the_events_of_a_forked_childs_pools_have_listeners_there() -> None:
    program = """
        import os, ropewalk
        ropewalk.events.bind("shm://*")
        ended = ropewalk.events.subscribe("pool.ended")
        child = os.fork()
        if child == 0:
            with ropewalk.Pool(1, kind="thread", name="sums"):
                pass
            os._exit(0 if ended.recv(timeout=60).pool == "sums" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], check=True, timeout=120)
