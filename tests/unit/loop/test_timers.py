"""Timers: never early, in the order of their deadlines, cancelled in constant time and memory."""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.recording import turns

Loop = asyncio.AbstractEventLoop
#: Two reads of one clock may differ by this much in the wrong direction, says asyncio.
RESOLUTION = time.get_clock_info("monotonic").resolution
only_ropewalk = pytest.mark.skipif(loops.MODULE != "ropewalk", reason="asyncio's heap does not promise it")


def test_the_clock_is_monotonic_time(loop: Loop) -> None:
    readings = [reading for _ in range(100) for reading in (time.monotonic(), loop.time())]
    assert readings == sorted(readings)


def test_never_early(loop: Loop) -> None:
    early: list[float] = []
    delays = [0, 1e-7, 1e-5, 0.0001, 0.0005, 0.00099, 0.001, 0.0015, 0.0101, 0.02, 0.0333]
    left = len(delays) * 20

    def fire(when: float) -> None:
        nonlocal left
        left -= 1
        if loop.time() + RESOLUTION < when:
            early.append(when - loop.time())
        if not left:
            loop.stop()

    for delay in delays * 20:
        when = loop.time() + delay * random.uniform(0.9, 1)
        loop.call_at(when, fire, when)
    loop.run_forever()
    assert early == []


@pytest.mark.parametrize("delay", [0, 1e-9, 0.00005, 0.0003, 0.0011, 0.007])
async def test_a_sleep_is_never_short(loop: Loop, delay: float) -> None:
    for _ in range(20):
        before = time.monotonic()
        await asyncio.sleep(delay)
        assert time.monotonic() - before >= delay - RESOLUTION


def test_different_deadlines_run_in_their_order(loop: Loop) -> None:
    seen: list[int] = []
    start = loop.time() + 0.001
    order = list(range(500))
    random.Random(7).shuffle(order)
    # Ten microseconds apart: a wait by the millisecond would make these one bunch, and must still sort it.
    for number in order:
        loop.call_at(start + number * 1e-5, seen.append, number)
    loop.call_at(start + 0.02, loop.stop)
    loop.run_forever()
    assert seen == sorted(order)


@only_ropewalk
def test_equal_deadlines_run_in_the_order_of_scheduling(loop: Loop) -> None:
    seen: list[int] = []
    when = loop.time() + 0.002
    for number in range(500):
        loop.call_at(when, seen.append, number)
    loop.call_at(when + 0.001, loop.stop)
    loop.run_forever()
    assert seen == list(range(500))


def test_a_due_timer_comes_after_what_is_ready(loop: Loop) -> None:
    seen: list[str] = []
    loop.call_at(loop.time() - 1, seen.append, "timer")
    loop.call_soon(seen.append, "ready")
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == ["ready", "timer"]


def test_a_timer_that_falls_due_while_the_loop_does_not_run(loop: Loop) -> None:
    handle = loop.call_later(0.0001, loop.stop)
    while loop.time() < handle.when() + 0.0001:
        pass
    loop.run_forever()
    assert not loop.is_running()


def test_a_hundred_thousand_timers_with_random_cancels(loop: Loop) -> None:
    pick = random.Random(20)
    fired: list[float] = []
    handles = []
    start = loop.time()
    for number in range(100_000):
        when = start + pick.random() * 0.3
        handles.append(loop.call_at(when, fired.append, when))
        if number % 3 == 0:
            handles[pick.randrange(len(handles))].cancel()
    loop.call_at(start + 0.301, loop.stop)
    loop.run_forever()
    assert fired == sorted(fired)
    assert sorted(fired) == sorted(handle.when() for handle in handles if not handle.cancelled())


def test_most_of_a_crowd_is_cancelled(loop: Loop) -> None:
    # The standard heap is rebuilt when half of it is cancelled; whatever is done instead, the others stay.
    seen: list[int] = []
    handles = [loop.call_later(0.001 + number * 1e-6, seen.append, number) for number in range(2000)]
    for handle in handles[:1000] + handles[1001:]:
        handle.cancel()
    loop.call_later(0.01, loop.stop)
    loop.run_forever()
    assert seen == [1000]


def test_cancel_inside_a_callback(loop: Loop) -> None:
    seen: list[str] = []
    when = loop.time() + 0.001
    handles: list[asyncio.TimerHandle] = []

    def cancel() -> None:
        for handle in handles:
            handle.cancel()
        seen.append("cancelled")

    loop.call_at(when, cancel)
    # Due in the same turn as the callback that cancels them, later in it, and long after it.
    handles += [loop.call_at(when + later, seen.append, "late") for later in (1e-9, 1e-8, 0.001, 60)]
    loop.call_at(when + 0.003, loop.stop)
    while loop.time() < when + 0.0005:
        pass
    loop.run_forever()
    assert seen == ["cancelled"]


def test_timers_that_schedule_timers(loop: Loop) -> None:
    seen: list[tuple[int, int]] = []

    def spawn(depth: int, branch: int) -> None:
        seen.append((depth, branch))
        if depth:
            for child in range(2):
                loop.call_later(0.0002 * child, spawn, depth - 1, branch * 2 + child)
        elif len(seen) == 2**7 - 1:
            loop.stop()

    loop.call_later(0, spawn, 6, 0)
    loop.run_forever()
    assert sorted(seen) == sorted((6 - level, branch) for level in range(7) for branch in range(2**level))


def test_a_timer_for_now_waits_for_the_next_turn(loop: Loop) -> None:
    # A timer that always schedules one that is due already must not keep the loop from all else.
    turns_of_others = 0

    def again() -> None:
        loop.call_at(loop.time() - 1, again)

    def other() -> None:
        nonlocal turns_of_others
        turns_of_others += 1
        if turns_of_others == 50:
            loop.stop()
        else:
            loop.call_soon(other)

    again()
    other()
    loop.run_forever()
    assert turns_of_others == 50


def test_a_busy_loop_does_not_starve_timers(loop: Loop) -> None:
    def spin() -> None:
        loop.call_soon(spin)

    for _ in range(3):
        spin()
    loop.call_later(0.003, loop.stop)
    loop.run_forever()
    assert not loop.is_running()


@pytest.mark.parametrize("delay", [-1e-9, -1, -1e9, -1e300, -math.inf, -(10**15)])
def test_a_negative_delay_is_due(loop: Loop, delay: float) -> None:
    loop.call_later(delay, loop.stop)
    loop.run_forever()
    loop.call_at(delay, loop.stop)
    loop.run_forever()
    assert not loop.is_running()


@pytest.mark.parametrize("delay", [3600, 1e6, 1e9, 1e12, 1e18, 1e300, math.inf, 2**62, 10**30])
def test_a_huge_delay_is_kept(loop: Loop, delay: float) -> None:
    seen: list[str] = []
    later = loop.call_later(delay, seen.append, "huge")
    at = loop.call_at(loop.time() + delay, seen.append, "huge")
    assert later.when() >= delay
    loop.call_later(0.002, loop.stop)
    loop.run_forever()
    later.cancel()
    at.cancel()
    assert seen == []


@pytest.mark.parametrize("schedule", ["call_at", "call_later"])
def test_not_a_number_is_due(loop: Loop, schedule: str) -> None:
    # It is no later than any moment: asyncio's loop finds so while it has work, and fails if it would wait.
    getattr(loop, schedule)(math.nan, loop.stop)
    loop.call_soon(_nothing)
    loop.run_forever()
    assert not loop.is_running()


@pytest.mark.parametrize("delay", [None, "1", b"1", [], object()])
def test_a_delay_is_a_number(loop: Loop, delay: Any) -> None:
    with pytest.raises(TypeError):
        loop.call_later(delay, _nothing)


def test_a_moment_is_not_none(loop: Loop) -> None:
    with pytest.raises(TypeError):
        loop.call_at(None, _nothing)  # type: ignore[arg-type]


def test_integers_are_moments(loop: Loop) -> None:
    whole, part = loop.call_at(10**6, _nothing), loop.call_at(10.0**6, _nothing)
    assert (repr(whole.when()), repr(part.when())) == ("1000000", "1000000.0")
    loop.call_at(int(loop.time()), loop.stop)
    loop.run_forever()
    assert not loop.is_running()


def test_what_a_cancelled_timer_held_is_free_before_its_deadline(loop: Loop) -> None:
    class Payload:
        pass

    alive = weakref.WeakSet[Payload]()
    kept = []
    for number in range(1000):
        payload = Payload()
        alive.add(payload)
        handle = loop.call_later(3600 + number, _nothing, payload)
        del payload
        if number % 2:
            handle.cancel()
        else:
            kept.append(handle)
    assert len(alive) == 500
    for handle in kept:
        handle.cancel()
    assert len(alive) == 0


def test_what_the_end_of_a_cancelled_timer_schedules_is_not_slept_over(loop: Loop) -> None:
    ended: list[str] = []

    class Last:
        def __del__(self) -> None:
            loop.call_soon(ended.append, "by the finalizer")
            loop.call_soon(loop.stop)

    def run_into_the_deadline() -> None:
        ended.append("by the deadline")
        loop.stop()

    held: contextvars.ContextVar[Last] = contextvars.ContextVar("held")
    context = contextvars.copy_context()
    context.run(held.set, Last())
    deadlines = [loop.call_later(10, run_into_the_deadline) for _ in range(3)]
    loop.call_later(5, print, context=context).cancel()
    del context
    # asyncio runs the finalizer before it looks what is ready, Ropewalk after: neither may sleep then.
    loop.run_forever()
    assert ended == ["by the finalizer"]
    for deadline in deadlines:
        deadline.cancel()


@pytest.mark.parametrize("cancel", ["handle", "sleep"])
async def test_a_timer_cancelled_and_set_again(loop: Loop, cancel: str) -> None:
    # What every timeout of a busy server does: many more are set than ever fire.
    for _ in range(2000):
        if cancel == "handle":
            loop.call_later(60, _nothing).cancel()
        else:
            task = loop.create_task(asyncio.sleep(60))
            await asyncio.sleep(0)
            task.cancel()
    await turns()
    await asyncio.sleep(0.001)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_sleepers_wake_in_order(loop: Loop) -> None:
    woken: list[int] = []
    start = loop.time() + 0.001

    async def sleep(number: int) -> None:
        # All are set in one turn, so that even a loop that is late finds them together, and sorts them.
        alarm = loop.create_future()
        loop.call_at(start + number * 0.0004, alarm.set_result, None)
        await alarm
        woken.append(number)

    await asyncio.gather(*(sleep(number) for number in reversed(range(20))))
    assert woken == list(range(20))


async def test_timeouts(loop: Loop) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.002):
            await loop.create_future()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(loop.create_future(), 0)
    async with asyncio.timeout(60) as timeout:
        await asyncio.sleep(0)
    assert not timeout.expired()


@pytest.mark.parametrize("stop_from", ["timer", "callback"])
def test_timers_stay_over_a_stop(loop: Loop, stop_from: str) -> None:
    seen: list[int] = []
    start = loop.time()
    for number in range(3):
        loop.call_at(start + 0.001 * (number + 1), seen.append, number)
    stop: Callable[..., Any] = loop.call_soon if stop_from == "callback" else lambda f: loop.call_at(start, f)
    stop(loop.stop)
    loop.run_forever()
    loop.call_at(start + 0.004, loop.stop)
    loop.run_forever()
    assert seen == [0, 1, 2]


def _nothing(*_: Any) -> None:
    pass
