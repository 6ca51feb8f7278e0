"""`sock_recvfrom`, `sock_recvfrom_into` and `sock_sendto`: addresses, sizes, full buffers, errors."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.unit.loop.recording import turns

Loop = asyncio.AbstractEventLoop


def _bound(stack: ExitStack, family: int, address: Any) -> socket.socket:
    sock = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
    sock.setblocking(False)
    sock.bind(address)
    return sock


@pytest.fixture(params=["inet", "inet6", "path", "abstract"])
def ends(request: pytest.FixtureRequest, stack: ExitStack, tmp_path: Path) -> list[socket.socket]:
    """Two sockets of one family that have addresses."""
    if request.param == "inet":
        return [_bound(stack, socket.AF_INET, ("127.0.0.1", 0)) for _ in range(2)]
    if request.param == "inet6":
        if not socket.has_dualstack_ipv6():
            pytest.skip("no IPv6 here")
        return [_bound(stack, socket.AF_INET6, ("::1", 0)) for _ in range(2)]
    if request.param == "path":
        return [_bound(stack, socket.AF_UNIX, str(tmp_path / name)) for name in ("é1", "two")]
    unique = str(tmp_path).encode()[-30:]
    return [_bound(stack, socket.AF_UNIX, b"\0ropewalk" + unique + name) for name in (b"1", b"2")]


async def test_messages_have_addresses(loop: Loop, ends: list[socket.socket]) -> None:
    near, far = ends
    waiting = loop.create_task(loop.sock_recvfrom(far, 100))
    await turns()
    assert not waiting.done()
    assert await loop.sock_sendto(near, b"one", far.getsockname()) == 3
    assert await waiting == (b"one", near.getsockname())
    await loop.sock_sendto(near, bytearray(b"two"), far.getsockname())
    await loop.sock_sendto(near, memoryview(b"three"), far.getsockname())
    assert await loop.sock_recvfrom(far, 2) == (b"tw", near.getsockname())
    buffer = bytearray(10)
    assert await loop.sock_recvfrom_into(far, buffer) == (5, near.getsockname())
    assert buffer[:5] == b"three"
    waits = loop.create_task(loop.sock_recvfrom_into(far, buffer, 3))
    await turns()
    await loop.sock_sendto(near, b"threes", far.getsockname())
    assert await waits == (3, near.getsockname())
    # What was received is an address to answer to.
    await loop.sock_sendto(near, b"again", far.getsockname())
    _, sender = await loop.sock_recvfrom_into(far, buffer, nbytes=1)
    assert sender == near.getsockname()
    await loop.sock_sendto(far, b"answer", sender)
    assert (await loop.sock_recvfrom(near, 100_000))[0] == b"answer"


async def test_a_sender_without_a_name(loop: Loop, stack: ExitStack) -> None:
    near, far = (stack.enter_context(sock) for sock in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
    near.setblocking(False)
    far.setblocking(False)
    near.send(b"x")
    near.send(b"y")
    expected = far.recvfrom(1)[1]
    assert await loop.sock_recvfrom(far, 1) == (b"y", expected)


async def test_a_stream_has_no_sender(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    near.send(b"xy")
    assert await loop.sock_recvfrom(far, 1) == (b"x", far.recvfrom(1)[1])


async def test_empty_messages(loop: Loop, ends: list[socket.socket]) -> None:
    near, far = ends
    for _ in range(3):
        await loop.sock_sendto(near, b"", far.getsockname())
    await loop.sock_sendto(near, b"cut", far.getsockname())
    await loop.sock_sendto(near, b"end", far.getsockname())
    assert (await loop.sock_recvfrom(far, 10))[0] == b""
    assert (await loop.sock_recvfrom(far, 10))[0] == b""
    assert (await loop.sock_recvfrom_into(far, bytearray(3)))[0] == 0
    assert (await loop.sock_recvfrom(far, 0))[0] == b""
    assert (await loop.sock_recvfrom(far, 10))[0] == b"end"


async def test_a_sender_waits_for_room(loop: Loop, stack: ExitStack, tmp_path: Path) -> None:
    near = _bound(stack, socket.AF_UNIX, str(tmp_path / "near"))
    far = _bound(stack, socket.AF_UNIX, str(tmp_path / "far"))
    sent = 0
    with suppress(BlockingIOError):
        while True:
            near.sendto(b"%d" % sent, far.getsockname())
            sent += 1
    # The queue of the other socket is full; this one may be reported as writable all the same, as on every loop.
    near.connect(far.getsockname())
    waiting = loop.create_task(loop.sock_sendto(near, b"last", far.getsockname()))
    await turns()
    assert not waiting.done()
    for number in range(sent):
        assert (await loop.sock_recvfrom(far, 100))[0] == b"%d" % number
    assert await waiting == 4
    assert (await loop.sock_recvfrom(far, 100))[0] == b"last"


async def test_a_name_is_resolved(loop: Loop, stack: ExitStack) -> None:
    near, far = (_bound(stack, socket.AF_INET, ("127.0.0.1", 0)) for _ in range(2))
    await loop.sock_sendto(near, b"by name", ("localhost", far.getsockname()[1]))
    assert await loop.sock_recvfrom(far, 100) == (b"by name", near.getsockname())


@pytest.mark.parametrize(
    ("address", "error"),
    [
        (("127.0.0.1", -1), OverflowError),
        (("127.0.0.1", 65536), OverflowError),
        (("127.0.0.1",), TypeError),
        (("127.0.0.1", "80"), TypeError),
        ("127.0.0.1", TypeError),
        (None, TypeError),
        (("1.2.3.4.5", 80), OSError),
    ],
)
async def test_addresses_that_are_none(
    loop: Loop, stack: ExitStack, address: Any, error: type[Exception]
) -> None:
    sock = _bound(stack, socket.AF_INET, ("127.0.0.1", 0))
    with pytest.raises(error):
        await loop.sock_sendto(sock, b"x", address)
    sock.close()
    with pytest.raises(OSError):
        await loop.sock_recvfrom(sock, 1)


async def test_sizes_that_are_none(loop: Loop, stack: ExitStack) -> None:
    sock = _bound(stack, socket.AF_INET, ("127.0.0.1", 0))
    await loop.sock_sendto(sock, b"x", sock.getsockname())
    with pytest.raises(ValueError):
        await loop.sock_recvfrom(sock, -1)
    with pytest.raises(ValueError):
        await loop.sock_recvfrom_into(sock, bytearray(2), 3)
    with pytest.raises(ValueError):
        await loop.sock_recvfrom_into(sock, bytearray(2), -3)
    with pytest.raises((TypeError, BufferError)):
        await loop.sock_recvfrom_into(sock, b"not writable")  # type: ignore[arg-type]
    assert (await loop.sock_recvfrom(sock, 1))[0] == b"x"


async def test_an_answer_that_nobody_listens(loop: Loop, stack: ExitStack) -> None:
    sock = _bound(stack, socket.AF_INET, ("127.0.0.1", 0))
    with socket.socket(type=socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        address = closed.getsockname()
    await loop.sock_connect(sock, address)
    waiting = loop.create_task(loop.sock_recvfrom(sock, 1))
    await turns()
    sock.send(b"x")
    with pytest.raises(ConnectionRefusedError):
        await waiting
