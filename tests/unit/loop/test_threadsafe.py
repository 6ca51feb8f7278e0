"""`call_soon_threadsafe`: no call is lost, each thread's order is kept, a waiting loop is woken."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.loop.loops import FREE_THREADED, new_event_loop
from tests.unit.loop.recording import until

Loop = asyncio.AbstractEventLoop


def _in_threads(count: int, work: Callable[[int], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def test_ten_threads_while_the_loop_runs(loop: Loop) -> None:
    seen: list[tuple[int, int]] = []
    barrier = threading.Barrier(10)

    def work(thread: int) -> None:
        barrier.wait()
        for number in range(2000):
            loop.call_soon_threadsafe(seen.append, (thread, number))

    threads = _in_threads(10, work)
    loop.run_until_complete(until(lambda: len(seen) == 20_000))
    _join(threads)
    for thread in range(10):
        assert [number for owner, number in seen if owner == thread] == list(range(2000))


def test_ten_threads_before_the_loop_runs(loop: Loop) -> None:
    seen: list[int] = []

    def work(thread: int) -> None:
        for number in range(500):
            loop.call_soon_threadsafe(seen.append, thread * 500 + number)

    _join(_in_threads(10, work))
    loop.call_soon_threadsafe(loop.stop)
    loop.run_forever()
    assert sorted(seen) == list(range(5000))


@pytest.mark.skipif(FREE_THREADED, reason="no memory is kept where it would need a lock")
def test_memory_of_calls_that_ran_is_used_again(loop: Loop) -> None:
    places: list[set[int]] = []

    def work(_: int) -> None:
        places.append({id(loop.call_soon_threadsafe(int)) for _ in range(500)})

    for _ in range(3):
        _join(_in_threads(1, work))
        loop.call_soon_threadsafe(loop.stop)
        loop.run_forever()
    first, *later = places
    assert len(first) == 500
    for burst in later:
        assert len(burst - first) < 50


async def test_each_call_has_the_values_of_its_caller(loop: Loop) -> None:
    # Threads and loop alternate, so that each call finds the values of another caller noted.
    variable = contextvars.ContextVar("variable", default="none")
    seen: list[tuple[str, str]] = []
    turn = threading.Barrier(3)

    def note(said: str) -> None:
        seen.append((said, variable.get()))

    def work(number: int) -> None:
        for step in range(50):
            turn.wait()
            variable.set(f"{number}.{step}")
            loop.call_soon_threadsafe(note, variable.get())

    threads = _in_threads(3, work)
    own = 0
    while len(seen) - own < 150:
        variable.set(f"loop {own}")
        loop.call_soon(note, variable.get())
        own += 1
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    _join(threads)
    assert len(seen) >= 150
    assert [pair for pair in seen if pair[0] != pair[1]] == []


@pytest.mark.skipif(FREE_THREADED, reason="there is no lock to wait for")
def test_a_busy_loop_lets_its_callers_have_the_lock(loop: Loop) -> None:
    # Python takes the lock from a thread that keeps it only after the switch interval.
    ran = threading.Semaphore(0)
    answered = 0
    end = time.monotonic() + 60

    def work() -> None:
        nonlocal answered
        while answered < 20 and time.monotonic() < end:
            time.sleep(0.0005)
            loop.call_soon_threadsafe(ran.release)
            if ran.acquire(timeout=30):
                answered += 1
        loop.call_soon_threadsafe(loop.stop)

    def again() -> None:
        loop.call_soon(again)

    before = sys.getswitchinterval()
    sys.setswitchinterval(3)
    try:
        again()
        thread = threading.Thread(target=work)
        thread.start()
        loop.run_forever()
        thread.join()
    finally:
        sys.setswitchinterval(before)
    assert answered == 20


def test_a_busy_loop_lets_threads_that_do_not_call_it_have_the_lock(loop: Loop) -> None:
    # Each step of the thread needs the lock anew. A loop that releases it briefly and often may wake the thread each
    # time, and have the lock again before the thread can take it.
    steps = 0
    end = time.monotonic() + 30

    def work() -> None:
        nonlocal steps
        while steps < 100 and time.monotonic() < end:
            time.sleep(0.0001)
            steps += 1

    async def turn() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive() and time.monotonic() < end:
            await asyncio.sleep(0)

    loop.run_until_complete(turn())
    assert steps == 100


def test_a_loop_that_waits_is_woken_each_time(loop: Loop) -> None:
    # Each call finds a loop with nothing to do: the thread goes on only when its callback has run.
    rounds = 300
    ran = threading.Semaphore(0)
    done: list[int] = []

    def work() -> None:
        for number in range(rounds):
            loop.call_soon_threadsafe(lambda number=number: (done.append(number), ran.release()))
            if not ran.acquire(timeout=30):
                break
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=work)
    thread.start()
    loop.run_forever()
    thread.join()
    assert done == list(range(rounds))


def test_wakes_and_timers_together(loop: Loop) -> None:
    # A wake-up that is swallowed by the end of a timer's wait would leave the last callback behind.
    seen: list[int] = []

    def work(thread: int) -> None:
        for number in range(200):
            loop.call_soon_threadsafe(seen.append, number)
            os.sched_yield()

    def tick() -> None:
        if len(seen) == 800:
            loop.stop()
        else:
            loop.call_later(0.0002, tick)

    tick()
    threads = _in_threads(4, work)
    loop.run_forever()
    _join(threads)
    assert len(seen) == 800


def test_from_the_loop_s_own_thread(loop: Loop) -> None:
    seen: list[str] = []

    def first() -> None:
        loop.call_soon_threadsafe(seen.append, "threadsafe")
        loop.call_soon(seen.append, "soon")
        loop.call_soon_threadsafe(loop.stop)

    loop.call_soon(first)
    loop.run_forever()
    assert seen == ["threadsafe", "soon"]


def test_stop_comes_after_what_the_thread_has_scheduled(loop: Loop) -> None:
    seen: list[int] = []

    def work() -> None:
        for number in range(100):
            loop.call_soon_threadsafe(seen.append, number)
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=work)
    thread.start()
    loop.run_forever()
    thread.join()
    assert seen == list(range(100))


def test_a_closed_loop_refuses(loop: Loop) -> None:
    loop.close()
    errors: list[BaseException] = []

    def work(_: int) -> None:
        try:
            loop.call_soon_threadsafe(print)
        except RuntimeError as error:
            errors.append(error)

    _join(_in_threads(3, work))
    assert [str(error) for error in errors] == ["Event loop is closed"] * 3


@pytest.mark.parametrize("round_", range(10))
def test_closing_while_threads_call(loop: Loop, round_: int) -> None:
    started = threading.Barrier(5)
    refused: list[int] = []

    def work(number: int) -> None:
        started.wait()
        while True:
            try:
                loop.call_soon_threadsafe(int)
            except RuntimeError:
                refused.append(number)
                break

    threads = _in_threads(4, work)
    started.wait()
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    loop.close()
    _join(threads)
    assert sorted(refused) == [0, 1, 2, 3]


def test_arguments_of_a_closed_loop_are_freed(loop: Loop) -> None:
    class Payload:
        pass

    payload = Payload()
    alive = weakref.ref(payload)
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(print, payload))
    thread.start()
    thread.join()
    del payload, thread
    loop.close()
    gc.collect()
    assert alive() is None


def test_a_handle_may_be_cancelled_by_the_loop(loop: Loop) -> None:
    seen: list[int] = []
    handles: list[asyncio.Handle] = []
    thread = threading.Thread(
        target=lambda: handles.extend(loop.call_soon_threadsafe(seen.append, number) for number in range(10))
    )
    thread.start()
    thread.join()
    for handle in handles[::2]:
        handle.cancel()
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == [1, 3, 5, 7, 9]


def test_two_loops_call_each_other() -> None:
    loops = [new_event_loop(), new_event_loop()]
    counts = [0, 0]

    def hit(side: int) -> None:
        counts[side] += 1
        if counts[side] <= 500:
            loops[1 - side].call_soon_threadsafe(hit, 1 - side)
        else:
            for loop in loops:
                loop.call_soon_threadsafe(loop.stop)

    loops[0].call_soon(hit, 0)
    _join(_in_threads(2, lambda side: loops[side].run_forever()))
    for loop in loops:
        loop.close()
    assert counts == [501, 500]


def test_run_coroutine_threadsafe(loop: Loop) -> None:
    results: list[Any] = []

    async def double(number: int) -> int:
        await asyncio.sleep(0.001 if number % 2 else 0)
        if number == 13:
            raise ZeroDivisionError
        return number * 2

    def work(thread: int) -> None:
        for number in range(thread * 20, thread * 20 + 20):
            future = asyncio.run_coroutine_threadsafe(double(number), loop)
            try:
                results.append(future.result(30))
            except ZeroDivisionError:
                results.append(-1)

    threads = _in_threads(4, work)
    loop.run_until_complete(until(lambda: len(results) == 80))
    _join(threads)
    assert sorted(results) == sorted(-1 if number == 13 else number * 2 for number in range(80))


def test_from_a_signal_s_handler_of_python(loop: Loop, send_signal: Callable[[int], None]) -> None:
    # Not `add_signal_handler`: the plain one, which interrupts the loop's wait.
    seen: list[int] = []

    def handler(number: int, _: object) -> None:
        loop.call_soon_threadsafe(seen.append, number)
        loop.call_soon_threadsafe(loop.stop)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        loop.call_soon(send_signal, signal.SIGUSR1)
        loop.run_forever()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [signal.SIGUSR1]


@pytest.mark.skipif(FREE_THREADED, reason="no thread keeps the loop from the interpreter")
def test_threads_that_call_without_a_pause_are_held_back(loop: Loop) -> None:
    calls, waiting = 400_000, 0
    done = threading.Event()

    def call() -> None:
        for _ in range(calls):
            if done.is_set():
                return
            loop.call_soon_threadsafe(int)
        done.set()

    def block() -> None:
        nonlocal waiting
        # As a loop whose callbacks have no time for those of the thread.
        done.wait(2)
        done.set()
        waiting = len(loop._ready)  # type: ignore[attr-defined]
        loop.call_soon(loop.stop)

    thread = threading.Thread(target=call)
    loop.call_soon(thread.start)
    loop.call_soon(block)
    loop.run_forever()
    thread.join()
    assert waiting < calls // 2
