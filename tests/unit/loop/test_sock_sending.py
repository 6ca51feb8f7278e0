"""`sock_sendall`, `sock_sendto` and `sock_sendfile`: all data arrive, however slow the reader."""

from __future__ import annotations

import array
import asyncio
import io
import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.recording import stream_pair, turns

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["tcp", "unix"])
def pair(request: pytest.FixtureRequest, stack: ExitStack) -> Pair:
    left, right = stream_pair(request.param)
    return stack.enter_context(left), stack.enter_context(right)


async def _read(loop: Loop, sock: socket.socket, count: int, size: int = 1 << 16) -> bytes:
    received = bytearray()
    while len(received) < count:
        received += await loop.sock_recv(sock, size)
        # A slow reader lets the sender run into a full buffer each time.
        await asyncio.sleep(0)
    return bytes(received)


@pytest.mark.parametrize("size", [0, 1, 1000, 1 << 16, 3 << 20])
async def test_all_of_it_is_sent(loop: Loop, pair: Pair, size: int) -> None:
    left, right = pair
    data = random.Random(size).randbytes(size)
    _, received = await asyncio.gather(loop.sock_sendall(left, data), _read(loop, right, size))
    assert received == data
    assert loop.remove_writer(left) is False


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
async def test_kinds_of_data(loop: Loop, pair: Pair, make: Any) -> None:
    left, right = pair
    data = bytes(range(256)) * 4000
    _, received = await asyncio.gather(loop.sock_sendall(left, make(data)), _read(loop, right, len(data)))
    assert received == data


@pytest.mark.skipif(
    loops.MODULE != "ropewalk", reason="asyncio compares bytes sent with items, and waits for ever"
)
async def test_items_larger_than_a_byte(loop: Loop, pair: Pair) -> None:
    left, right = pair
    # In debug mode the loop leaves these methods to asyncio's, with that fault.
    loop.set_debug(False)
    data = array.array("q", range(100_000))
    await asyncio.gather(loop.sock_sendall(left, data), _read(loop, right, 800_000))
    view = memoryview(data)[:10]
    _, received = await asyncio.gather(loop.sock_sendall(left, view), _read(loop, right, 80))
    assert received == bytes(view)


async def test_data_of_a_wrong_type(loop: Loop, pair: Pair) -> None:
    left, _ = pair
    for data in ("text", None, 1):
        with pytest.raises(TypeError):
            await loop.sock_sendall(left, data)  # type: ignore[arg-type]
    assert loop.remove_writer(left) is False


async def test_a_cancelled_send_leaves_a_prefix(loop: Loop, pair: Pair) -> None:
    left, right = pair
    data = random.Random(5).randbytes(8 << 20)
    task = loop.create_task(loop.sock_sendall(left, data))
    await turns()
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert loop.remove_writer(left) is False
    sender = loop.create_task(loop.sock_sendall(left, b"THE END"))
    received = bytearray()
    while not received.endswith(b"THE END"):
        received += await loop.sock_recv(right, 1 << 20)
    await sender
    sent = received[:-7]
    assert data.startswith(sent)
    assert 0 < len(sent) < len(data)


async def test_a_buffer_is_free_after_a_send(loop: Loop, pair: Pair) -> None:
    left, right = pair
    data = bytearray(4 << 20)
    for cancel in (False, True):
        task = loop.create_task(loop.sock_sendall(left, data))
        await turns()
        if cancel:
            task.cancel()
            await asyncio.wait([task])
        else:
            await asyncio.gather(task, _read(loop, right, len(data)))
        del task
        # No view of it is left: it can be resized.
        data.append(0)
        data.pop()


async def test_a_peer_that_closes_is_an_error(loop: Loop, pair: Pair) -> None:
    left, right = pair
    task = loop.create_task(loop.sock_sendall(left, bytes(8 << 20)))
    await turns()
    right.close()
    with pytest.raises(ConnectionError):
        await task
    with pytest.raises(ConnectionError):
        await loop.sock_sendall(left, b"x")
    assert loop.remove_writer(left) is False


async def test_sends_of_several_tasks_in_turn(loop: Loop, pair: Pair) -> None:
    left, right = pair
    lock = asyncio.Lock()
    parts = [bytes([number]) * 200_000 for number in range(8)]

    async def send(part: bytes) -> None:
        async with lock:
            await loop.sock_sendall(left, part)

    *_, received = await asyncio.gather(*map(send, parts), _read(loop, right, 1_600_000))
    assert received == b"".join(parts)


async def test_mixed_with_add_writer(loop: Loop, pair: Pair) -> None:
    left, right = pair
    ready = loop.create_future()
    loop.add_writer(left, lambda: ready.done() or ready.set_result(None))
    await ready
    assert loop.remove_writer(left) is True
    data = bytes(4 << 20)
    _, received = await asyncio.gather(loop.sock_sendall(left, data), _read(loop, right, len(data)))
    assert received == data
    assert loop.remove_writer(left) is False


async def test_sendto_waits_for_room(loop: Loop, tmp_path: Path, stack: ExitStack) -> None:
    receiver, sender = (
        stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) for _ in range(2)
    )
    for sock in (receiver, sender):
        sock.setblocking(False)
    receiver.bind(str(tmp_path / "receiver"))
    # A full queue of Unix datagrams blocks the sender, unlike UDP's, which drops.
    count = 0
    task = loop.create_task(asyncio.sleep(0))
    while task.done() or count == 0:
        if count:
            assert task.result() in (None, 1000)
        count += 1
        task = loop.create_task(loop.sock_sendto(sender, bytes(1000), str(tmp_path / "receiver")))
        await turns(3)
    received = 0
    while received < count:
        assert len(await loop.sock_recv(receiver, 2000)) == 1000
        received += 1
    assert await task == 1000
    assert loop.remove_writer(sender) is False


async def test_sendto_of_an_error(loop: Loop, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        with pytest.raises(FileNotFoundError):
            await loop.sock_sendto(sender, b"x", str(tmp_path / "nobody"))


@pytest.mark.parametrize("size", [0, 1, 5000, 2 << 20])
async def test_sendfile(loop: Loop, tmp_path: Path, size: int) -> None:
    left, right = stream_pair("tcp")
    data = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(data)
    with left, right, (tmp_path / "file").open("rb") as file:
        count, received = await asyncio.gather(loop.sock_sendfile(left, file), _read(loop, right, size))
        assert (count, received) == (size, data)
        assert file.tell() == size


async def test_a_part_of_a_file(loop: Loop, tmp_path: Path) -> None:
    left, right = stream_pair("tcp")
    (tmp_path / "file").write_bytes(bytes(range(200)))
    with left, right, (tmp_path / "file").open("rb") as file:
        assert await loop.sock_sendfile(left, file, 50, 20) == 20
        assert await _read(loop, right, 20) == bytes(range(50, 70))
        assert file.tell() == 70
        assert await loop.sock_sendfile(left, file, 190, 100) == 10
        assert await _read(loop, right, 10) == bytes(range(190, 200))


async def test_a_file_that_is_none(loop: Loop) -> None:
    left, right = stream_pair("tcp")
    with left, right:
        file = io.BytesIO(b"in memory")
        with pytest.raises(asyncio.SendfileNotAvailableError):
            await loop.sock_sendfile(left, file, fallback=False)
        assert await loop.sock_sendfile(left, file) == 9
        assert await _read(loop, right, 9) == b"in memory"
        with pytest.raises(ValueError, match="binary mode"), Path(__file__).open() as text:
            await loop.sock_sendfile(left, text)  # type: ignore[arg-type]


async def test_a_cancelled_sendfile(loop: Loop, tmp_path: Path) -> None:
    left, right = stream_pair("tcp")
    (tmp_path / "file").write_bytes(bytes(32 << 20))
    with left, right, (tmp_path / "file").open("rb") as file:
        task = loop.create_task(loop.sock_sendfile(left, file))
        await turns()
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert loop.remove_writer(left) is False
        # What was on its way is a prefix, and what is sent next follows it.
        sender = loop.create_task(loop.sock_sendall(left, b"next"))
        received = bytearray()
        while not received.endswith(b"next"):
            received += await loop.sock_recv(right, 1 << 20)
        await sender
        assert 0 < len(received) < 32 << 20
