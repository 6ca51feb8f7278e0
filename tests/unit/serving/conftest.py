"""A file of tools, servers of it, and a client that is nothing but the standard library's."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.polling import is_alive, until
from tests.tasks import Gate
from tests.unit.serving.blocking import Blocking

from ropewalk.client import Client
from ropewalk.serving import Server

TOOLS = '''
import asyncio, os, time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import ropewalk
from ropewalk.serving import ToolError, tool
from tests.tasks import Gate

@tool
def add(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b

@tool(name="total.of-all", description="Adds many.")
def total(items: list[dict[str, int]]) -> dict[str, int]:
    return {"total": sum(sum(item.values()) for item in items)}

@tool
def reverse(data: bytes) -> bytes:
    return data[::-1]

@tool
def count(n: int) -> Iterator[int]:
    yield from range(n)

@tool
async def letters(text: str) -> AsyncIterator[str]:
    for one in text:
        await asyncio.sleep(0)
        yield one

@tool
def parts(n: int) -> Iterator[bytes]:
    for index in range(n):
        yield bytes([index])

@tool
def fails_late(n: int) -> Iterator[int]:
    yield from range(n)
    raise LookupError("no more")

@tool
def endless(folder: str) -> Iterator[int]:
    gate = Gate(Path(folder))
    gate.mark("runs")
    number = 0
    try:
        while True:
            yield number
            number += 1
    finally:
        gate.mark("closed")

@tool
def divide(a: float, b: float) -> float:
    return a / b

@tool
def refuse(status: str) -> None:
    raise ToolError("not today", status, [("status", "is not liked")])

@tool
def metadata() -> dict[str, str]:
    return dict(ropewalk.current_task().metadata)

@tool
def process() -> int:
    return os.getpid()

@tool
def hold(folder: str, name: str = "task") -> int:
    return Gate(Path(folder)).hold(name)

@tool
def sleep(folder: str) -> None:
    Gate(Path(folder)).mark("sleeps")
    time.sleep(100)

@tool(grace=30)
def polite(folder: str) -> None:
    gate = Gate(Path(folder))
    gate.mark("begun")
    task = ropewalk.current_task()
    while not task.cancelled:
        time.sleep(0.0005)
    gate.mark("stopped")
    task.check()

@tool(timeout=0.1)
def slow() -> None:
    time.sleep(100)

@tool(deadline=0.1)
def late() -> None:
    time.sleep(100)

@tool
def die() -> None:
    os._exit(7)

@tool(idempotent=True)
def die_once(folder: str) -> str:
    gate = Gate(Path(folder))
    if len(gate.marks("died")) < 2:
        gate.mark("died")
        os._exit(7)
    return "alive"

@tool(idempotent=True)
def raise_always(folder: str) -> None:
    Gate(Path(folder)).mark("raised")
    raise ValueError("always")

@tool
def strange() -> Any:
    return object()

@tool
def large(n: int) -> str:
    return "x" * n
'''


class Said(NamedTuple):
    """What a server answered."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        """The failure."""
        return self.json["error"]


def ask(
    server: Server, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> Said:
    """Sends one request on a connection of its own."""
    connection = http.client.HTTPConnection(server.http or "", timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return Said(response.status, response.headers, response.read())
    finally:
        connection.close()


def call(server: Server, name: str, arguments: Any = None, /, **headers: str) -> Said:
    """Calls a tool; bytes are sent as they are, and underscores in the names of headers are hyphens."""
    body = arguments if isinstance(arguments, bytes) else json.dumps(arguments or {}).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(server, "POST", f"/v1/tools/{name}", body, {"content-type": "application/json", **named})


def stops(gate: Gate, leave: Callable[[], object], began: str = "runs", ended: str = "closed") -> int:
    """Calls `leave`, by which a caller leaves its call, until the tool has stopped by itself; gives its process.

    A machine that is busy may not let it run within the grace that a task has, and then its worker is ended.
    """

    def stopped() -> bool:
        before = len(gate.marks(began))
        leave()
        runs = until(lambda: gate.marks(began)[before:])
        until(lambda: gate.marks(ended) or not is_alive(runs[-1]))
        return bool(gate.marks(ended))

    until(stopped, 120)
    return gate.marks(ended)[-1]


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of tools."""
    pytest.importorskip("pydantic")
    file = tmp_path_factory.mktemp("app") / "tools_of_serving.py"
    file.write_text(TOOLS)
    return file


@pytest.fixture
def make_server(app: Path, gate: Gate) -> Iterator[Callable[..., Server]]:
    """Makes servers, by default of the file of tools; they are gone after the test."""
    made: list[Server] = []

    def make(path: Path = app, **settings: Any) -> Server:
        settings = {"http": "127.0.0.1:0", "workers": 1} | settings
        if "config" in settings:
            settings.pop("workers")
        made.append(Server(path, **settings))
        return made[-1].start()

    yield make
    gate.open()
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def server(app: Path) -> Iterator[Server]:
    """A server with two workers, for the tests of a module that leave it as it was."""
    with Server(app, http="127.0.0.1:0", grpc="127.0.0.1:0", workers=2) as made:
        assert made.wait_ready(60)
        yield made


@pytest.fixture(params=[Client, Blocking], ids=["threads", "asyncio"])
def make_client(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Makes clients of one kind."""
    made: list[Any] = []

    def make(server: Server | str, **settings: Any) -> Any:
        url = server if isinstance(server, str) else f"http://{server.http}"
        made.append(request.param(url, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()
