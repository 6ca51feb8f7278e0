"""uvicorn with each of its HTTP parsers, in our loop and by itself in a child process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.integration.conftest import Contexts
from tests.integration.event_loops import is_under_test, run, script, until

uvicorn = pytest.importorskip("uvicorn")

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Tells how many bytes came for what path, in two pieces; `/many` sends a long body."""
    assert is_under_test(asyncio.get_running_loop())
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message["body"])
        more = message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-size", b"%d" % size)]})
    if scope["path"] == "/many":
        for _ in range(200):
            await send({"type": "http.response.body", "body": bytes(10_000), "more_body": True})
    await send({"type": "http.response.body", "body": scope["path"].encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b" %d" % size})


@pytest.fixture(params=["httptools", "h11"])
def parser(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    pytest.importorskip(name)
    return name


@contextlib.asynccontextmanager
async def serving(application: Any, **options: Any) -> AsyncIterator[int]:
    """The port at which uvicorn serves in the running loop; it is asked to end afterwards, and must."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=200)
    config = uvicorn.Config(application, log_level="warning", loop="none", **options)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await until(lambda: server.started or task.done())
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of one response, chunked or not."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head.split(b" ", 2)[1])
    if b"transfer-encoding: chunked" not in head:
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        return status, await reader.readexactly(length)
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return status, body


def test_many_requests_over_keep_alive_connections(parser: str) -> None:
    async def client(port: int, name: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for turn in range(50):
            body = bytes(turn * 37)
            writer.write(b"POST /%d/%d HTTP/1.1\r\nHost: here\r\n" % (name, turn))
            writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            answer = b"/%d/%d %d" % (name, turn, len(body))
            assert await read_response(reader) == (200, answer)
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        async with serving(app, http=parser, lifespan="off") as port:
            await asyncio.gather(*(client(port, name) for name in range(32)))

    run(main())


def test_requests_that_come_all_at_once(parser: str) -> None:
    async def main() -> None:
        async with serving(app, http=parser, lifespan="off") as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.writelines(b"GET /%d HTTP/1.1\r\nHost: here\r\n\r\n" % n for n in range(100))
            for number in range(100):
                assert await read_response(reader) == (200, b"/%d 0" % number)
            writer.close()
            await writer.wait_closed()

    run(main())


def test_long_bodies_through_a_client_library(parser: str) -> None:
    httpx = pytest.importorskip("httpx")

    async def main() -> None:
        async with (
            serving(app, http=parser, lifespan="off") as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
        ):
            answers = await asyncio.gather(*(client.post("/many", content=bytes(1 << 20)) for _ in range(8)))
            for answer in answers:
                assert answer.headers["x-size"] == str(1 << 20)
                assert answer.content == bytes(2_000_000) + b"/many 1048576"

    run(main())


def test_tls(parser: str, tls: Contexts) -> None:
    httpx = pytest.importorskip("httpx")

    async def main() -> None:
        async with (
            serving(app, http=parser, lifespan="off", ssl_certfile=tls.chain) as port,
            httpx.AsyncClient(base_url=f"https://127.0.0.1:{port}", verify=tls.client) as client,
        ):
            answers = await asyncio.gather(*(client.post(f"/{n}", content=bytes(n)) for n in range(40)))
            assert [answer.text for answer in answers] == [f"/{n} {n}" for n in range(40)]

    run(main())


def test_the_lifespan_runs_in_the_loop() -> None:
    told: list[str] = []

    async def with_lifespan(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        assert scope["type"] == "lifespan"
        for _ in range(2):
            kind = (await receive())["type"]
            assert is_under_test(asyncio.get_running_loop())
            told.append(kind)
            await send({"type": f"{kind}.complete"})

    async def main() -> None:
        async with serving(with_lifespan, lifespan="on"):
            assert told == ["lifespan.startup"]

    run(main())
    assert told == ["lifespan.startup", "lifespan.shutdown"]


_SERVER = """
import asyncio, sys
import uvicorn
from tests.integration import event_loops

async def app(scope, receive, send):
    assert event_loops.is_under_test(asyncio.get_running_loop())
    if scope["type"] == "lifespan":
        for _ in range(2):
            kind = (await receive())["type"]
            print(kind, flush=True)
            await send({"type": kind + ".complete"})
        return
    print("a request", flush=True)
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": body})

uvicorn.run(app, fd=int(sys.argv[1]), log_level="warning", loop=event_loops.MODULE + ":new_event_loop")
"""


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGINT, 0),  # uvicorn catches the KeyboardInterrupt.
    ],
)
def test_a_signal_ends_the_server_after_the_request_under_way(number: int, status: int) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname(), timeout=60) as idle,
        socket.create_connection(listener.getsockname(), timeout=60) as busy,
        script(_SERVER, str(listener.fileno()), pass_fds=[listener.fileno()]) as child,
    ):
        assert child.stdout is not None
        assert child.stderr is not None
        busy.sendall(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\n")
        assert [child.stdout.readline() for _ in range(2)] == ["lifespan.startup\n", "a request\n"]
        child.send_signal(number)
        assert idle.recv(1) == b""  # What is idle is closed, so the server has seen the signal.
        busy.sendall(b"done")
        answer = b"".join(iter(lambda: busy.recv(1000), b""))
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"\r\n\r\ndone")
        assert child.stdout.read() == "lifespan.shutdown\n"
        assert (child.wait(60), child.stderr.read()) == (status, "")
