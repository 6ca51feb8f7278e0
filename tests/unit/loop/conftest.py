"""A loop for each test; the fixture checks that the test leaves no descriptor and no unseen error."""

from __future__ import annotations

import asyncio
import inspect
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.unit.loop.loops import descriptors, fresh_loop, left_open


@pytest.fixture(autouse=True)
def no_descriptor_left() -> Iterator[None]:
    before = descriptors()
    yield
    assert left_open(before) == {}


@pytest.fixture
def reports(no_descriptor_left: None) -> Iterator[list[dict[str, Any]]]:
    """What the loop tells its exception handler; a test that provokes a report takes it out again."""
    reports: list[dict[str, Any]] = []
    yield reports
    assert reports == []


@pytest.fixture
def loop(reports: list[dict[str, Any]]) -> Iterator[asyncio.AbstractEventLoop]:
    with fresh_loop(reports) as loop:
        yield loop


@pytest.fixture
def stack(no_descriptor_left: None) -> Iterator[ExitStack]:
    """Closes at the test's end, after the loop, what the test enters."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def pair(no_descriptor_left: None) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets that do not block."""
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        yield left, right


@pytest.fixture
def listening(no_descriptor_left: None) -> Iterator[socket.socket]:
    """A TCP socket that listens and does not block."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


@pytest.fixture
def send_signal() -> Iterator[Callable[[int], None]]:
    """Lets another thread send this process a signal while the main thread waits for descriptors, or works.

    Between its last look at signals and its wait, a loop without a wake-up descriptor would not notice it.
    """
    numbers: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    waiting = Path(f"/proc/self/task/{threading.main_thread().native_id}/wchan")

    def send() -> None:
        while (number := numbers.get()) is not None:
            deadline = time.monotonic() + 0.2
            while "poll" not in waiting.read_text() and time.monotonic() < deadline:
                time.sleep(0.001)
            os.kill(os.getpid(), number)

    # It runs already when it is asked, so that its start is not what the signal interrupts.
    thread = threading.Thread(target=send)
    thread.start()
    yield numbers.put
    numbers.put(None)
    thread.join()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs an `async def` test on the loop of its fixture."""
    test: Callable[..., Any] = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    funcargs = pyfuncitem.funcargs
    arguments = {name: funcargs[name] for name in inspect.signature(test).parameters}
    funcargs["loop"].run_until_complete(test(**arguments))
    return True
