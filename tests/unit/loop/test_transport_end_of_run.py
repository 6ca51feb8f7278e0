"""Written data are sent even if the loop stops at once."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.unit.loop.loops import Loop


def test_what_was_written_last_is_sent_though_the_loop_does_not_run_again(loop: Loop) -> None:
    left, right = socket.socketpair()
    left.setblocking(False)

    async def write() -> asyncio.Transport:
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=left)
        transport.write(b"the last ")
        transport.write(b"words")
        return transport

    with right:
        transport = loop.run_until_complete(write())
        right.setblocking(False)
        assert right.recv(100) == b"the last words"
        transport.abort()
        loop.run_until_complete(asyncio.sleep(0.001))
