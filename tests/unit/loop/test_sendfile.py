"""`sendfile` over a transport."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from tests.unit.loop.recording import Recording, connected_to_socket

Loop = asyncio.AbstractEventLoop


@pytest.mark.parametrize("size", [0, 10, 4 << 20])
async def test_a_file_over_a_transport(loop: Loop, tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(data)
    protocol = Recording()
    async with connected_to_socket(protocol, family="tcp") as peer:
        with (tmp_path / "file").open("rb") as file:
            protocol.transport.write(b"head")
            task = loop.create_task(loop.sendfile(protocol.transport, file))
            received = bytearray()
            while len(received) < size + 4:
                received += await loop.sock_recv(peer, 1 << 20)
            assert await task == size
            assert received == b"head" + data
            protocol.transport.write(b"tail")
            assert await loop.sock_recv(peer, 100) == b"tail"
            assert await loop.sendfile(protocol.transport, file, 0, 3) == min(3, size)


async def test_a_file_over_a_closing_transport(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    protocol = Recording()
    async with connected_to_socket(protocol):
        protocol.transport.close()
        with (tmp_path / "file").open("rb") as file:
            with pytest.raises(RuntimeError, match="closing"):
                await loop.sendfile(protocol.transport, file)
