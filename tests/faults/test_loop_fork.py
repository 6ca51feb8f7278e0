"""A fork while a loop exists: the child can make its own, and the parent's goes on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tests.forking import in_a_child
from tests.unit.loop.loops import descriptors, fresh_loop, left_open, new_event_loop
from tests.unit.loop.recording import until

Loop = asyncio.AbstractEventLoop


@pytest.fixture
def loop() -> Iterator[Loop]:
    before = descriptors()
    reports: list[dict[str, Any]] = []
    with fresh_loop(reports) as loop:
        yield loop
    assert left_open(before) == {}
    assert reports == []


async def _use(loop: Loop) -> None:
    """A little of everything a loop does."""
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        task = loop.create_task(loop.sock_recv(left, 100))
        await asyncio.sleep(0.001)
        await loop.sock_sendall(right, b"data")
        assert await task == b"data"
        called = loop.create_future()
        await loop.run_in_executor(None, loop.call_soon_threadsafe, called.set_result, None)
        await called


def _own_loop() -> None:
    own = new_event_loop()
    own.run_until_complete(_use(own))
    own.run_until_complete(own.shutdown_default_executor())
    own.close()


def test_a_child_makes_its_own_loop(loop: Loop) -> None:
    loop.run_until_complete(_use(loop))
    assert in_a_child(_own_loop) == 0
    loop.run_until_complete(_use(loop))


def test_a_child_of_a_running_loop_makes_its_own(loop: Loop) -> None:
    async def main() -> None:
        seen: list[bytes] = []
        left, right = socket.socketpair()
        with left, right:
            loop.add_reader(left, lambda: seen.append(left.recv(100)))
            timer = loop.create_task(asyncio.sleep(0.002, "woken"))
            assert in_a_child(_own_loop) == 0
            # Registered before the fork, still served after it.
            right.send(b"after the fork")
            await until(lambda: seen)
            assert seen == [b"after the fork"]
            assert await timer == "woken"
            assert loop.remove_reader(left) is True
        await _use(loop)

    loop.run_until_complete(main())


def test_a_child_that_closes_the_loop_leaves_the_parent_s_alone(loop: Loop) -> None:
    left, right = socket.socketpair()
    seen: list[bytes] = []
    with left, right:
        loop.add_reader(left, lambda: seen.append(left.recv(100)))
        loop.call_later(0.001, int)
        loop.run_until_complete(asyncio.sleep(0))

        def close() -> None:
            loop.close()
            assert loop.is_closed()

        assert in_a_child(close) == 0
        right.send(b"still registered")
        loop.run_until_complete(until(lambda: seen))
        assert seen == [b"still registered"]
        loop.remove_reader(left)


def test_a_child_that_schedules_does_not_disturb_the_parent(loop: Loop) -> None:
    seen: list[str] = []
    loop.call_soon(seen.append, "scheduled by the parent")

    def schedule() -> None:
        loop.call_soon(seen.append, "scheduled by the child")
        loop.call_soon_threadsafe(seen.append, "scheduled by the child")

    assert in_a_child(schedule) == 0
    loop.run_until_complete(asyncio.sleep(0.001))
    assert seen == ["scheduled by the parent"]
