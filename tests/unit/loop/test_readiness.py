"""`add_reader` and `add_writer`: which callback runs when a descriptor is ready, and when one is gone."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.recording import turns, until

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]


def _nothing(*_: Any) -> None:
    pass


async def test_a_reader_is_called_while_there_is_something_to_read(loop: Loop, pair: Pair) -> None:
    left, right = pair
    seen: list[bytes] = []
    loop.add_reader(left, lambda: seen.append(left.recv(1)))
    await turns()
    assert seen == []
    right.send(b"abc")
    await until(lambda: len(seen) == 3)
    assert seen == [b"a", b"b", b"c"]
    assert loop.remove_reader(left) is True
    assert loop.remove_reader(left) is False


async def test_a_reader_that_does_not_read_is_called_again(loop: Loop, pair: Pair) -> None:
    # Readiness is a level, not an edge.
    left, right = pair
    calls: list[int] = []
    loop.add_reader(left, calls.append, 1)
    right.send(b"x")
    await until(lambda: len(calls) >= 5)
    left.recv(1)
    await turns()
    count = len(calls)
    await turns()
    assert len(calls) == count
    loop.remove_reader(left)


async def test_what_was_there_before_the_registration_counts(loop: Loop, pair: Pair) -> None:
    left, right = pair
    right.send(b"x")
    for _ in range(3):
        ready = loop.create_future()
        loop.add_reader(left, lambda ready=ready: ready.done() or ready.set_result(None))
        await ready
        loop.remove_reader(left)


async def test_a_writer_is_called_while_there_is_room(loop: Loop, pair: Pair) -> None:
    left, right = pair
    calls: list[int] = []
    loop.add_writer(left, calls.append, 1)
    await until(lambda: len(calls) >= 3)
    loop.remove_writer(left)
    _fill(left)
    await turns()
    calls.clear()
    loop.add_writer(left, calls.append, 1)
    await turns()
    assert calls == []
    _drain(right)
    await until(lambda: calls)
    assert loop.remove_writer(left) is True
    assert loop.remove_writer(left) is False


async def test_the_last_registration_counts(loop: Loop, pair: Pair) -> None:
    left, right = pair
    seen: list[str] = []
    for add, remove in ((loop.add_reader, loop.remove_reader), (loop.add_writer, loop.remove_writer)):
        add(left, seen.append, "replaced")
        add(left, seen.append, "current")
        right.send(b"x")
        await until(lambda: seen)
        remove(left)
        assert set(seen) == {"current"}
        seen.clear()


async def test_a_replacement_takes_effect_within_a_turn(loop: Loop, pair: Pair) -> None:
    left, right = pair
    seen: list[str] = []
    loop.add_reader(left, seen.append, "first")
    right.send(b"x")
    await until(lambda: seen)
    loop.add_reader(left, seen.append, "second")
    seen.clear()
    await until(lambda: len(seen) > 2)
    loop.remove_reader(left)
    assert set(seen) == {"second"}


async def test_both_directions_of_one_descriptor(loop: Loop, pair: Pair) -> None:
    left, right = pair
    seen: list[str] = []
    loop.add_reader(left, seen.append, "read")
    loop.add_writer(left, seen.append, "write")
    await until(lambda: "write" in seen)
    assert "read" not in seen
    assert loop.remove_writer(left) is True
    seen.clear()
    right.send(b"x")
    await until(lambda: "read" in seen)
    assert "write" not in seen
    loop.add_writer(left, seen.append, "write again")
    await until(lambda: "write again" in seen)
    assert loop.remove_reader(left) is True
    seen.clear()
    await until(lambda: "write again" in seen)
    assert "read" not in seen
    assert loop.remove_writer(left) is True


async def test_a_peer_that_is_gone_wakes_both(loop: Loop, pair: Pair) -> None:
    left, right = pair
    _fill(left)
    seen: set[str] = set()
    loop.add_reader(left, seen.add, "read")
    loop.add_writer(left, seen.add, "write")
    await turns()
    assert seen == set()
    right.close()
    await until(lambda: seen == {"read", "write"})
    loop.remove_reader(left)
    loop.remove_writer(left)


async def test_callbacks_that_remove_each_other(loop: Loop) -> None:
    # Both are ready at once; whichever runs first takes the other out, which must not run any more.
    for _ in range(10):
        pairs = [socket.socketpair() for _ in range(2)]
        seen: list[int] = []

        def ready(me: int, pairs: list[Pair] = pairs, seen: list[int] = seen) -> None:
            seen.append(me)
            loop.remove_reader(pairs[1 - me][0])
            pairs[me][0].recv(1)

        for me in (0, 1):
            loop.add_reader(pairs[me][0], ready, me)
            pairs[me][1].send(b"x")
        await until(lambda seen=seen: seen)
        await turns()
        assert len(seen) == 1
        loop.remove_reader(pairs[seen[0]][0])
        for left, right in pairs:
            left.close()
            right.close()


async def test_a_callback_removes_itself_and_its_other_half(loop: Loop, pair: Pair) -> None:
    left, right = pair
    seen: list[str] = []

    def both(name: str) -> None:
        seen.append(name)
        loop.remove_reader(left)
        loop.remove_writer(left)

    loop.add_reader(left, both, "read")
    loop.add_writer(left, both, "write")
    right.send(b"x")
    await until(lambda: seen)
    await turns()
    assert len(seen) == 1


async def test_a_callback_adds_another(loop: Loop, pair: Pair) -> None:
    left, right = pair
    seen: list[str] = []

    def first() -> None:
        loop.add_reader(left, second)

    def second() -> None:
        seen.append("second")
        left.recv(1)
        loop.remove_reader(left)

    loop.add_reader(left, first)
    right.send(b"x")
    await until(lambda: seen)
    assert seen == ["second"]


async def test_readers_do_not_starve_callbacks_and_timers(loop: Loop, pair: Pair) -> None:
    left, right = pair
    right.send(b"x")
    reads: list[int] = []
    loop.add_reader(left, reads.append, 1)
    fired = loop.create_future()
    loop.call_later(0.002, fired.set_result, None)
    await fired
    await turns()
    loop.remove_reader(left)
    assert reads


async def test_callbacks_do_not_starve_readers(loop: Loop, pair: Pair) -> None:
    left, right = pair
    ready = loop.create_future()

    def spin() -> None:
        if not ready.done():
            loop.call_soon(spin)

    for _ in range(3):
        spin()
    loop.add_reader(left, lambda: ready.done() or ready.set_result(None))
    right.send(b"x")
    await ready
    loop.remove_reader(left)


async def test_many_descriptors_are_served_fairly(loop: Loop) -> None:
    pairs = [socket.socketpair() for _ in range(60)]
    counts = [0] * len(pairs)

    def count(number: int) -> None:
        counts[number] += 1

    for number, (left, right) in enumerate(pairs):
        loop.add_reader(left, count, number)
        right.send(b"x")
    await until(lambda: max(counts) >= 20)
    # None is drained, so each is ready at every turn.
    assert min(counts) >= max(counts) - 2
    for left, right in pairs:
        loop.remove_reader(left)
        left.close()
        right.close()


@pytest.mark.parametrize("fd", [-1, 10**6])
def test_a_number_that_is_no_descriptor(loop: Loop, fd: int) -> None:
    error = ValueError if fd < 0 else OSError
    for add in (loop.add_reader, loop.add_writer):
        with pytest.raises(error):
            add(fd, _nothing)


@pytest.mark.parametrize("file", [None, "0", 1.5, object()])
def test_a_thing_that_has_no_descriptor(loop: Loop, file: Any) -> None:
    for method in (loop.add_reader, loop.add_writer):
        with pytest.raises(ValueError):
            method(file, _nothing)
    for remove in (loop.remove_reader, loop.remove_writer):
        with pytest.raises(ValueError):
            remove(file)


def test_a_closed_socket_is_refused(loop: Loop) -> None:
    closed = socket.socket()
    closed.close()
    for method in (loop.add_reader, loop.add_writer):
        with pytest.raises(ValueError):
            method(closed, _nothing)


def test_a_number_that_was_closed_is_refused_and_forgotten(loop: Loop) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    for _ in range(2):
        with pytest.raises(OSError, match="Bad file descriptor"):
            loop.add_reader(reader, _nothing)
    assert loop.remove_reader(reader) is False


def test_a_regular_file_is_refused(loop: Loop, tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+b") as file:
        with pytest.raises(PermissionError):
            loop.add_reader(file, _nothing)
        with pytest.raises(PermissionError):
            loop.add_writer(file, _nothing)
        assert loop.remove_reader(file) is False


async def test_a_pipe_a_number_and_an_object(loop: Loop) -> None:
    reader, writer = os.pipe()

    class File:
        def fileno(self) -> int:
            return reader

    seen: list[str] = []
    loop.add_reader(File(), seen.append, "object")
    os.write(writer, b"x")
    await until(lambda: seen)
    # The object and the number are the same registration.
    loop.add_reader(reader, seen.append, "number")
    seen.clear()
    await until(lambda: seen)
    assert set(seen) == {"number"}
    assert loop.remove_reader(File()) is True
    os.close(reader)
    os.close(writer)


async def test_a_number_that_is_used_again(loop: Loop) -> None:
    # The kernel forgets a closed descriptor; a loop that remembers it must still notice its successor.
    seen: list[str] = []
    left, right = socket.socketpair()
    number = left.fileno()
    loop.add_reader(left, seen.append, "old")
    await turns()
    left.close()
    right.close()
    assert loop.remove_reader(number) is True
    left, right = socket.socketpair()
    if right.fileno() == number:
        left, right = right, left
    assert left.fileno() == number
    loop.add_reader(left, seen.append, "new")
    right.send(b"x")
    await until(lambda: seen)
    assert set(seen) == {"new"}
    loop.remove_reader(left)
    left.close()
    right.close()


@pytest.mark.skipif(
    loops.MODULE != "ropewalk", reason="asyncio tells the kernel nothing if the events are the same"
)
async def test_a_registration_after_a_close_without_removal(loop: Loop) -> None:
    seen: list[str] = []
    left, right = socket.socketpair()
    number = left.fileno()
    loop.add_reader(left, seen.append, "old")
    await turns()
    left.close()
    right.close()
    left, right = socket.socketpair()
    if right.fileno() == number:
        left, right = right, left
    assert left.fileno() == number
    right.send(b"x")
    loop.add_reader(left, seen.append, "new")
    await until(lambda: seen)
    assert set(seen) == {"new"}
    loop.remove_reader(left)
    left.close()
    right.close()


async def test_a_duplicate_keeps_its_own_registration(loop: Loop, pair: Pair) -> None:
    left, right = pair
    seen: set[str] = set()
    with left.dup() as copy:
        loop.add_reader(left, seen.add, "original")
        loop.add_reader(copy, seen.add, "copy")
        right.send(b"x")
        await until(lambda: seen == {"original", "copy"})
        assert loop.remove_reader(copy) is True
        await turns()
        seen.clear()
        await until(lambda: seen)
        assert seen == {"original"}
    loop.remove_reader(left)


async def test_a_transport_s_descriptor_is_refused(loop: Loop, pair: Pair) -> None:
    left, _ = pair
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=left.dup())
    sock = transport.get_extra_info("socket")
    for method in (loop.add_reader, loop.add_writer):
        with pytest.raises(RuntimeError, match="is used by transport"):
            method(sock.fileno(), _nothing)
    for remove in (loop.remove_reader, loop.remove_writer):
        with pytest.raises(RuntimeError, match="is used by transport"):
            remove(sock.fileno())
    transport.abort()
    await until(lambda: sock.fileno() == -1)


def test_registrations_last_over_a_stop(loop: Loop, pair: Pair) -> None:
    left, right = pair
    seen: list[int] = []
    loop.add_reader(left, seen.append, 1)
    loop.call_soon(loop.stop)
    loop.run_forever()
    right.send(b"x")
    loop.run_until_complete(until(lambda: seen))
    assert loop.remove_reader(left) is True


def test_closing_with_registrations_leaves_the_descriptors_alone(loop: Loop, pair: Pair) -> None:
    left, right = pair
    loop.add_reader(left, _nothing)
    loop.add_writer(left, _nothing)
    loop.close()
    right.send(b"still open")
    assert left.recv(100) == b"still open"


@pytest.mark.parametrize("method", ["add_reader", "add_writer"])
def test_a_registration_lets_go_of_what_it_holds(loop: Loop, pair: Pair, method: str) -> None:
    class Payload:
        pass

    left, _ = pair
    payload = Payload()
    before = sys.getrefcount(payload)
    getattr(loop, method)(left, _nothing, payload)
    assert sys.getrefcount(payload) > before
    getattr(loop, method)(left, _nothing)
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    assert sys.getrefcount(payload) == before
    getattr(loop, method)(left, _nothing, payload)
    getattr(loop, method.replace("add", "remove"))(left)
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    assert sys.getrefcount(payload) == before


def _fill(sock: socket.socket) -> int:
    total = 0
    try:
        while True:
            total += sock.send(bytes(65536))
    except BlockingIOError:
        return total


def _drain(sock: socket.socket) -> int:
    total = 0
    try:
        while chunk := sock.recv(1 << 20):
            total += len(chunk)
    except BlockingIOError:
        pass
    return total


@pytest.mark.parametrize("side", ["reader", "writer"])
def test_what_was_closed_first_is_removed_by_its_object(loop: Loop, side: str) -> None:
    left, right = socket.socketpair()
    getattr(loop, f"add_{side}")(left, _never)
    left.close()
    assert getattr(loop, f"remove_{side}")(left) is True
    with pytest.raises(ValueError, match="-1"):
        getattr(loop, f"remove_{side}")(left)
    right.close()


def _never() -> None:
    pytest.fail("it was removed")


@pytest.mark.parametrize("busy", [0, 1, 31, 32, 33, 64, 100, 1_000, 5_000])
async def test_a_busy_loop_sees_in_the_next_turn_what_is_ready(loop: Loop, pair: Pair, busy: int) -> None:
    left, right = pair
    seen: list[bytes] = []
    loop.add_reader(left, lambda: seen.append(left.recv(100)))
    for number in range(3):
        for _ in range(busy):
            await asyncio.sleep(0)
        assert len(seen) == number
        right.send(b"x")
        # The first turn resumes this task before it calls the reader.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(seen) == number + 1
    loop.remove_reader(left)


async def test_a_busy_loop_sees_what_becomes_ready_by_a_registration(loop: Loop, pair: Pair) -> None:
    left, right = pair
    right.send(b"x")
    seen: list[bytes] = []
    for _ in range(1_000):
        await asyncio.sleep(0)
    loop.add_reader(left, lambda: seen.append(left.recv(100)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == [b"x"]
    loop.remove_reader(left)


def test_a_busy_loop_sees_what_is_ready_in_whichever_thread_runs_it(loop: Loop, pair: Pair) -> None:
    left, right = pair
    seen: list[bytes] = []

    async def work() -> None:
        for _ in range(2_000):
            await asyncio.sleep(0)
        right.send(b"x")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    loop.add_reader(left, lambda: seen.append(left.recv(100)))
    for number in range(1, 5):
        if number % 2:
            loop.run_until_complete(work())
        else:
            with ThreadPoolExecutor(1) as threads:
                threads.submit(loop.run_until_complete, work()).result()
        assert len(seen) == number
    loop.remove_reader(left)


async def test_a_busy_loop_sees_what_another_thread_sends(loop: Loop, pair: Pair) -> None:
    left, right = pair
    seen: list[bytes] = []
    loop.add_reader(left, lambda: seen.append(left.recv(100)))
    for number in range(1, 20):
        thread = threading.Timer(0.005, right.send, [b"x"])
        thread.start()
        deadline = time.monotonic() + 30
        while len(seen) < number:
            assert time.monotonic() < deadline
            await asyncio.sleep(0)
        thread.join()
    loop.remove_reader(left)


def test_a_busy_loop_works_without_a_free_descriptor(loop: Loop, pair: Pair) -> None:
    left, right = pair
    seen: list[bytes] = []

    async def work() -> None:
        for _ in range(1_000):
            await asyncio.sleep(0)
        right.send(b"x")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    loop.add_reader(left, lambda: seen.append(left.recv(100)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        loop.run_until_complete(work())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert seen == [b"x"]
    loop.remove_reader(left)


async def test_a_loop_that_sleeps_between_short_bursts_of_work_opens_no_descriptor(
    loop: Loop, pair: Pair
) -> None:
    left, right = pair
    left.setblocking(False)
    before = loops.descriptors()
    for _ in range(100):
        await turns(10)
        loop.call_later(0.001, right.send, b"x")
        assert await loop.sock_recv(left, 1) == b"x"
    assert loops.descriptors() == before
