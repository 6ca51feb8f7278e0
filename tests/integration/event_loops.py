"""The loop under test: Ropewalk's, unless `ROPEWALK_TEST_LOOP` names another module that makes loops.

`ROPEWALK_TEST_LOOP=asyncio pytest tests/integration` tells whether a test or the loop is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

#: The module that makes the loops.
MODULE = os.environ.get("ROPEWALK_TEST_LOOP", "ropewalk")
_ROOT = Path(__file__).resolve().parents[2]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new loop of the kind under test."""
    loop: asyncio.AbstractEventLoop = importlib.import_module(MODULE).new_event_loop()
    return loop


def run(main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
    """`ropewalk.run`, or its like."""
    result: T = importlib.import_module(MODULE).run(main, debug=debug)
    return result


def is_under_test(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the loop is of the kind under test, not one that a library has made by itself."""
    return type(loop).__module__.partition(".")[0] == MODULE


async def until(condition: Callable[[], T], seconds: float = 30) -> T:
    """The condition's first true value, while the loop goes on; fails if there is none in time."""
    async with asyncio.timeout(seconds):
        while not (value := condition()):
            await asyncio.sleep(0.002)
    return value


@contextlib.contextmanager
def script(
    text: str, *words: str, pass_fds: Sequence[int] = (), **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """A Python process that runs the text, and can import the tests; it is gone afterwards in any case."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", text, *words],
        cwd=_ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=pass_fds,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def run_script(text: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What such a process printed, and how it ended."""
    with script(text, *words, **environment) as child:
        output, errors = child.communicate(timeout=60)
    return subprocess.CompletedProcess(child.args, child.returncode, output, errors)
