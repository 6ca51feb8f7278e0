"""`sendfile` and `sock_sendfile`: what arrives, what the file and the connection are after it, and what is refused."""

from __future__ import annotations

import asyncio
import io
import os
import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.recording import Recording, connected_to_socket, stream_pair, turns, until

Loop = asyncio.AbstractEventLoop

#: More than a connection's buffers take.
LARGE = 32 << 20
ours = pytest.mark.skipif(
    loops.MODULE != "ropewalk",
    reason="asyncio waits for ever, or leaves the file or the transport as they are",
)


@pytest.fixture
def large(tmp_path: Path) -> Iterator[IO[bytes]]:
    """A file that is not sent at once."""
    with (tmp_path / "large").open("w+b") as file:
        file.truncate(LARGE)
        yield file


def _compiled(loop: Loop) -> None:
    """In debug mode the loop leaves these methods to asyncio's."""
    loop.set_debug(False)


def _at_once(awaitable: Any) -> Any:
    """The result of an awaitable that waits for nothing."""
    with pytest.raises(StopIteration) as end:
        awaitable.send(None)
    return end.value.value


async def _received(loop: Loop, sock: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        received += await loop.sock_recv(sock, 1 << 20)
    return bytes(received)


def _arrived(sock: socket.socket) -> int:
    """How many bytes have arrived and are not received yet; what was sent may be on its way, on loopback too."""
    size = 0
    with suppress(BlockingIOError):
        while data := sock.recv(1 << 20):
            size += len(data)
    return size


def _rest(sock: socket.socket) -> int:
    """How many bytes come until the end of the connection."""
    sock.settimeout(10)
    return _arrived(sock)


# --- over a transport --------------------------------------------------------------------------------------------


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


@ours
async def test_a_file_for_which_there_is_room_takes_no_turn(loop: Loop, tmp_path: Path) -> None:
    _compiled(loop)
    (tmp_path / "file").write_bytes(b"0123456789")
    protocol = Recording()
    async with connected_to_socket(protocol) as peer:
        with (tmp_path / "file").open("rb") as file:
            assert _at_once(loop.sock_sendfile(peer, file, 2)) == 8
            assert file.tell() == 10
            assert _at_once(loop.sock_sendfile(peer, file, offset=1, count=3, fallback=False)) == 3
            assert file.tell() == 4
            assert _at_once(loop.sendfile(protocol.transport, file, 0, 5)) == 5
            assert file.tell() == 5
        assert await loop.sock_recv(peer, 100) == b"01234"
        await until(lambda: len(protocol.received) == 11)
        assert protocol.received == b"23456789123"


async def test_nothing_is_read_or_written_while_a_file_is_sent(loop: Loop, large: IO[bytes]) -> None:
    protocol = Recording()
    async with connected_to_socket(protocol) as peer:
        transport = protocol.transport
        task = loop.create_task(loop.sendfile(transport, large))
        await turns()
        assert not transport.is_reading()
        peer.send(b"question")
        with pytest.raises(RuntimeError, match="sendfile is in progress"):
            transport.write(b"x")
        await turns()
        assert not protocol.received
        assert await _received(loop, peer, LARGE) == bytes(LARGE)
        assert await task == LARGE
        assert transport.is_reading()
        await until(lambda: protocol.received == b"question")
        transport.write(b"answer")
        assert await _received(loop, peer, 6) == b"answer"


@ours
async def test_one_file_at_a_time(loop: Loop, large: IO[bytes]) -> None:
    _compiled(loop)
    protocol = Recording()
    async with connected_to_socket(protocol) as peer:
        task = loop.create_task(loop.sendfile(protocol.transport, large))
        await turns()
        with pytest.raises(RuntimeError, match="sendfile is in progress"):
            await loop.sendfile(protocol.transport, large)
        assert len(await _received(loop, peer, LARGE)) == LARGE
        assert await task == LARGE


@ours
@pytest.mark.parametrize("how", ["close", "abort"])
async def test_the_end_of_a_transport_ends_its_sendfile(loop: Loop, large: IO[bytes], how: str) -> None:
    _compiled(loop)
    protocol = Recording()
    async with connected_to_socket(protocol) as peer:
        task = loop.create_task(loop.sendfile(protocol.transport, large))
        await turns()
        getattr(protocol.transport, how)()
        with pytest.raises(ConnectionError, match="closed"):
            await asyncio.wait_for(task, 5)
        assert large.tell() == _rest(peer) > 0
        assert protocol.calls[-1] == "connection_lost"


@ours
@pytest.mark.parametrize("before", [0, LARGE], ids=["sending", "waiting"])
async def test_a_transport_is_as_before_after_a_cancelled_sendfile(
    loop: Loop, large: IO[bytes], before: int
) -> None:
    _compiled(loop)
    protocol = Recording()
    async with connected_to_socket(protocol) as peer:
        transport = protocol.transport
        transport.write(bytes(before))
        task = loop.create_task(loop.sendfile(transport, large))
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        sent = large.tell()
        assert (sent == 0) == (before > 0)
        assert transport.is_reading()
        transport.write(b"next")
        assert (await _received(loop, peer, before + sent + 4))[-5:] == b"\0next"
        peer.send(b"x")
        await until(lambda: protocol.received == b"x")


async def test_what_the_kernel_cannot_send_goes_over_a_transport(loop: Loop) -> None:
    protocol = Recording()
    async with connected_to_socket(protocol) as peer:
        with pytest.raises(asyncio.SendfileNotAvailableError):
            await loop.sendfile(protocol.transport, io.BytesIO(b"memory"), fallback=False)
        assert await loop.sendfile(protocol.transport, io.BytesIO(b"memory"), 1, 3) == 3
        assert await _received(loop, peer, 3) == b"emo"
        assert protocol.transport.is_reading()
        protocol.transport.write(b"next")
        assert await _received(loop, peer, 4) == b"next"


async def test_a_replaced_native_part_is_called(loop: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"file")

    async def refuse(*_: object) -> int:
        raise asyncio.SendfileNotAvailableError("replaced")

    loop._sendfile_native = loop._sock_sendfile_native = refuse
    protocol = Recording()
    async with connected_to_socket(protocol) as peer:
        with (tmp_path / "file").open("rb") as file:
            for send, to in ((loop.sendfile, protocol.transport), (loop.sock_sendfile, peer)):
                with pytest.raises(asyncio.SendfileNotAvailableError, match="replaced"):
                    await send(to, file, fallback=False)


@ours
async def test_sendfile_calls_a_replaced_sock_sendfile(loop: Any, tmp_path: Path) -> None:
    _compiled(loop)
    (tmp_path / "file").write_bytes(b"file")
    calls: list[dict[str, Any]] = []
    theirs = loop.sock_sendfile

    def replaced(*args: Any, **keywords: Any) -> Any:
        calls.append(keywords)
        return theirs(*args, **keywords)

    loop.sock_sendfile = replaced
    protocol = Recording()
    async with connected_to_socket(protocol) as peer:
        with (tmp_path / "file").open("rb") as file:
            assert await loop.sendfile(protocol.transport, file) == 4
        assert await _received(loop, peer, 4) == b"file"
    assert calls == [{"fallback": False}]


# --- over a socket -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["tcp", "unix"])
async def test_a_file_that_grows_is_sent_to_its_end(loop: Loop, large: IO[bytes], family: str) -> None:
    left, right = stream_pair(family)
    with left, right:
        task = loop.create_task(loop.sock_sendfile(left, large))
        await turns()
        assert not task.done()
        os.pwrite(large.fileno(), b"more", LARGE)
        assert (await _received(loop, right, LARGE + 4))[-5:] == b"\0more"
        assert await task == LARGE + 4
        assert large.tell() == LARGE + 4


async def test_a_file_that_shrinks_ends_early(loop: Loop, large: IO[bytes]) -> None:
    left, right = stream_pair("tcp")
    with left, right:
        task = loop.create_task(loop.sock_sendfile(left, large, 0, LARGE))
        await turns()
        large.truncate(10)
        received = 0
        while not task.done():
            received += _arrived(right)
            await asyncio.sleep(0)
        sent = await task
        left.shutdown(socket.SHUT_WR)
        assert 10 < sent == received + _rest(right) < LARGE
        assert large.tell() == sent


@ours
async def test_the_position_after_a_cancelled_sendfile_is_behind_what_was_sent(
    loop: Loop, large: IO[bytes]
) -> None:
    _compiled(loop)
    left, right = stream_pair("tcp")
    with left, right:
        task = loop.create_task(loop.sock_sendfile(left, large, 5))
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        sent = large.tell() - 5
        left.close()
        assert len(await _received(loop, right, sent)) == sent > 0
        assert await loop.sock_recv(right, 10) == b""


async def test_a_peer_that_is_gone_is_an_error_and_the_position_is_behind_what_was_sent(
    loop: Loop, large: IO[bytes]
) -> None:
    left, right = stream_pair("unix")
    with left, right:
        task = loop.create_task(loop.sock_sendfile(left, large))
        await turns()
        right.close()
        with pytest.raises(ConnectionError):
            await task
        assert 0 < large.tell() < LARGE


async def test_a_peer_that_is_gone_before_the_first_byte(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"file")
    left, right = stream_pair("unix")
    right.close()
    with left, (tmp_path / "file").open("rb") as file:
        with pytest.raises(asyncio.SendfileNotAvailableError):
            await loop.sock_sendfile(left, file, fallback=False)
        with pytest.raises(BrokenPipeError):
            await loop.sock_sendfile(left, file)


async def test_a_closed_socket_or_file(loop: Loop, large: IO[bytes]) -> None:
    left, right = stream_pair("unix")
    with right:
        left.close()
        with pytest.raises(asyncio.SendfileNotAvailableError):
            await loop.sock_sendfile(left, large, fallback=False)
        with pytest.raises(OSError, match="Bad file descriptor"):
            await loop.sock_sendfile(left, large)
        large.close()
        with pytest.raises(ValueError, match="closed file"):
            await loop.sock_sendfile(right, large)


async def test_a_pipe_is_read_by_the_program(loop: Loop) -> None:
    left, right = stream_pair("unix")
    reading, writing = os.pipe()
    with left, right, os.fdopen(reading, "rb", buffering=0) as pipe:
        os.write(writing, b"piped")
        os.close(writing)
        with pytest.raises(asyncio.SendfileNotAvailableError):
            await loop.sock_sendfile(left, pipe, 0, 5, fallback=False)
        with suppress(OSError):
            # It cannot be sought at the end, as on asyncio.
            await loop.sock_sendfile(left, pipe, 0, 5)
        assert await _received(loop, right, 5) == b"piped"


async def test_a_file_that_is_closed_before_there_was_room(loop: Loop, large: IO[bytes]) -> None:
    left, right = stream_pair("unix")
    with left, right:
        with suppress(BlockingIOError):
            while left.send(bytes(1 << 16)):
                pass
        task = loop.create_task(loop.sock_sendfile(left, large, fallback=False))
        await turns()
        large.close()
        _arrived(right)
        with pytest.raises(asyncio.SendfileNotAvailableError):
            await task


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((-1,), ValueError),
        (("0",), TypeError),
        ((0, 0), ValueError),
        ((0, -1), ValueError),
        ((0, 1.5), TypeError),
        ((0, 1, True), TypeError),
    ],
)
async def test_arguments_that_asyncio_refuses(
    loop: Any, tmp_path: Path, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    (tmp_path / "file").write_bytes(b"file")
    protocol = Recording()
    async with connected_to_socket(protocol) as peer:
        with (tmp_path / "file").open("rb") as file:
            for send, to in ((loop.sendfile, protocol.transport), (loop.sock_sendfile, peer)):
                with pytest.raises(error):
                    await send(to, file, *arguments)


async def test_a_socket_of_messages_is_refused(loop: Loop, large: IO[bytes]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        with pytest.raises(ValueError, match="SOCK_STREAM"):
            await loop.sock_sendfile(sock, large)


@ours
async def test_the_socket_of_a_transport_is_refused_before_a_byte_is_sent(loop: Loop, tmp_path: Path) -> None:
    _compiled(loop)
    (tmp_path / "file").write_bytes(b"file")
    left, right = stream_pair("unix")
    transport, _ = await loop.create_connection(Recording, sock=left)
    with right, (tmp_path / "file").open("rb") as file:
        with pytest.raises(RuntimeError, match="used by transport"):
            await loop.sock_sendfile(left, file)
        with pytest.raises(BlockingIOError):
            right.recv(10)
        transport.abort()
        await until(lambda: left.fileno() == -1)


async def test_other_callbacks_run_while_a_peer_reads_all_the_time(loop: Loop, large: IO[bytes]) -> None:
    left, right = stream_pair("tcp")
    with left, right:
        right.setblocking(True)

        def read() -> int:
            size = 0
            while size < LARGE:
                size += len(right.recv(1 << 20))
            return size

        peer = loop.run_in_executor(None, read)
        task = loop.create_task(loop.sock_sendfile(left, large))
        count = 0
        while not task.done():
            await asyncio.sleep(0)
            count += 1
        assert (await task, await peer) == (LARGE, LARGE)
        # Between bursts of 4 MiB at most.
        assert count >= LARGE // (4 << 20) - 1
