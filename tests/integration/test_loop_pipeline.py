"""A pipelined binary protocol and its pool of clients: order, flow control, cancellation, lost connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.integration import pipeline
from tests.integration.event_loops import MODULE, run, until
from tests.integration.pipeline import ClientPool, Operation, RequestFailed


@dataclass
class Service:
    """A server in the running loop, its ends of all connections, and how to get one more."""

    connect: Callable[[], Any]
    ends: list[Any] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        """One connection, closed and gone at the end."""
        client = await self.connect()
        try:
            yield client
        except BaseException:
            # A close sends the rest first, which a peer that does not read would never let it.
            client.transport.abort()
            raise
        finally:
            client.transport.close()
            await client.lost


Serve = Callable[[], contextlib.AbstractAsyncContextManager[Service]]


@pytest.fixture(params=["tcp", "unix"])
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=["data_received", "get_buffer"])
def serve(request: pytest.FixtureRequest, family: str, tmp_path: Path) -> Serve:
    buffered = request.param == "get_buffer"
    make_client = pipeline.BufferedClient if buffered else pipeline.Client
    make_server = pipeline.BufferedServer if buffered else pipeline.Server

    @contextlib.asynccontextmanager
    async def serving() -> AsyncIterator[Service]:
        loop = asyncio.get_running_loop()

        def accept() -> Any:
            service.ends.append(make_server())
            return service.ends[-1]

        async def connect() -> Any:
            if family == "unix":
                return (await loop.create_unix_connection(make_client, path))[1]
            return (await loop.create_connection(make_client, *server.sockets[0].getsockname()[:2]))[1]

        path = str(tmp_path / "socket")
        service = Service(connect)
        if family == "unix":
            server = await loop.create_unix_server(accept, path)
        else:
            server = await loop.create_server(accept, "127.0.0.1", 0)
        async with server:
            yield service
            await asyncio.gather(*(end.lost for end in service.ends))

    return serving


def test_every_request_gets_its_own_answer(serve: Serve) -> None:
    async def main() -> None:
        async with serve() as service, service.client() as client:
            order: list[int] = []

            async def ask(number: int) -> None:
                payload = bytes([number * 7 % 40]) + b"%d" % number
                assert await client.request(Operation.LATER, payload) == payload
                order.append(number)

            await asyncio.gather(*(ask(number) for number in range(500)))
            assert sorted(order) == list(range(500))
            assert order != sorted(order)

    run(main())


def test_a_failed_request_costs_itself_only(serve: Serve) -> None:
    async def main() -> None:
        async with serve() as service, service.client() as client:
            answers = await asyncio.gather(
                *(
                    client.request(Operation.FAIL if n % 3 == 0 else Operation.ECHO, b"%d" % n)
                    for n in range(30)
                ),
                return_exceptions=True,
            )
            for number, answer in enumerate(answers):
                if number % 3 == 0:
                    assert isinstance(answer, RequestFailed)
                    assert str(answer) == str(number)
                else:
                    assert answer == b"%d" % number

    run(main())


def test_frames_of_every_size(serve: Serve) -> None:
    async def main() -> None:
        async with serve() as service, service.client() as client:
            sizes = [0, 1, 8, 9, 4095, 4096, 4097, 65_535, 65_536, 65_537, 262_144, 3_000_000]
            payloads = [bytes([size % 251]) * size for size in sizes]
            answers = await asyncio.gather(*(client.request(Operation.ECHO, payload) for payload in payloads))
            assert answers == payloads

    run(main())


def test_a_pool_of_clients(serve: Serve) -> None:
    async def main() -> None:
        async with serve() as service:
            pool = ClientPool(service.connect, 6)

            async def work(name: int) -> int:
                async with pool.connection() as client:
                    payloads = [bytes([turn]) + b"%d" % name for turn in range(10)]
                    answers = [client.request(Operation.LATER, payload) for payload in payloads]
                    assert await asyncio.gather(*answers) == payloads
                return name

            assert await asyncio.gather(*(work(name) for name in range(100))) == list(range(100))
            assert 1 <= pool.made <= 6
            assert len(service.ends) == pool.made
            await pool.close()

    run(main())


def test_a_cancelled_request_is_cancelled_at_the_server(serve: Serve) -> None:
    async def main() -> None:
        async with serve() as service, service.client() as client:
            holding = [asyncio.create_task(client.request(Operation.HOLD)) for _ in range(10)]
            await until(lambda: service.ends and len(service.ends[0].tasks) == 10)
            for task in holding[::2]:
                task.cancel()
            await until(lambda: len(service.ends[0].cancelled) == 5)
            assert await client.request(Operation.ECHO, b"still there") == b"still there"
            assert [task.done() for task in holding] == [True, False] * 5
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await client.request(Operation.HOLD)
            await until(lambda: len(service.ends[0].cancelled) == 6)
            for task in holding:
                task.cancel()
            await asyncio.wait(holding)

    run(main())


def test_a_server_that_does_not_read_stops_its_clients(serve: Serve) -> None:
    async def main() -> None:
        async with serve() as service, service.client() as client:
            assert await client.request(Operation.ECHO) == b""
            end = service.ends[0].transport
            end.pause_reading()
            assert not end.is_reading()
            payload = bytes(100_000)
            asking = [asyncio.create_task(client.request(Operation.ECHO, payload)) for _ in range(200)]
            await until(lambda: client.pauses)
            _, high = client.transport.get_write_buffer_limits()
            # Whoever comes now waits. A task that has passed the gate before may add its frame; the kernel may
            # take a little more at any time.
            assert high < client.largest <= high + len(payload) + 100
            assert client.transport.get_write_buffer_size() <= high + len(payload) + 100
            assert not any(task.done() for task in asking)
            end.resume_reading()
            assert await asyncio.gather(*asking) == [payload] * 200

    run(main())


def test_a_client_that_does_not_read_stops_the_server(serve: Serve) -> None:
    async def main() -> None:
        async with serve() as service, service.client() as client:
            client.transport.set_write_buffer_limits(high=1 << 26)  # The client itself goes on sending.
            payload = bytes(100_000)
            assert await client.request(Operation.ECHO) == b""
            client.transport.pause_reading()
            asking = [asyncio.create_task(client.request(Operation.ECHO, payload)) for _ in range(200)]
            (end,) = service.ends
            await until(lambda: end.pauses)
            _, high = end.transport.get_write_buffer_limits()
            assert high < end.largest <= high + len(payload) + 100
            client.transport.resume_reading()
            assert await asyncio.gather(*asking) == [payload] * 200

    run(main())


def test_half_close(serve: Serve) -> None:
    async def main() -> None:
        async with serve() as service, service.client() as client:
            asking = [client.request(Operation.LATER, bytes([n])) for n in range(50)]
            tasks = [asyncio.create_task(request) for request in asking]
            await asyncio.sleep(0)
            assert client.transport.can_write_eof()
            client.transport.write_eof()
            assert await asyncio.gather(*tasks) == [bytes([n]) for n in range(50)]
            assert await client.lost is None
            assert await service.ends[0].lost is None

    run(main())


def test_a_lost_connection_fails_what_waits_and_is_replaced(serve: Serve) -> None:
    async def main() -> None:
        async with serve() as service:
            pool = ClientPool(service.connect, 1)
            async with pool.connection() as client:
                asking = [asyncio.create_task(client.request(Operation.HOLD)) for _ in range(20)]
                await until(lambda: service.ends and len(service.ends[0].tasks) == 20)
                service.ends[0].transport.abort()
                for answer in await asyncio.gather(*asking, return_exceptions=True):
                    assert isinstance(answer, ConnectionResetError)
                with pytest.raises(ConnectionResetError):
                    await client.request(Operation.ECHO)
                assert client.transport.is_closing()
            async with pool.connection() as client:
                assert await client.request(Operation.ECHO, b"anew") == b"anew"
            assert pool.made == 2
            await pool.close()

    run(main())


@pytest.mark.skipif(
    MODULE == "asyncio" and sys.version_info >= (3, 12), reason="asyncio's own transport spins on them"
)
def test_empty_pieces_are_nothing(serve: Serve) -> None:
    async def main() -> None:
        async with serve() as service, service.client() as client:
            request = bytes([0, 0, 0, 1, 0, 0, 0, 0, Operation.ECHO])
            client.transport.writelines([b"", request, b""])
            client.transport.write(b"")
            client.transport.writelines([b"!", b"", b""])
            client.transport.writelines([])
            await until(lambda: service.ends and service.ends[0].answered == 1)
            assert client.transport.get_write_buffer_size() == 0

    run(main())


@pytest.mark.parametrize("family", ["tcp"], indirect=True)
def test_a_reset_is_told(serve: Serve) -> None:
    async def main() -> None:
        async with serve() as service:
            client = await service.connect()
            assert await client.request(Operation.ECHO) == b""
            raw = client.transport.get_extra_info("socket")
            # A close with unread data, or with this option, sends a reset instead of an end.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.transport.abort()
            assert isinstance(await service.ends[0].lost, ConnectionResetError)

    run(main())
