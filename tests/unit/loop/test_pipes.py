"""Transports of pipes, terminals and other files."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import gc
import os
import random
import socket
import tty
import weakref
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.recording import Recording, turns, until

Loop = asyncio.AbstractEventLoop
native = pytest.mark.skipif(loops.MODULE != "ropewalk", reason="asks for what is better than asyncio")


@pytest.fixture
def pipe(stack: ExitStack) -> tuple[Any, Any]:
    """The reading and the writing end of a pipe, as files without buffers."""
    reader, writer = os.pipe()
    return stack.enter_context(os.fdopen(reader, "rb", 0)), stack.enter_context(os.fdopen(writer, "wb", 0))


@pytest.fixture
def terminal(stack: ExitStack) -> tuple[int, int]:
    """The two sides of a terminal that passes everything on as it is."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    stack.callback(os.close, ours)
    return ours, theirs


async def _fill(sink: Any, sending: Recording) -> None:
    """Writes until the pipe takes no more, and the protocol is to pause."""
    while "pause_writing" not in sending.calls:
        sink.write(bytes(65536))


async def test_a_pipe_s_two_ends(loop: Loop) -> None:
    reader, writer = os.pipe()
    source, receiving = await loop.connect_read_pipe(Recording, os.fdopen(reader, "rb", 0))
    sink, sending = await loop.connect_write_pipe(Recording, os.fdopen(writer, "wb", 0))
    data = random.Random(4).randbytes(1 << 20)
    sink.write(data)
    assert sending.calls[-1] == "pause_writing"
    await until(lambda: receiving.received == data)
    source.pause_reading()
    sink.write(b"later")
    await asyncio.sleep(0.001)
    assert len(receiving.received) == len(data)
    source.resume_reading()
    await until(lambda: receiving.received.endswith(b"later"))
    sink.write(b"end")
    sink.write_eof()
    await until(lambda: receiving.lost and sending.lost)
    assert receiving.received.endswith(b"laterend")
    assert (receiving.lost, sending.lost) == ([None], [None])
    assert receiving.calls[-2:] == ["eof_received", "connection_lost"]


async def test_a_pipe_whose_reader_is_gone(loop: Loop) -> None:
    reader, writer = os.pipe()
    sink, sending = await loop.connect_write_pipe(Recording, os.fdopen(writer, "wb", 0))
    os.close(reader)
    await until(lambda: sending.lost)
    sink.write(b"x")
    assert isinstance(sending.lost[0], BrokenPipeError) or sending.lost == [None]


async def test_a_file_is_no_pipe(loop: Loop, tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+b") as file:
        with pytest.raises(ValueError):
            await loop.connect_read_pipe(Recording, file)
        with pytest.raises(ValueError):
            await loop.connect_write_pipe(Recording, file)


async def test_an_exception_of_the_protocol_is_reported_and_reading_goes_on(
    loop: Loop, pipe: tuple[Any, Any], reports: list[dict[str, Any]]
) -> None:
    class Failing(Recording):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if data == b"bad":
                raise ValueError("bad")

    source, receiving = await loop.connect_read_pipe(Failing, pipe[0])
    pipe[1].write(b"bad")
    await until(lambda: receiving.received == b"bad")
    pipe[1].write(b"good")
    await until(lambda: receiving.received == b"badgood")
    assert not source.is_closing()
    assert [str(report["exception"]) for report in reports] == ["bad"]
    reports.clear()
    pipe[1].close()
    await until(lambda: receiving.lost)


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
def test_an_exception_that_ends_the_loop_leaves_the_rest_to_be_read(
    ending: type[BaseException], pipe: tuple[Any, Any], reports: list[dict[str, Any]]
) -> None:
    class Ending(Recording):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if len(self.received) == 1:
                raise ending

    with loops.fresh_loop(reports) as loop:
        _, receiving = loop.run_until_complete(loop.connect_read_pipe(Ending, pipe[0]))
        pipe[1].write(b"1")
        with pytest.raises(ending):
            loop.run_forever()
        pipe[1].write(b"2")
        pipe[1].close()
        loop.run_until_complete(until(lambda: receiving.lost))
        assert receiving.received == b"12"


async def test_pausing_from_within_a_callback(loop: Loop, pipe: tuple[Any, Any]) -> None:
    class Pausing(Recording):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.pause_reading()

    source, receiving = await loop.connect_read_pipe(Pausing, pipe[0])
    assert source.is_reading()
    for number in range(3):
        pipe[1].write(b"%d" % number)
        await until(lambda: not source.is_reading())
        pipe[1].write(b"+")
        await turns()
        assert receiving.received.endswith(b"%d" % number)
        source.resume_reading()
        await until(lambda: receiving.received.endswith(b"+"))
        source.resume_reading()
    pipe[1].close()
    await until(lambda: receiving.lost)
    assert receiving.received == b"0+1+2+"


async def test_another_protocol_takes_over(loop: Loop, pipe: tuple[Any, Any]) -> None:
    source, first = await loop.connect_read_pipe(Recording, pipe[0])
    second = Recording()
    assert source.get_protocol() is first
    source.set_protocol(second)
    pipe[1].write(b"x")
    pipe[1].close()
    await until(lambda: second.lost)
    assert (second.received, second.calls) == (b"x", ["data_received", "eof_received", "connection_lost"])
    assert first.calls == ["connection_made"]


async def test_closing_a_reader_tells_no_end(loop: Loop, pipe: tuple[Any, Any]) -> None:
    source, receiving = await loop.connect_read_pipe(Recording, pipe[0])
    pipe[1].write(b"never read")
    source.close()
    assert source.is_closing()
    await until(lambda: receiving.lost)
    assert receiving.calls == ["connection_made", "connection_lost"]
    assert pipe[0].closed


async def test_a_pipe_with_borders_keeps_them(loop: Loop, stack: ExitStack) -> None:
    # Each read of such a pipe gives one packet, so a short read does not mean that it is empty.
    reader, writer = os.pipe2(os.O_DIRECT)
    stack.callback(os.close, writer)
    received: list[bytes] = []

    class Packets(Recording):
        def data_received(self, data: bytes) -> None:
            received.append(data)

    source, receiving = await loop.connect_read_pipe(Packets, os.fdopen(reader, "rb", 0))
    for number in range(5):
        os.write(writer, b"%d" % number)
    await until(lambda: len(received) == 5)
    assert received == [b"%d" % number for number in range(5)]
    source.close()
    await until(lambda: receiving.lost)


async def test_the_last_bytes_of_a_writer_that_is_gone(loop: Loop, pipe: tuple[Any, Any]) -> None:
    fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, 1 << 20)
    data = random.Random(7).randbytes(900_000)
    assert os.write(pipe[1].fileno(), data) == len(data)
    pipe[1].close()
    _, receiving = await loop.connect_read_pipe(Recording, pipe[0])
    await until(lambda: receiving.lost)
    assert receiving.received == data
    assert receiving.calls[-2:] == ["eof_received", "connection_lost"]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_writer_notices_that_nobody_reads_any_more(
    loop: Loop, pipe: tuple[Any, Any], waits: bool
) -> None:
    sink, sending = await loop.connect_write_pipe(Recording, pipe[1])
    if waits:
        await _fill(sink, sending)
    await turns()
    assert not sending.lost
    pipe[0].close()
    await until(lambda: sending.lost)
    if waits:
        assert isinstance(sending.lost[0], BrokenPipeError)
    else:
        assert sending.lost == [None]
    assert sink.get_write_buffer_size() == 0


async def test_a_socket_s_peer_that_is_gone(loop: Loop) -> None:
    left, right = socket.socketpair()
    sink, sending = await loop.connect_write_pipe(Recording, os.fdopen(left.detach(), "wb", 0))
    sink.write(b"to a socket")
    right.settimeout(10)
    assert right.recv(100) == b"to a socket"
    right.close()
    await until(lambda: sending.lost)
    assert sending.lost == [None]


async def test_writes_before_and_after_the_end(loop: Loop, pipe: tuple[Any, Any], caplog: Any) -> None:
    sink, sending = await loop.connect_write_pipe(Recording, pipe[1])
    assert sink.can_write_eof()
    for data in (b"bytes", bytearray(b"+array"), memoryview(b"+view"), b""):
        sink.write(data)
    # Written at once: nothing has run since.
    assert os.read(pipe[0].fileno(), 100) == b"bytes+array+view"
    sink.write_eof()
    sink.write_eof()
    sink.close()
    assert sink.is_closing()
    for _ in range(10):
        sink.write(b"too late")
    assert "pipe closed by peer" in caplog.text
    await until(lambda: sending.lost)
    assert sending.lost == [None]
    assert os.read(pipe[0].fileno(), 100) == b""


async def test_flow_control_of_a_writer(loop: Loop, pipe: tuple[Any, Any]) -> None:
    sink, sending = await loop.connect_write_pipe(Recording, pipe[1])
    sink.set_write_buffer_limits(high=1000, low=10)
    assert sink.get_write_buffer_limits() == (10, 1000)
    with pytest.raises(ValueError, match="must be"):
        sink.set_write_buffer_limits(high=1, low=2)
    data = random.Random(5).randbytes(300_000)
    changing = bytearray(data)
    sink.write(changing)
    # What waits is what was written, whatever becomes of its memory.
    changing[:] = bytes(len(changing))
    sink.write(b"end")
    assert sending.calls[-1] == "pause_writing"
    assert sink.get_write_buffer_size() > 1000
    sink.close()
    received = bytearray()
    os.set_blocking(pipe[0].fileno(), False)
    while not received.endswith(b"end"):
        try:
            received += os.read(pipe[0].fileno(), 65536)
        except BlockingIOError:
            await asyncio.sleep(0)
    assert received == data + b"end"
    await until(lambda: sending.lost)
    assert sending.calls == ["connection_made", "pause_writing", "resume_writing", "connection_lost"]


async def test_aborting_a_writer_drops_what_waits(loop: Loop, pipe: tuple[Any, Any]) -> None:
    sink, sending = await loop.connect_write_pipe(Recording, pipe[1])
    await _fill(sink, sending)
    sink.abort()
    assert sink.get_write_buffer_size() == 0
    await until(lambda: sending.lost)
    assert sending.lost == [None]


async def test_a_terminal_s_two_sides(loop: Loop, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    _, receiving = await loop.connect_read_pipe(Recording, os.fdopen(os.dup(ours), "rb", 0))
    sink, sending = await loop.connect_write_pipe(Recording, os.fdopen(os.dup(ours), "wb", 0))
    sink.write(b"to the program")
    assert os.read(theirs, 100) == b"to the program"
    os.write(theirs, b"from the program")
    await until(lambda: receiving.received == b"from the program")
    os.close(theirs)
    # The kernel reports the end of the other side as an input/output error, which is no news.
    await until(lambda: receiving.lost)
    assert isinstance(receiving.lost[0], OSError)
    assert receiving.lost[0].errno == errno.EIO
    assert not sending.lost
    sink.close()
    await until(lambda: sending.lost)


async def test_what_is_typed_does_not_end_a_writer(loop: Loop, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    sink, sending = await loop.connect_write_pipe(Recording, os.fdopen(theirs, "wb", 0))
    os.write(ours, b"typed")
    await turns()
    sink.write(b"answer")
    assert os.read(ours, 100) == b"answer"
    # A terminal whose output nobody reads takes no more at some time.
    os.set_blocking(ours, False)
    await _fill(sink, sending)
    sink.write(b"!")
    received = b""
    while not received.endswith(b"!"):
        try:
            received = os.read(ours, 65536)
        except BlockingIOError:
            await asyncio.sleep(0)
    await until(lambda: "resume_writing" in sending.calls)
    sink.close()
    await until(lambda: sending.lost)
    assert sending.lost == [None]


@native
async def test_one_descriptor_for_reading_and_writing(loop: Loop, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    with closing(os.fdopen(theirs, "r+b", 0)):
        number = os.dup(ours)
        source, receiving = await loop.connect_read_pipe(Recording, os.fdopen(number, "rb", 0))
        keeps = os.fdopen(number, "wb", 0, closefd=False)
        sink, sending = await loop.connect_write_pipe(Recording, keeps)
        await _fill(sink, sending)
        os.write(theirs, b"still read")
        await until(lambda: receiving.received == b"still read")
        os.set_blocking(theirs, False)
        while "resume_writing" not in sending.calls:
            try:
                os.read(theirs, 65536)
            except BlockingIOError:
                await asyncio.sleep(0)
        sink.abort()
        await until(lambda: sending.lost)
        os.write(theirs, b"!")
        await until(lambda: receiving.received == b"still read!")
        source.close()
        await until(lambda: receiving.lost)


async def test_a_device_that_cannot_be_waited_for(loop: Loop) -> None:
    with Path("/dev/null").open("wb", 0) as null:
        sink, sending = await loop.connect_write_pipe(Recording, null)
        sink.write(b"x" * 100_000)
        assert sink.get_write_buffer_size() == 0
        sink.close()
        await until(lambda: sending.lost)


async def test_a_named_pipe(loop: Loop, tmp_path: Path, stack: ExitStack) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = stack.enter_context(os.fdopen(os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK), "rb", 0))
    source, receiving = await loop.connect_read_pipe(Recording, reading)
    await turns()
    assert not receiving.lost, "nobody has written yet"
    with (tmp_path / "pipe").open("wb", 0) as writing:
        writing.write(b"by name")
    await until(lambda: receiving.lost)
    assert receiving.received == b"by name"
    assert source.get_extra_info("pipe") is reading


async def test_a_blocking_program_at_the_other_end(loop: Loop) -> None:
    command = "read line; sleep 0.05; echo $line; cat"
    child = await asyncio.create_subprocess_shell(command, stdin=-1, stdout=-1)
    data = b"line\n" + random.Random(6).randbytes(2 << 20)
    output, _ = await child.communicate(data)
    assert output == data


@native
@pytest.mark.parametrize("side", ["reads", "writes"])
async def test_a_pipe_closed_by_other_code_does_not_touch_the_next_file(
    loop: Loop, pipe: tuple[Any, Any], stack: ExitStack, side: str, reports: list[dict[str, Any]]
) -> None:
    if side == "reads":
        transport, protocol = await loop.connect_read_pipe(Recording, pipe[0])
    else:
        transport, protocol = await loop.connect_write_pipe(Recording, pipe[1])
    ours = pipe[0] if side == "reads" else pipe[1]
    number = ours.fileno()
    ours.close()
    left, right = socket.socketpair()
    stack.enter_context(left)
    stack.enter_context(right)
    if number not in (left.fileno(), right.fileno()):
        stack.callback(os.close, os.dup2(left.fileno(), number))
    elif number == right.fileno():
        left, right = right, left
    right.send(b"for somebody else")
    if side == "reads":
        await turns()
        transport._read_rest()
    else:
        transport.write(b"from somebody else")
    await until(lambda: protocol.lost)
    assert protocol.lost[0].errno == errno.EBADF
    assert left.recv(100) == b"for somebody else"
    assert protocol.received == b""
    reports.clear()


@native
async def test_a_cycle_through_a_pipe_is_collected(loop: Loop, pipe: tuple[Any, Any]) -> None:
    async def alive(make: Any, end: Any) -> list[weakref.ref[Any]]:
        transport, protocol = await make(Recording, end)
        transport.itself = transport
        transport.close()
        await until(lambda: protocol.lost)
        return [weakref.ref(transport), weakref.ref(protocol)]

    found = await alive(loop.connect_read_pipe, pipe[0]) + await alive(loop.connect_write_pipe, pipe[1])
    await turns()
    gc.collect()
    assert [ref() for ref in found] == [None] * 4


@native
async def test_a_forgotten_pipe_is_closed_with_a_warning(loop: Loop, pipe: tuple[Any, Any]) -> None:
    transport, _ = await loop.connect_write_pipe(Recording, pipe[1])
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        type(transport).__del__(transport)
    assert pipe[1].closed


async def test_their_classes(loop: Loop, pipe: tuple[Any, Any]) -> None:
    source, receiving = await loop.connect_read_pipe(Recording, pipe[0])
    sink, sending = await loop.connect_write_pipe(Recording, pipe[1])
    assert isinstance(source, asyncio.ReadTransport)
    assert not isinstance(source, asyncio.WriteTransport)
    assert isinstance(sink, asyncio.WriteTransport)
    sink.close()
    await until(lambda: receiving.lost and sending.lost)
    for transport in (source, sink):
        assert "closed" in repr(transport)


@native
async def test_the_pipes_of_a_child_are_native(loop: Loop) -> None:
    import ropewalk.loop

    transport, _ = await loop.subprocess_exec(asyncio.SubprocessProtocol, "cat")
    assert isinstance(transport.get_pipe_transport(0), ropewalk.loop.WritePipeTransport)
    for number in (1, 2):
        assert isinstance(transport.get_pipe_transport(number), ropewalk.loop.ReadPipeTransport)
    transport.close()
    await until(lambda: transport.get_returncode() is not None)
