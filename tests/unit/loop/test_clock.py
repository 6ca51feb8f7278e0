"""`Loop.time` that a subclass, an instance or a patch replaces is the clock of the loop's timers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.loop.loops import new_event_loop

Loop = asyncio.AbstractEventLoop


class _Fast:
    """A clock that runs twice as fast as the system's, from zero."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.asked = 0

    def __call__(self, *_: object) -> float:
        self.asked += 1
        return (time.monotonic() - self.began) * 2


def _of_instance(clock: _Fast) -> Loop:
    loop: Any = new_event_loop()
    loop.time = clock
    return loop  # type: ignore[no-any-return]


def _of_subclass(clock: _Fast) -> Loop:
    loop = new_event_loop()
    loop.close()
    made: Loop = type("Faster", (type(loop),), {"time": lambda _: clock()})()
    return made


def _of_class_patched_later(clock: _Fast) -> Loop:
    loop = new_event_loop()
    loop.close()
    kind: Any = type("Patched", (type(loop),), {})
    made: Loop = kind()
    # Its own clock is known by now.
    made.call_later(1e6, print).cancel()
    kind.time = lambda _: clock()
    return made


@pytest.fixture(params=[_of_instance, _of_subclass, _of_class_patched_later])
def clock(request: pytest.FixtureRequest, no_descriptor_left: None) -> Iterator[tuple[Loop, _Fast]]:
    clock = _Fast()
    loop = request.param(clock)
    yield loop, clock
    loop.close()


def test_call_later_and_sleep_follow_it(clock: tuple[Loop, _Fast]) -> None:
    loop, fast = clock
    before = fast()
    handle = loop.call_later(1000, print)
    assert before + 1000 <= handle.when() <= fast() + 1000
    handle.cancel()

    async def main() -> float:
        before = loop.time()
        await asyncio.sleep(0.05)
        async with asyncio.timeout(1000):
            await asyncio.sleep(0.02)
        return loop.time() - before

    assert loop.run_until_complete(asyncio.wait_for(main(), 1000)) >= 0.07
    assert fast.asked > 5


def test_its_timers_come_due_while_the_loop_is_busy(clock: tuple[Loop, _Fast]) -> None:
    loop, _ = clock
    ran: list[float] = []
    due = loop.time() + 0.05
    loop.call_at(due, lambda: ran.append(loop.time()))
    end = time.monotonic() + 30

    async def main() -> None:
        while not ran and time.monotonic() < end:
            await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert ran[0] >= due


def test_a_clock_that_fails_ends_the_run(no_descriptor_left: None) -> None:
    loop: Any = new_event_loop()

    def fail() -> float:
        raise ZeroDivisionError

    loop.call_later(3600, print)
    loop.time = fail
    with pytest.raises(ZeroDivisionError):
        loop.run_forever()
    with pytest.raises(ZeroDivisionError):
        loop.call_later(1, print)
    del loop.time
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    loop.close()


def test_a_clock_that_is_taken_back(no_descriptor_left: None) -> None:
    loop: Any = new_event_loop()
    loop.time = lambda: 7.0
    assert loop.call_later(3, print).when() == 10
    assert loop.time() == 7
    del loop.time
    assert loop.call_later(3, print).when() == pytest.approx(time.monotonic() + 3, abs=2)
    loop.close()
