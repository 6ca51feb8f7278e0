"""Debug mode: the stack that scheduled a callback, slow callbacks, calls from a wrong thread."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.loops import ROOT
from tests.unit.loop.recording import BufferedRecording, Recording, connected_to_socket, turns, until

Loop = asyncio.AbstractEventLoop
only_ropewalk = pytest.mark.skipif(loops.MODULE != "ropewalk", reason="asyncio has no such events")


@pytest.fixture
def debug_loop(loop: Loop) -> Loop:
    loop.set_debug(True)
    # Not of interest but where a test says so: a busy machine makes any callback slow.
    loop.slow_callback_duration = 1e6
    return loop


def _nothing(*_: Any) -> None:
    pass


def _fail() -> None:
    raise ZeroDivisionError


def _run(loop: Loop) -> None:
    loop.call_later(0.002, loop.stop)
    loop.run_forever()


def test_the_switch(loop: Loop) -> None:
    for value in (True, False):
        loop.set_debug(value)
        assert loop.get_debug() is value


def test_the_environment_switches_it_on() -> None:
    code = "from tests.unit.loop import loops; l = loops.new_event_loop(); print(l.get_debug()); l.close()"
    for value, expected in (("1", "True"), ("", "False")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | {"PYTHONASYNCIODEBUG": value},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.strip() == expected


@pytest.mark.parametrize("schedule", ["call_soon", "call_later", "call_at"])
def test_a_call_from_another_thread_is_refused(debug_loop: Loop, schedule: str) -> None:
    errors: list[str] = []
    delay = [] if schedule == "call_soon" else [0]

    def work() -> None:
        try:
            getattr(debug_loop, schedule)(*delay, _nothing)
        except RuntimeError as error:
            errors.append(str(error))
        debug_loop.call_soon_threadsafe(debug_loop.stop)

    thread = threading.Thread(target=work)
    debug_loop.call_soon(thread.start)
    debug_loop.run_forever()
    thread.join()
    (error,) = errors
    assert error.startswith("Non-thread-safe operation invoked on an event loop other than the current one")


def test_a_loop_that_does_not_run_takes_calls_of_any_thread(debug_loop: Loop) -> None:
    seen: list[int] = []
    thread = threading.Thread(target=debug_loop.call_soon, args=(seen.append, 1))
    thread.start()
    thread.join()
    _run(debug_loop)
    assert seen == [1]


@pytest.mark.parametrize("schedule", ["call_soon", "call_later", "call_soon_threadsafe"])
def test_a_callback_is_checked_at_the_call(debug_loop: Loop, schedule: str) -> None:
    async def coroutine_function() -> None:
        pass

    call = getattr(debug_loop, schedule)
    delay = [0] if schedule == "call_later" else []
    with pytest.raises(TypeError, match="callable"):
        call(*delay, "not callable")
    with pytest.raises(TypeError, match="coroutine"):
        call(*delay, coroutine_function)
    coroutine = coroutine_function()
    with pytest.raises(TypeError, match="coroutine"):
        call(*delay, coroutine)
    coroutine.close()


@pytest.mark.parametrize("schedule", ["call_soon", "call_later", "call_soon_threadsafe"])
def test_a_report_says_where_the_callback_was_scheduled(
    debug_loop: Loop, reports: list[dict[str, Any]], schedule: str
) -> None:
    delay = [0] if schedule == "call_later" else []
    getattr(debug_loop, schedule)(*delay, _fail)
    _run(debug_loop)
    report = reports.pop()
    # The call above, and nothing of the loop's own below it.
    frame = report["source_traceback"][-1]
    assert frame.filename == __file__
    assert "getattr(debug_loop, schedule)" in frame.line


def test_repr_says_where_the_callback_was_scheduled(debug_loop: Loop) -> None:
    handle = debug_loop.call_soon(_nothing, "argument")
    assert f"created at {__file__}:" in repr(handle)
    assert "'argument'" in repr(handle)
    handle.cancel()
    # What it was is still known, though what it held is gone.
    assert "cancelled" in repr(handle)
    assert "_nothing" in repr(handle)


@pytest.mark.parametrize("kind", ["callback", "timer", "task", "reader"])
def test_a_slow_callback_is_logged(
    debug_loop: Loop, caplog: pytest.LogCaptureFixture, kind: str, pair: Any
) -> None:
    debug_loop.slow_callback_duration = 0
    left, right = pair
    caplog.set_level(logging.WARNING, "asyncio")

    async def task() -> None:
        pass

    if kind == "callback":
        debug_loop.call_soon(_nothing)
    elif kind == "timer":
        debug_loop.call_later(0, _nothing)
    elif kind == "task":
        kept = debug_loop.create_task(task(), name="the slow one")
        debug_loop.call_later(0.001, kept.result)
    else:
        debug_loop.add_reader(left, lambda: debug_loop.remove_reader(left))
        right.send(b"x")
    _run(debug_loop)
    expected = {
        "callback": "Executing <Handle _nothing()",
        "timer": "Executing <TimerHandle when=",
        "task": "Executing <Task finished name='the slow one'",
        "reader": "Executing <Handle",
    }[kind]
    found = [message for message in caplog.messages if message.startswith(expected)]
    assert found
    assert "seconds" in found[0]


@pytest.mark.parametrize("buffered", [False, True])
async def test_a_slow_callback_of_a_protocol_is_logged(
    loop: Loop, caplog: pytest.LogCaptureFixture, buffered: bool
) -> None:
    loop.set_debug(True)
    loop.slow_callback_duration = 1e6
    caplog.set_level(logging.WARNING, "asyncio")

    class Slow(Recording):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            loop.slow_callback_duration = 0

    class SlowBuffered(BufferedRecording):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            loop.slow_callback_duration = 0

    protocol = SlowBuffered() if buffered else Slow()
    async with connected_to_socket(protocol) as peer:
        peer.send(b"x")
        await until(lambda: protocol.received)
        loop.slow_callback_duration = 1e6
    slow = [
        message for message in caplog.messages if message.startswith("Executing") and "seconds" in message
    ]
    assert [message for message in slow if "Transport" in message]


async def test_a_slow_protocol_that_cannot_be_shown_is_logged(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    loop.set_debug(True)
    loop.slow_callback_duration = 1e6
    caplog.set_level(logging.WARNING, "asyncio")

    class Slow(Recording):
        def __repr__(self) -> str:
            raise ValueError("no repr")

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            loop.slow_callback_duration = 0

    protocol = Slow()
    async with connected_to_socket(protocol) as peer:
        for count in (1, 2):
            peer.send(b"x")
            await until(lambda count=count: len(protocol.received) == count)
            loop.slow_callback_duration = 1e6
    assert [message for message in caplog.messages if "Transport" in message]


@only_ropewalk
async def test_a_slow_datagram_received_is_logged_with_its_protocol(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    loop.set_debug(True)
    loop.slow_callback_duration = 1e6
    caplog.set_level(logging.WARNING, "asyncio")
    received = []

    class Slow(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            received.append(data)
            loop.slow_callback_duration = 0

        def __repr__(self) -> str:
            return "<the slow one>"

    transport, _ = await loop.create_datagram_endpoint(Slow, local_addr=("127.0.0.1", 0))
    transport.sendto(b"x", transport.get_extra_info("sockname"))
    await until(lambda: received)
    loop.slow_callback_duration = 1e6
    transport.close()
    await turns()
    assert [
        message
        for message in caplog.messages
        if message.startswith("Executing callbacks of <the slow one> on <DatagramTransport")
    ]


@only_ropewalk
@pytest.mark.parametrize("listener", ["subscription", "handler"])
def test_a_slow_callback_is_an_event(debug_loop: Loop, listener: str) -> None:
    import ropewalk

    heard: queue.SimpleQueue[ropewalk.LoopEvent] = queue.SimpleQueue()
    with ropewalk.events.subscribe("loop.**") as subscription:
        if listener == "handler":
            ropewalk.events.on("loop.callback.slow")(heard.put)
        debug_loop.slow_callback_duration = 0
        debug_loop.call_soon(_nothing, "a lone surrogate: \ud800")
        threading.Thread(target=_run, args=(debug_loop,), name="the thread of the loop").start()
        event = heard.get(timeout=30) if listener == "handler" else subscription.recv(timeout=30)
        ropewalk.events.off(heard.put)
        until_stopped = time.monotonic() + 30
        while debug_loop.is_running() and time.monotonic() < until_stopped:
            time.sleep(0.001)
    assert event.topic == "loop.callback.slow"
    assert event.callback.startswith("<Handle _nothing(")
    assert event.thread == "the thread of the loop"
    assert event.seconds >= 0


def test_a_fast_callback_is_not_logged(debug_loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "asyncio")
    debug_loop.call_soon(_nothing)
    _run(debug_loop)
    assert caplog.messages == []


def test_origins_of_coroutines_are_tracked_while_it_runs(loop: Loop) -> None:
    before = sys.get_coroutine_origin_tracking_depth()
    depths: list[int] = []

    def look() -> None:
        depths.append(sys.get_coroutine_origin_tracking_depth())

    loop.set_debug(True)
    loop.call_soon(look)
    loop.call_soon(loop.set_debug, False)
    loop.call_later(0.001, look)
    loop.call_later(0.002, loop.stop)
    loop.run_forever()
    assert depths[0] > before
    assert depths[1] == before
    assert sys.get_coroutine_origin_tracking_depth() == before


def test_contexts_and_order_are_the_same(debug_loop: Loop) -> None:
    variable = contextvars.ContextVar("variable", default=0)
    seen: list[int] = []

    def note() -> None:
        seen.append(variable.get())
        variable.set(100)

    schedules: list[Callable[..., Any]] = [debug_loop.call_soon, debug_loop.call_soon_threadsafe]
    for number in range(10):
        variable.set(number)
        schedules[number % 2](note)
    _run(debug_loop)
    assert seen == list(range(10))


async def test_a_task_s_source_is_known(loop: Loop, reports: list[dict[str, Any]]) -> None:
    loop.set_debug(True)

    async def fail() -> None:
        raise ZeroDivisionError

    task = loop.create_task(fail())
    await asyncio.wait([task])
    del task
    while not reports:
        await asyncio.sleep(0)
    assert reports.pop()["source_traceback"][-1].filename == __file__


def test_switched_in_the_middle(loop: Loop) -> None:
    seen: list[int] = []
    for number in range(6):
        loop.set_debug(number % 2 == 0)
        loop.call_soon(seen.append, number)
    loop.call_soon(loop.set_debug, True)
    loop.call_soon(seen.append, 6)
    _run(loop)
    loop.set_debug(False)
    _run(loop)
    assert seen == list(range(7))
