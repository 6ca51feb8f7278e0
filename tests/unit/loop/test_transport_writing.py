"""Writing to a stream transport: all data arrive in order, and the protocol is paused above the mark."""

from __future__ import annotations

import asyncio
import random
import socket
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.recording import Connection, Recording, connected, connected_to_socket, turns, until

Loop = asyncio.AbstractEventLoop
#: More than the kernel's buffers of a connection take.
LARGE = 8 << 20
families = pytest.mark.parametrize("family", ["tcp", "unix"])
only_ropewalk = pytest.mark.skipif(loops.MODULE != "ropewalk", reason="asyncio fails at it, or promises less")


async def _arrives(connection: Connection, data: bytes) -> None:
    await until(lambda: len(connection.far.received) >= len(data))
    assert connection.far.received == data
    connection.far.received.clear()


@families
@pytest.mark.parametrize("size", [1, 100, 70_000, LARGE])
async def test_what_is_written_arrives(loop: Loop, family: str, size: int) -> None:
    data = random.Random(size).randbytes(size)
    async with connected(family=family) as connection:
        connection.transport.write(data)
        await _arrives(connection, data)
        assert connection.transport.get_write_buffer_size() == 0


@families
async def test_writes_keep_their_order(loop: Loop, family: str) -> None:
    pick = random.Random(3)
    pieces = [pick.randbytes(pick.choice([1, 10, 1000, 100_000])) for _ in range(300)]
    async with connected(family=family) as connection:
        for number, piece in enumerate(pieces):
            if number % 3:
                connection.transport.write(piece)
            else:
                connection.transport.writelines(
                    [piece[:5], piece[5:9] or b"", piece[9:]][: 1 + 2 * (len(piece) > 9)]
                )
                if 5 < len(piece) <= 9:
                    connection.transport.write(piece[5:])
        await _arrives(connection, b"".join(pieces))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("size", [10, LARGE])
async def test_kinds_of_data(loop: Loop, kind: Any, size: int) -> None:
    data = random.Random(size).randbytes(size)
    async with connected() as connection:
        connection.transport.write(kind(data))
        await _arrives(connection, data)
        connection.transport.writelines([kind(data), kind(b"end")])
        await _arrives(connection, data + b"end")


@pytest.mark.parametrize("size", [10, 5000])
async def test_a_buffer_that_was_sent_is_the_caller_s_again(loop: Loop, size: int) -> None:
    async with connected() as connection:
        buffer = bytearray(b"x" * size)
        connection.transport.write(buffer)
        await _arrives(connection, b"x" * size)
        buffer[:] = b"y" * size
        buffer.append(0)


@only_ropewalk
@pytest.mark.parametrize("size", [10, 5000, LARGE])
@pytest.mark.parametrize("behind", [0, LARGE])
async def test_a_buffer_may_be_changed_after_the_write(loop: Loop, size: int, behind: int) -> None:
    async with connected() as connection:
        connection.transport.write(bytes(behind))
        buffer = bytearray(b"x" * size)
        connection.transport.write(buffer)
        buffer[:] = b"y" * size
        buffer.append(0)
        other = bytearray(b"z" * size)
        connection.transport.writelines([other, memoryview(other)])
        other[:] = b"y" * size
        await _arrives(connection, bytes(behind) + b"x" * size + b"z" * size * 2)


@pytest.mark.parametrize("data", ["text", None, 5, ["list"]])
async def test_data_of_a_wrong_type(loop: Loop, data: Any) -> None:
    async with connected() as connection:
        with pytest.raises(TypeError):
            connection.transport.write(data)
        connection.transport.write(b"goes on")
        await _arrives(connection, b"goes on")


async def test_nothing_is_no_data(loop: Loop) -> None:
    async with connected() as connection:
        connection.transport.write(b"")
        connection.transport.writelines([])
        connection.transport.write(b"x")
        await _arrives(connection, b"x")


@families
@pytest.mark.parametrize("count", [1, 2, 1023, 1024, 1025, 5000])
async def test_many_pieces(loop: Loop, family: str, count: int) -> None:
    # The kernel takes 1024 pieces with one call.
    pieces = [b"%d," % number for number in range(count)]
    async with connected(family=family) as connection:
        connection.transport.writelines(pieces)
        await _arrives(connection, b"".join(pieces))
        connection.transport.writelines(iter(pieces) if loops.MODULE == "ropewalk" else pieces)
        await _arrives(connection, b"".join(pieces))


async def test_many_large_pieces(loop: Loop) -> None:
    pieces = [bytes([number]) * 40_000 for number in range(250)]
    async with connected() as connection:
        connection.transport.writelines(pieces)
        connection.transport.write(b"end")
        await _arrives(connection, b"".join([*pieces, b"end"]))


async def test_the_size_of_what_waits(loop: Loop) -> None:
    async with connected_to_socket(protocol := Recording()) as peer:
        transport = protocol.transport
        assert transport.get_write_buffer_size() == 0
        transport.write(bytes(LARGE))
        waiting = transport.get_write_buffer_size()
        assert 0 < waiting <= LARGE
        transport.write(bytes(1000))
        assert transport.get_write_buffer_size() == waiting + 1000
        transport.writelines([bytes(10), bytes(20)])
        assert transport.get_write_buffer_size() == waiting + 1030
        await _drain(loop, peer, LARGE + 1030)
        assert transport.get_write_buffer_size() == 0


async def _drain(loop: Loop, peer: socket.socket, count: int) -> None:
    while count:
        count -= len(await loop.sock_recv(peer, min(count, 1 << 20)))
    await turns()


async def test_the_protocol_is_paused_and_resumed(loop: Loop) -> None:
    async with connected_to_socket(protocol := Recording()) as peer:
        transport = protocol.transport
        for _ in range(3):
            protocol.calls.clear()
            transport.write(bytes(LARGE))
            assert protocol.calls == ["pause_writing"]
            transport.write(bytes(LARGE))
            assert protocol.calls == ["pause_writing"]
            await _drain(loop, peer, 2 * LARGE)
            await until(lambda: transport.get_write_buffer_size() == 0)
            assert protocol.calls == ["pause_writing", "resume_writing"]


async def test_a_write_that_the_kernel_takes_pauses_nobody(loop: Loop) -> None:
    async with connected() as connection:
        connection.transport.set_write_buffer_limits(0)
        connection.transport.write(b"small")
        await _arrives(connection, b"small")
        assert connection.near.calls == ["connection_made"]


async def test_water_marks(loop: Loop) -> None:
    async with connected_to_socket(protocol := Recording()) as peer:
        transport = protocol.transport
        transport.write(bytes(LARGE))
        waiting = transport.get_write_buffer_size()
        await _drain(loop, peer, LARGE)
        protocol.calls.clear()
        # The mark itself is still allowed; one byte more is not.
        transport.set_write_buffer_limits(high=waiting + 100, low=10)
        transport.write(bytes(LARGE))
        rest = waiting + 100 - transport.get_write_buffer_size()
        transport.write(bytes(rest))
        assert protocol.calls == []
        transport.write(b"x")
        assert protocol.calls == ["pause_writing"]
        transport.set_write_buffer_limits(high=0)
        await _drain(loop, peer, LARGE + rest + 1)
        await until(lambda: protocol.calls == ["pause_writing", "resume_writing"])


async def test_the_limits_are_told(loop: Loop) -> None:
    async with connected() as connection:
        transport = connection.transport
        assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)
        transport.set_write_buffer_limits(high=1000)
        assert transport.get_write_buffer_limits() == (250, 1000)
        transport.set_write_buffer_limits(low=1000)
        assert transport.get_write_buffer_limits() == (1000, 4000)
        transport.set_write_buffer_limits(high=1000, low=7)
        assert transport.get_write_buffer_limits() == (7, 1000)
        transport.set_write_buffer_limits(high=0)
        assert transport.get_write_buffer_limits() == (0, 0)
        for high, low in ((10, 20), (-1, None), (10, -1)):
            with pytest.raises(ValueError):
                transport.set_write_buffer_limits(high, low)
        transport.set_write_buffer_limits()
        assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)


async def test_writing_from_resume_writing(loop: Loop) -> None:
    class Feeding(Recording):
        left = 4

        def resume_writing(self) -> None:
            super().resume_writing()
            if self.left:
                self.left -= 1
                self.transport.write(bytes(LARGE))

    async with connected(Feeding()) as connection:
        connection.transport.write(bytes(LARGE))
        await until(lambda: len(connection.far.received) == 5 * LARGE)
        await until(lambda: connection.near.calls.count("resume_writing") == 5)
        assert connection.near.calls[1:] == ["pause_writing", "resume_writing"] * 5


async def test_a_stream_writer_waits_for_its_reader(
    loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    left, right = pair
    _, writer = await asyncio.open_connection(sock=left)
    writer.write(bytes(LARGE))
    draining = loop.create_task(writer.drain())
    await turns()
    assert not draining.done()
    await _drain(loop, right, LARGE)
    await draining
    writer.close()
    await writer.wait_closed()


async def test_a_write_after_close_goes_nowhere(loop: Loop) -> None:
    async with connected() as connection:
        connection.transport.write(b"before")
        connection.transport.close()
        for _ in range(3):
            connection.transport.write(b"after")
        await until(lambda: connection.far.lost)
        assert connection.far.received == b"before"


@only_ropewalk
async def test_writelines_after_close_goes_nowhere(loop: Loop) -> None:
    async with connected() as connection:
        connection.transport.close()
        connection.transport.writelines([b"after", b"after"])
        await until(lambda: connection.far.lost)
        assert connection.far.received == b""


async def test_a_write_in_connection_made(loop: Loop) -> None:
    class Greeting(Recording):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.write(b"hello ")
            transport.writelines([b"to ", b"you"])

    async with connected(Greeting()) as connection:
        await _arrives(connection, b"hello to you")


async def test_small_writes_of_one_turn_arrive_whole(loop: Loop) -> None:
    async with connected() as connection:
        for number in range(1000):
            connection.transport.write(b"%04d" % number)
        await _arrives(connection, b"".join(b"%04d" % number for number in range(1000)))


async def test_a_peer_that_reads_nothing(loop: Loop) -> None:
    async with connected_to_socket(protocol := Recording()):
        protocol.transport.write(bytes(LARGE))
        await asyncio.sleep(0.001)
        assert protocol.calls[-1] == "pause_writing"
        protocol.transport.abort()
        await until(lambda: protocol.lost)
        assert protocol.lost == [None]


@pytest.mark.parametrize("ended", [False, True], ids=["at once", "after the end"])
async def test_many_writes_to_a_lost_connection_are_logged(
    loop: Loop, caplog: pytest.LogCaptureFixture, ended: bool
) -> None:
    async with connected() as connection:
        transport = connection.transport
        transport.abort()
        if ended:
            await until(lambda: bool(connection.near.lost))
        for _ in range(4):
            transport.write(b"x")
        assert not caplog.records
        for _ in range(4):
            transport.write(b"x")
        assert "socket.send() raised exception." in caplog.text
