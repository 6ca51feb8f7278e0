"""The loop under test, and checks that it has released everything when it is closed."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

#: The module whose `new_event_loop` is tested. These tests state asyncio's contract, so its own loop passes
#: them too: `ROPEWALK_TEST_LOOP=asyncio` shows that a test asks for nothing else.
MODULE = os.environ.get("ROPEWALK_TEST_LOOP", "ropewalk")
ROOT = Path(__file__).resolve().parents[3]
FREE_THREADED = not getattr(sys, "_is_gil_enabled", lambda: True)()


def new_event_loop() -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = importlib.import_module(MODULE).new_event_loop()
    return loop


@contextmanager
def fresh_loop(reports: list[dict[str, Any]]) -> Iterator[asyncio.AbstractEventLoop]:
    """Makes a loop whose exception handler appends to `reports`, and closes it as `asyncio.run` does."""
    loop = new_event_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context))
    try:
        yield loop
    finally:
        if not loop.is_closed():
            _finish(loop)
        loop.close()


def _finish(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())


def descriptors() -> dict[int, str]:
    """The descriptors that this process has open, and what they lead to."""
    found = {}
    for entry in os.listdir("/proc/self/fd"):
        # The listing's own descriptor is gone by now.
        with suppress(FileNotFoundError):
            found[int(entry)] = os.readlink(f"/proc/self/fd/{entry}")
    return found


def left_open(before: dict[int, str], seconds: float = 10) -> dict[int, str]:
    """The descriptors opened since `before` that stay open; what ends just now gets some time for it."""
    deadline = time.monotonic() + seconds
    while True:
        left = {fd: target for fd, target in descriptors().items() if before.get(fd) != target}
        if not left or time.monotonic() > deadline:
            return left
        gc.collect()
        time.sleep(0.005)
