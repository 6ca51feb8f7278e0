"""Receives that stop at a border: urgent data, descriptors, the next writer. What is behind it arrives all the same."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.loop.recording import BufferedRecording, Recording, connected_to_socket, stream_pair, until

Loop = asyncio.AbstractEventLoop


def _urgent(peer: socket.socket) -> None:
    peer.send(b"before")
    peer.send(b"!", socket.MSG_OOB)
    peer.send(b"behind")


def _descriptors(peer: socket.socket) -> None:
    end, other = os.pipe()
    socket.send_fds(peer, [b"before"], [end])
    peer.send(b"behind")
    os.close(end)
    os.close(other)


def _writers(peer: socket.socket) -> None:
    if (child := os.fork()) == 0:
        peer.send(b"before")
        os._exit(0)
    os.waitpid(child, 0)
    peer.send(b"behind")


Send = Callable[[socket.socket], None]
borders = pytest.mark.parametrize(
    ("family", "send"),
    [("tcp", _urgent), ("unix", _urgent), ("unix", _descriptors), ("unix", _writers)],
    ids=["urgent-tcp", "urgent-unix", "descriptors", "writers"],
)


def _ask_for_writers(sock: Any, family: str) -> None:
    if family == "unix":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)


@borders
@pytest.mark.parametrize("kind", [Recording, BufferedRecording])
async def test_a_transport_passes_on_what_is_behind(loop: Loop, family: str, send: Send, kind: Any) -> None:
    async with connected_to_socket(protocol := kind(), family=family) as peer:
        _ask_for_writers(protocol.transport.get_extra_info("socket"), family)
        for round_ in (1, 2):
            protocol.transport.pause_reading()
            send(peer)
            protocol.transport.resume_reading()
            await until(lambda count=round_: protocol.received == b"beforebehind" * count)
            # What comes without a border arrives as always.
            peer.send(b"plain")
            await until(lambda: protocol.received.endswith(b"plain"))
            del protocol.received[-5:]


@borders
async def test_a_stream_reader_gets_what_is_behind(loop: Loop, family: str, send: Send) -> None:
    left, peer = stream_pair(family)
    _ask_for_writers(left, family)
    with peer:
        send(peer)
        reader, writer = await asyncio.open_connection(sock=left)
        assert await asyncio.wait_for(reader.readexactly(12), 30) == b"beforebehind"
        writer.close()
        await writer.wait_closed()


@borders
@pytest.mark.parametrize("into", [False, True])
async def test_an_operation_receives_what_is_behind(loop: Loop, family: str, send: Send, into: bool) -> None:
    async def receive(sock: socket.socket) -> bytes:
        if not into:
            return await loop.sock_recv(sock, 100)
        buffer = bytearray(100)
        return bytes(buffer[: await loop.sock_recv_into(sock, buffer)])

    sock, peer = stream_pair(family)
    with sock, peer:
        _ask_for_writers(sock, family)
        # One that waits, so that the loop knows the socket.
        first = asyncio.ensure_future(receive(sock))
        await asyncio.sleep(0.001)
        peer.send(b"first")
        assert await first == b"first"
        send(peer)
        received = b""
        while len(received) < 12:
            received += await asyncio.wait_for(receive(sock), 30)
        assert received == b"beforebehind"
