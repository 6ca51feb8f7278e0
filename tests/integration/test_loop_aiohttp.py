"""aiohttp's server and its client, both in one loop: HTTP, uploads, downloads, WebSocket, TLS."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.integration.conftest import Contexts
from tests.integration.event_loops import is_under_test, run, until

aiohttp = pytest.importorskip("aiohttp")
web = pytest.importorskip("aiohttp.web")

CHUNK = bytes(range(256)) * 256


@contextlib.asynccontextmanager
async def serving(*routes: Any, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a server with these routes."""
    assert is_under_test(asyncio.get_running_loop())
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield f"{'https' if context else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def echo(request: Any) -> Any:
    return web.Response(body=await request.read(), headers={"X-Query": request.query_string})


async def digest(request: Any) -> Any:
    """The hash of an upload that is never held whole."""
    hashed, size = hashlib.sha256(), 0
    async for part in request.content.iter_chunked(1 << 16):
        hashed.update(part)
        size += len(part)
    return web.json_response({"sha256": hashed.hexdigest(), "size": size})


async def chunks(request: Any) -> Any:
    """A download in as many chunks as the path says."""
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(int(request.match_info["count"])):
        await response.write(CHUNK)
    await response.write_eof()
    return response


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_many_requests_over_few_connections(secure: bool, request: pytest.FixtureRequest) -> None:
    contexts: Contexts | None = request.getfixturevalue("tls") if secure else None

    async def main() -> None:
        connector = aiohttp.TCPConnector(limit=8, ssl=contexts.client if contexts else True)
        peers = set()

        async def remember(request: Any) -> Any:
            peers.add(request.transport.get_extra_info("peername"))
            assert (request.transport.get_extra_info("cipher") is not None) == secure
            return await echo(request)

        async with (
            serving(web.post("/", remember), context=contexts.server if contexts else None) as address,
            aiohttp.ClientSession(connector=connector) as session,
        ):

            async def ask(number: int) -> None:
                body = b"%d" % number * 50
                async with session.post(f"{address}/?n={number}", data=body) as response:
                    assert (response.status, await response.read()) == (200, body)
                    assert response.headers["X-Query"] == f"n={number}"

            await asyncio.gather(*(ask(number) for number in range(400)))
        assert 1 <= len(peers) <= 8

    run(main())


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_an_upload_from_a_generator(secure: bool, request: pytest.FixtureRequest) -> None:
    contexts: Contexts | None = request.getfixturevalue("tls") if secure else None

    async def body() -> AsyncIterator[bytes]:
        for _ in range(128):
            yield CHUNK

    async def main() -> Any:
        connector = aiohttp.TCPConnector(ssl=contexts.client if contexts else True)
        async with (
            serving(web.post("/", digest), context=contexts.server if contexts else None) as address,
            aiohttp.ClientSession(connector=connector) as session,
            session.post(address, data=body()) as response,
        ):
            return await response.json()

    assert run(main()) == {
        "sha256": hashlib.sha256(CHUNK * 128).hexdigest(),
        "size": 128 * len(CHUNK),
    }


def test_a_download_that_is_read_in_pieces() -> None:
    async def main() -> bytes:
        async with (
            serving(web.get("/{count}", chunks)) as address,
            aiohttp.ClientSession(read_bufsize=1 << 14) as session,
            session.get(f"{address}/64") as response,
        ):
            return b"".join([part async for part in response.content.iter_chunked(5000)])

    assert run(main()) == CHUNK * 64


def test_a_client_that_reads_nothing_holds_the_handler_back() -> None:
    async def main() -> None:
        transports: list[Any] = []
        ended = asyncio.Event()

        async def endless(request: Any) -> Any:
            transports.append(request.transport)
            response = web.StreamResponse()
            await response.prepare(request)
            try:
                while True:
                    await response.write(CHUNK)
            finally:
                ended.set()

        async with serving(web.get("/", endless), web.post("/", echo)) as address:
            async with (
                aiohttp.ClientSession(read_bufsize=1 << 14) as session,
                session.get(address) as response,
            ):
                assert await response.content.readexactly(10) == CHUNK[:10]
                (transport,) = transports
                _, high = transport.get_write_buffer_limits()
                await until(lambda: transport.get_write_buffer_size() > high)
                # Others are served meanwhile, and the buffer grows by no second chunk.
                for _ in range(50):
                    async with session.post(address, data=b"quick") as other:
                        assert await other.read() == b"quick"
                    assert transport.get_write_buffer_size() <= high + len(CHUNK) + 100
                response.close()
            await ended.wait()

    run(main())


def test_websocket() -> None:
    async def handler(request: Any) -> Any:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                await socket.send_bytes(message.data[::-1])
            elif message.data == "close":
                await socket.close(code=4001, message=b"as told")
            else:
                await socket.send_str(message.data.upper())
        return socket

    async def main() -> None:
        async with (
            serving(web.get("/", handler)) as address,
            aiohttp.ClientSession() as session,
        ):

            async def talk(number: int) -> None:
                async with session.ws_connect(address) as socket:
                    for turn in range(20):
                        await socket.send_str(f"message {number} {turn}")
                        assert await socket.receive_str() == f"MESSAGE {number} {turn}"
                    await socket.ping(b"there?")
                    await socket.send_bytes(CHUNK * 4)
                    assert await socket.receive_bytes() == (CHUNK * 4)[::-1]
                    await socket.send_str("close")
                    end = await socket.receive()
                    assert (end.type, end.data, end.extra) == (aiohttp.WSMsgType.CLOSE, 4001, "as told")

            await asyncio.gather(*(talk(number) for number in range(20)))

    run(main())


def test_a_cancelled_request_ends_its_handler_and_nothing_else() -> None:
    async def main() -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        async def hold(request: Any) -> Any:
            began.set()
            try:
                await until(lambda: request.transport is None)  # The client has left.
            finally:
                ended.set()
            return web.Response()

        async with (
            serving(web.get("/hold", hold), web.post("/", echo)) as address,
            aiohttp.ClientSession() as session,
        ):
            asking = asyncio.create_task(session.get(f"{address}/hold"))
            await began.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await ended.wait()
            async with session.post(address, data=b"still there") as response:
                assert await response.read() == b"still there"

    run(main())


def test_a_handler_that_raises_costs_its_own_request() -> None:
    async def broken(request: Any) -> Any:
        raise ValueError("told")

    async def main() -> None:
        async with (
            serving(web.get("/broken", broken), web.post("/", echo)) as address,
            aiohttp.ClientSession() as session,
        ):
            for _ in range(3):
                async with session.get(f"{address}/broken") as response:
                    assert response.status == 500
                async with session.post(address, data=b"fine") as response:
                    assert await response.read() == b"fine"

    run(main())
