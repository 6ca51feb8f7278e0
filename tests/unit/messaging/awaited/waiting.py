"""Types and waits for the tests of asynchronous sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ropewalk.zmq.asyncio import Socket

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Pair = Callable[..., tuple[Socket, Socket]]


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.002)
