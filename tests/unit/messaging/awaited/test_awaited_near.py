"""Asynchronous sockets over shared memory, whose receives look there before the loop sleeps."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest
from tests.unit.messaging.awaited.waiting import Run

import ropewalk.zmq as zmq
from ropewalk.zmq.asyncio import Context

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program with a socket that is connected to the endpoint."""
    processes: list[subprocess.Popen[str]] = []

    def begin(kind: str, endpoint: str, text: str) -> subprocess.Popen[str]:
        head = f"import sys, time, ropewalk.zmq as zmq\ncontext = zmq.Context()\nend = context.socket(zmq.{kind})\n"
        program = head + "end.connect(sys.argv[1])\n" + textwrap.dedent(text)
        command = [sys.executable, "-c", program, endpoint]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, text=True))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def test_messages_of_another_process_arrive_fast_and_slow(run: Run, context: Context, start: Start) -> None:
    pull = context.socket(zmq.PULL)
    pull.bind("shm://*")
    start(
        "PUSH",
        pull.last_endpoint,
        """
        number = 0
        # Back to back, some microseconds apart, and so far apart that the receiver's loop sleeps.
        for count, pause in ((3000, 0), (3000, 5e-6), (20, 0.02), (2000, 2e-6), (3, 0.1), (1000, 0)):
            for _ in range(count):
                end.send(b"%d" % number)
                number += 1
                until = time.perf_counter() + pause
                if pause > 1e-3:
                    time.sleep(pause)
                while time.perf_counter() < until:
                    pass
        time.sleep(60)
        """,
    )

    async def main() -> None:
        for number in range(9023):
            assert await pull.recv() == b"%d" % number

    run(main())


def test_others_run_while_a_socket_is_hot(run: Run, context: Context, start: Start) -> None:
    pull = context.socket(zmq.PULL)
    pull.bind("shm://*")
    start("PUSH", pull.last_endpoint, "while True: end.send(b'x')")

    async def main() -> None:
        ran, timed = 0, 0

        async def other() -> None:
            nonlocal ran
            while True:
                ran += 1
                await asyncio.sleep(0)

        async def timer() -> None:
            nonlocal timed
            while True:
                await asyncio.sleep(0.0001)
                timed += 1

        tasks = [asyncio.create_task(other()), asyncio.create_task(timer())]
        while not (ran > 100 and timed > 10):
            await pull.recv()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Without anybody else, too, timers come in time.
        task = asyncio.create_task(timer())
        before = timed
        while timed < before + 10:
            await pull.recv()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main())


def test_round_trips_and_other_ways_to_wait(run: Run, context: Context, start: Start) -> None:
    router = context.socket(zmq.ROUTER)
    router.bind("shm://*")
    start("DEALER", router.last_endpoint, "end.send(b'ready')\nwhile True: end.send(end.recv())")

    async def main() -> None:
        name, said = await router.recv_multipart()
        assert said == b"ready"
        for number in range(2000):
            body = b"%d" % number
            await router.send_multipart([name, body])
            way = number % 5
            if way == 1:
                assert await router.poll(30_000) == zmq.POLLIN
            if way == 2:
                # A cancelled receive has taken nothing.
                waiting = router.recv_multipart()
                await asyncio.sleep(0)
                if not waiting.cancel():
                    assert await waiting == [name, body]
                    continue
            if way == 3:
                assert await router.recv_many(10) == [[name, body]]
                continue
            assert await router.recv_multipart() == [name, body]

    run(main())
