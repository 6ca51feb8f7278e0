"""Signals: handlers of the loop, and Ctrl-C while it waits and while it runs callbacks."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.loop.loops import new_event_loop
from tests.unit.loop.recording import until

Loop = asyncio.AbstractEventLoop


async def test_a_handler_is_called_in_the_loop(loop: Loop) -> None:
    seen: list[Any] = []
    loop.add_signal_handler(
        signal.SIGUSR1, lambda *args: seen.append((args, asyncio.get_running_loop())), 1, 2
    )
    for count in (1, 2, 3):
        os.kill(os.getpid(), signal.SIGUSR1)
        await until(lambda count=count: len(seen) == count)
    assert seen == [((1, 2), loop)] * 3
    assert loop.remove_signal_handler(signal.SIGUSR1) is True
    assert loop.remove_signal_handler(signal.SIGUSR1) is False
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


def test_a_handler_wakes_a_loop_that_waits(loop: Loop) -> None:
    loop.add_signal_handler(signal.SIGUSR1, loop.stop)
    thread = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGUSR1))
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()
    assert not loop.is_running()


async def test_the_last_handler_counts(loop: Loop) -> None:
    seen: list[str] = []
    loop.add_signal_handler(signal.SIGUSR1, seen.append, "first")
    loop.add_signal_handler(signal.SIGUSR1, seen.append, "second")
    loop.add_signal_handler(signal.SIGUSR2, seen.append, "other")
    signal.raise_signal(signal.SIGUSR1)
    await until(lambda: seen)
    signal.raise_signal(signal.SIGUSR2)
    await until(lambda: len(seen) == 2)
    assert seen == ["second", "other"]


def test_close_takes_the_handlers_out(loop: Loop) -> None:
    loop.add_signal_handler(signal.SIGUSR1, print)
    loop.close()
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    # Nothing is written any more to where the loop was woken.
    wakeup = signal.set_wakeup_fd(-1)
    assert wakeup == -1


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGKILL, RuntimeError), (0, ValueError), (1000, ValueError)]
)
def test_signals_that_cannot_be_handled(loop: Loop, number: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        loop.add_signal_handler(number, print)


def test_handlers_that_are_none(loop: Loop) -> None:
    async def coroutine() -> None:
        pass

    with pytest.raises(TypeError):
        loop.add_signal_handler(signal.SIGUSR1, coroutine)
    with pytest.raises(TypeError):
        loop.add_signal_handler("USR1", print)  # type: ignore[arg-type]


def test_handlers_belong_to_the_main_thread(loop: Loop) -> None:
    errors: list[Exception] = []

    def work() -> None:
        try:
            loop.add_signal_handler(signal.SIGUSR1, print)
        except (RuntimeError, ValueError) as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(errors) == 1


async def _wait() -> None:
    await asyncio.get_running_loop().create_future()


async def _work() -> None:
    while True:
        await asyncio.sleep(0)


@pytest.mark.parametrize("main", [_wait, _work])
def test_ctrl_c_cancels_what_a_runner_runs(send_signal: Callable[[int], None], main: Any) -> None:
    ends: list[str] = []

    async def run() -> None:
        asyncio.get_running_loop().call_soon(send_signal, signal.SIGINT)
        try:
            await main()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        with pytest.raises(KeyboardInterrupt):
            runner.run(run())
        assert ends == ["cancelled"]
        # And the runner may be used again.
        assert runner.run(asyncio.sleep(0, "again")) == "again"


def test_ctrl_c_comes_out_of_a_loop_without_a_runner(loop: Loop, send_signal: Callable[[int], None]) -> None:
    task = loop.create_task(_wait())
    loop.call_soon(send_signal, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert not loop.is_running()
    assert loop.run_until_complete(asyncio.sleep(0, "again")) == "again"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)


def test_ctrl_c_in_a_callback_that_works(loop: Loop, send_signal: Callable[[int], None]) -> None:
    def work() -> None:
        send_signal(signal.SIGINT)
        while True:
            pass

    loop.call_soon(work)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert loop.run_until_complete(asyncio.sleep(0, "again")) == "again"


def _compiled_chain(loop: Loop) -> functools.partial[Any]:
    """A callback that schedules itself for ever, in which the interpreter runs no bytecode."""
    link: functools.partial[Any] = functools.partial(loop.call_soon)
    link.__setstate__((loop.call_soon, (link,), {}, {}))  # type: ignore[attr-defined]
    return link


def test_signals_arrive_while_all_callbacks_are_compiled(loop: Loop) -> None:
    def handle(*_: object) -> None:
        loop.stop()

    before = signal.signal(signal.SIGALRM, handle)
    try:
        loop.call_soon(_compiled_chain(loop))
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        loop.run_forever()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_other_threads_run_while_all_callbacks_are_compiled(loop: Loop) -> None:
    begun, ran = threading.Event(), []

    def work() -> None:
        begun.wait()
        for number in range(3):
            ran.append(number)
            threading.Event().wait(0.001)
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=work)
    thread.start()
    loop.call_soon(begun.set)
    loop.call_soon(_compiled_chain(loop))
    loop.run_forever()
    thread.join()
    assert ran == [0, 1, 2]


async def test_other_signals_during_the_wait_disturb_nothing(loop: Loop, pair: Any) -> None:
    left, right = pair
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    stop = threading.Event()

    def storm() -> None:
        while not stop.is_set():
            os.kill(os.getpid(), signal.SIGUSR1)
            stop.wait(0.0002)

    thread = threading.Thread(target=storm)
    thread.start()
    try:
        for number in range(100):
            task = loop.create_task(loop.sock_recv(left, 100))
            await asyncio.sleep(0.0003)
            right.send(b"%d" % number)
            assert await task == b"%d" % number
    finally:
        stop.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)
