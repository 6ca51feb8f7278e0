"""The standard library's own ways to run: `Runner`, task groups, timeouts, streams, interrupts and debug mode."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import signal
import sys
from typing import Any

import pytest
from tests.integration.conftest import Contexts
from tests.integration.event_loops import (
    is_under_test,
    new_event_loop,
    run,
    run_script,
    script,
    until,
)


def test_a_runner_keeps_its_loop_and_context() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    async def count() -> tuple[int, asyncio.AbstractEventLoop]:
        variable.set(variable.get() + 1)
        await asyncio.sleep(0)
        return variable.get(), asyncio.get_running_loop()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        results = [runner.run(count()) for _ in range(3)]
        assert [number for number, _ in results] == [1, 2, 3]
        assert {loop for _, loop in results} == {runner.get_loop()}
        assert is_under_test(runner.get_loop())
    assert results[0][1].is_closed()
    assert variable.get() == 0


def test_a_runner_cleans_up() -> None:
    events: list[str] = []

    async def numbers() -> Any:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            events.append("generator closed")

    async def left_behind() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            events.append("task cancelled")

    async def main() -> Any:
        task = asyncio.create_task(left_behind())
        generator = numbers()
        assert await anext(generator) == 1
        await asyncio.to_thread(events.append, "in a thread")
        return task, generator

    task, _generator = run(main())
    assert task.cancelled()
    assert sorted(events) == ["generator closed", "in a thread", "task cancelled"]


def test_task_groups() -> None:
    async def main() -> None:
        cancelled: list[int] = []

        async def work(number: int) -> None:
            try:
                await asyncio.sleep(0 if number == 25 else 600)
                raise ValueError(number)
            except asyncio.CancelledError:
                cancelled.append(number)
                raise

        async def fail() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(work(number))

        with pytest.raises(ExceptionGroup) as caught:
            await fail()
        assert [error.args for error in caught.value.exceptions] == [(25,)]
        assert sorted(cancelled) == [number for number in range(50) if number != 25]

    run(main())


def test_timeouts_that_are_moved() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        deadline = asyncio.timeout(None)

        async def wait_for_ever() -> None:
            async with deadline:
                deadline.reschedule(loop.time() + 0.005)
                await loop.create_future()

        with pytest.raises(TimeoutError):
            await wait_for_ever()
        assert deadline.expired()
        async with asyncio.timeout(0.001) as deadline:
            deadline.reschedule(loop.time() + 600)
            await asyncio.sleep(0.005)
        assert not deadline.expired()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.create_future(), 0.001)

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with 3.12")
def test_eager_tasks() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(asyncio.eager_task_factory)
        seen: list[str] = []

        async def work() -> str:
            seen.append("began")
            await asyncio.sleep(0)
            return "ended"

        task = asyncio.create_task(work())
        assert seen == ["began"]
        assert await task == "ended"
        assert asyncio.create_task(asyncio.sleep(0, "x")).done() is False

    run(main())


def test_start_tls_on_streams(tls: Contexts) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"STARTTLS\n"
        writer.write(b"GO\n")
        await writer.drain()
        await writer.start_tls(tls.server)
        writer.write(await reader.readexactly(300_000))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            assert writer.get_extra_info("cipher") is None
            writer.write(b"STARTTLS\n")
            assert await reader.readline() == b"GO\n"
            await writer.start_tls(tls.client, server_hostname="localhost")
            assert writer.get_extra_info("cipher") is not None
            data = os.urandom(300_000)
            writer.write(data)
            assert await reader.readexactly(len(data)) == data
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()

    run(main())


def test_subprocess_pipes() -> None:
    async def main() -> None:
        async def shout(number: int) -> bytes:
            child = await asyncio.create_subprocess_exec(
                "tr",
                "a-z",
                "A-Z",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await child.communicate(b"child %d " % number * 20_000)
            assert child.returncode == 0
            return output

        outputs = await asyncio.gather(*(shout(number) for number in range(10)))
        assert outputs == [b"CHILD %d " % number * 20_000 for number in range(10)]
        child = await asyncio.create_subprocess_shell("exec sleep 600")
        child.kill()
        assert await child.wait() == -signal.SIGKILL

    run(main())


_INTERRUPTED = """
import asyncio
from tests.integration.event_loops import run

async def main():
    print("ready", flush=True)
    try:
        %s
    finally:
        await asyncio.sleep(0)
        print("cleaned up", flush=True)

try:
    run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("debug", ["", "1"], ids=["usual", "debug"])
@pytest.mark.parametrize(
    "busy",
    ["await asyncio.sleep(600)", "while True: await asyncio.sleep(0)"],
    ids=["parked", "turning"],
)
def test_an_interrupt_cancels_the_main_task(busy: str, debug: str) -> None:
    with script(_INTERRUPTED % busy, PYTHONASYNCIODEBUG=debug) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=60)
    assert (output, errors, child.returncode) == ("cleaned up\ninterrupted\n", "", 0)


_DEBUG = """
import asyncio, logging, threading, time, warnings
from tests.integration.event_loops import is_under_test, run

logging.basicConfig(format="%(levelname)s %(message)s")
warnings.simplefilter("always")

async def slow():
    time.sleep(0.2)

async def never():
    pass

async def main():
    loop = asyncio.get_running_loop()
    assert is_under_test(loop) and loop.get_debug()
    await asyncio.create_task(slow(), name="slow one")
    never()
    errors = []
    def wrong():
        for schedule in (loop.call_soon, lambda f: loop.call_later(0, f), lambda f: loop.call_at(0, f)):
            try:
                schedule(int)
            except RuntimeError as error:
                errors.append(str(error))
    thread = threading.Thread(target=wrong)
    thread.start()
    thread.join()
    print(errors)
    def fail():
        raise ValueError("told")
    loop.call_soon(fail)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

run(main())
"""


def test_debug_mode_from_the_environment() -> None:
    done = run_script(_DEBUG, PYTHONASYNCIODEBUG="1")
    assert done.returncode == 0, done.stderr
    told = "Non-thread-safe operation invoked on an event loop other than the current one"
    assert done.stdout == f"{[told] * 3}\n"
    assert "WARNING Executing <Task finished name='slow one' coro=<slow() done" in done.stderr
    assert "coroutine 'never' was never awaited" in done.stderr
    assert "Coroutine created at (most recent call last)" in done.stderr
    assert "ERROR Exception in callback main.<locals>.fail()" in done.stderr
    assert "source_traceback: Object created at (most recent call last)" in done.stderr


def test_without_debug_mode_nothing_is_told() -> None:
    done = run_script(_DEBUG.replace("and loop.get_debug()", ""), PYTHONASYNCIODEBUG="")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
    assert "Executing" not in done.stderr
    assert "source_traceback" not in done.stderr


def test_a_callback_that_raises_is_told_once_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        told: list[dict[str, Any]] = []
        loop.call_soon(divmod, 1, 0)
        await until(lambda: caplog.records)
        loop.set_exception_handler(lambda _, context: told.append(context))
        loop.call_later(0, divmod, 2, 0)
        loop.call_soon_threadsafe(divmod, 3, 0)
        await until(lambda: len(told) == 2)
        assert all(isinstance(context["exception"], ZeroDivisionError) for context in told)
        assert all(isinstance(context["handle"], asyncio.Handle) for context in told)

    with caplog.at_level(logging.ERROR, "asyncio"):
        run(main())
    assert len(caplog.records) == 1
    assert "Exception in callback divmod(" in caplog.records[0].message
