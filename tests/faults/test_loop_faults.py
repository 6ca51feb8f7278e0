"""The loop without descriptors, with misbehaving peers, and with thousands of connections."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.loop import loops
from tests.unit.loop.loops import ROOT, descriptors, fresh_loop, left_open
from tests.unit.loop.recording import Recording, until

Loop = asyncio.AbstractEventLoop
only_ropewalk = pytest.mark.skipif(
    loops.MODULE != "ropewalk", reason="asyncio fails otherwise, or cleans up less"
)


@pytest.fixture
def loop() -> Iterator[Loop]:
    reports: list[dict[str, Any]] = []
    before = descriptors()
    with fresh_loop(reports) as loop:
        yield loop
    assert left_open(before) == {}
    assert reports == []


def _program(code: str) -> str:
    """What a program of its own says, which must end well."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_accepting_without_descriptors_backs_off_and_recovers() -> None:
    said = _program(
        """
        import asyncio, os, resource, socket
        from tests.unit.loop.loops import new_event_loop
        from tests.unit.loop.recording import Recording, until

        reports, served = [], []

        class Echo(Recording):
            def connection_made(self, transport):
                super().connection_made(transport)
                served.append(self)
            def data_received(self, data):
                self.transport.write(data)

        async def main():
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: reports.append(context))
            server = await loop.create_server(Echo, "127.0.0.1", 0, backlog=5)
            address = server.sockets[0].getsockname()
            clients = [socket.create_connection(address) for _ in range(3)]
            await until(lambda: len(served) == 3)
            waiting = [socket.socket() for _ in range(4)]
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 10, 4096))
            hoard = []
            try:
                while True:
                    hoard.append(os.dup(0))
            except OSError:
                pass
            for client in waiting:
                client.connect(address)
            await until(lambda: reports)
            # It does not spin on a listener that stays ready: a turn's reports are all, for a second.
            for _ in range(100):
                await asyncio.sleep(0.0005)
            assert len(reports) <= 15, len(reports)
            assert "out of system resource" in reports[0]["message"]
            assert isinstance(reports[0]["exception"], OSError)
            assert len(served) == 3
            # Who is connected is served all the while.
            for client in clients:
                client.setblocking(False)
                await loop.sock_sendall(client, b"served")
                assert await loop.sock_recv(client, 100) == b"served"
            for fd in hoard:
                os.close(fd)
            await until(lambda: len(served) == 7)
            for client in waiting:
                client.setblocking(False)
                await loop.sock_sendall(client, b"served")
                assert await loop.sock_recv(client, 100) == b"served"
            for client in clients + waiting:
                client.close()
            await until(lambda: all(peer.lost for peer in served))
            server.close()
            await server.wait_closed()
            print("recovered")

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(main())
        """
    )
    assert said == "recovered\n"


@only_ropewalk
def test_a_loop_without_descriptors_is_an_error_that_leaks_nothing() -> None:
    said = _program(
        """
        import os, resource
        from tests.unit.loop.loops import new_event_loop
        new_event_loop().close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 4096))
        hoard = []
        def fill():
            try:
                while True:
                    hoard.append(os.dup(0))
            except OSError:
                return len(hoard)
        full = fill()
        for spare in (0, 1):
            for _ in range(spare):
                os.close(hoard.pop())
            try:
                new_event_loop().close()
            except OSError:
                print("refused")
            assert fill() == full
        for _ in range(10):
            os.close(hoard.pop())
        new_event_loop().close()
        """
    )
    assert said == "refused\nrefused\n"


@pytest.mark.parametrize("end", ["close", "abort", "peer", "reset"])
def test_thousands_of_connections_leave_nothing(loop: Loop, end: str) -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Watched(Recording):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            alive.add(self)
            alive.add(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            nonlocal ended
            ended += 1

    ended = 0

    async def batch(address: tuple[str, int]) -> None:
        made = await asyncio.gather(*(loop.create_connection(Watched, *address) for _ in range(50)))
        for transport, _ in made:
            transport.write(b"some data")
            if end == "abort":
                transport.abort()
            elif end == "reset":
                linger = b"\1\0\0\0\0\0\0\0"
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                transport.close()
            elif end == "close":
                transport.close()
            else:
                transport.write_eof()

    async def main() -> None:
        server = await loop.create_server(Watched, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        await batch(address)
        await until(lambda: ended == 100)
        before = descriptors()
        for round_ in range(2, 52):
            await batch(address)
            await until(lambda round_=round_: ended == 100 * round_)
        assert left_open(before) == {}
        server.close()
        await server.wait_closed()

    loop.run_until_complete(main())
    gc.collect()
    assert len(alive) == 0


def test_accepted_and_dropped_by_the_peer_before_a_turn(loop: Loop) -> None:
    peers: list[Recording] = []

    def factory() -> Recording:
        peers.append(Recording())
        return peers[-1]

    async def main() -> None:
        server = await loop.create_server(factory, "127.0.0.1", 0, backlog=500)
        address = server.sockets[0].getsockname()
        for _ in range(200):
            with socket.create_connection(address) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await asyncio.sleep(0.001)
        # One that comes after all these is served.
        with socket.create_connection(address) as client:
            client.setblocking(False)
            await loop.sock_sendall(client, b"served")
            await until(lambda: any(peer.received for peer in peers))
        await until(lambda: all(peer.lost for peer in peers))
        server.close()
        await server.wait_closed()

    loop.run_until_complete(main())


def test_thousands_of_callbacks_leave_no_references(loop: Loop) -> None:
    class Payload:
        pass

    payload = Payload()
    callbacks = 0

    def callback(_: Payload) -> None:
        nonlocal callbacks
        callbacks += 1

    def load() -> None:
        for number in range(3000):
            loop.call_soon(callback, payload)
            loop.call_soon_threadsafe(callback, payload)
            loop.call_later(0, callback, payload)
            (loop.call_soon, loop.call_soon_threadsafe)[number % 2](callback, payload).cancel()
            loop.call_later(60, callback, payload).cancel()
        loop.call_later(0.002, loop.stop)
        loop.run_forever()

    load()
    before = sys.getrefcount(payload), sys.getrefcount(callback), sys.getrefcount(None)
    for _ in range(3):
        load()
    assert callbacks == 4 * 9000
    after = sys.getrefcount(payload), sys.getrefcount(callback), sys.getrefcount(None)
    assert after[:2] == before[:2]
    assert abs(after[2] - before[2]) < 1000


def test_loops_by_the_hundred_leave_nothing() -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    before = descriptors()
    for number in range(200):
        with fresh_loop([]) as loop:
            alive.add(loop)
            loop.call_soon(int)
            loop.call_later(60, int)
            loop.call_soon_threadsafe(int)
            if number % 2:
                loop.run_until_complete(asyncio.sleep(0))
    del loop
    gc.collect()
    assert len(alive) == 0
    assert left_open(before) == {}


def test_cancelled_operations_leave_nothing(loop: Loop) -> None:
    async def main() -> None:
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            alive: weakref.WeakSet[Any] = weakref.WeakSet()
            for _ in range(500):
                task = loop.create_task(loop.sock_recv(left, 10))
                alive.add(task)
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                del task
            await asyncio.sleep(0.001)
            gc.collect()
            assert len(alive) == 0

    loop.run_until_complete(main())


def test_a_descriptor_closed_behind_the_loop(loop: Loop) -> None:
    async def main() -> None:
        for number in range(50):
            left, right = socket.socketpair()
            add, remove = (
                (loop.add_reader, loop.remove_reader) if number % 2 else (loop.add_writer, loop.remove_writer)
            )
            add(left, int)
            descriptor = left.fileno()
            left.close()
            right.close()
            await asyncio.sleep(0)
            assert remove(descriptor) is True
        await asyncio.sleep(0.001)

    loop.run_until_complete(main())
