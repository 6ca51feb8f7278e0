"""`ropewalk.client`: both clients against a server, by one suite."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import decimal
import enum
import inspect
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.polling import is_alive, until
from tests.tasks import Gate
from tests.unit.serving.conftest import TOOLS, ask, stops

from ropewalk import CallFailed, CallInvalid, CallRefused, CallTimeout, CallUnavailable
from ropewalk.client import AsyncClient, Client
from ropewalk.serving import Server

#: Tools of this module's own.
MORE = """
from ropewalk.client import Client

@tool
def echo(value: Any) -> Any:
    return value

@tool
def die_first(folder: str) -> str:
    gate = Gate(Path(folder))
    gate.mark("ran")
    if len(gate.marks("ran")) < 2:
        os._exit(7)
    return "alive"

@tool
def through(url: str) -> dict[str, str]:
    with Client(url) as client:
        return client.call("metadata")
"""

PROGRAM = """
import sys
from ropewalk.client import Client
with Client(sys.argv[1]) as client:
    print("begins", flush=True)
    client.call("sleep", folder=sys.argv[2])
"""

FORKS = """
import os, sys
from ropewalk.client import Client
client = Client(sys.argv[1])
client.call("add", a=1)
child = os.fork()
for number in range(200):
    assert client.call("add", a=number) == number + 1
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
client.close()
"""

FORKS_IN_A_LOOP = """
import asyncio, os, sys
from ropewalk.client import AsyncClient

async def main():
    async with AsyncClient(sys.argv[1]) as client:
        assert await client.call("add", a=1) == 2
        child = os.fork()
        if child == 0:
            status = 1
            try:
                asyncio._set_running_loop(None)
                asyncio.set_event_loop(None)
                status = asyncio.run(client.call("add", a=2)) - 3
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert await asyncio.wait_for(client.call("add", a=3), 60) == 4

asyncio.run(main())
"""


def serving(app: Path, **settings: Any) -> Iterator[Server]:
    with Server(app, http="127.0.0.1:0", **settings) as made:
        assert made.wait_ready(60)
        yield made


@pytest.fixture(scope="module")
def solo(app: Path) -> Iterator[Server]:
    """A server with one worker, which answers nothing else while a call runs, and with more tools."""
    file = app.with_name("tools_of_clients.py")
    file.write_text(TOOLS + MORE)
    yield from serving(file, workers=1)


@pytest.fixture(scope="module")
def guarded(app: Path) -> Iterator[Server]:
    """A server whose callers need a token."""
    tokens = app.with_name("tokens_of_clients")
    tokens.write_text("open-sesame-the-cave\n")
    yield from serving(app, workers=1, token_file=str(tokens))


@pytest.fixture(scope="module")
def small(app: Path) -> Iterator[Server]:
    """A server with one worker, in whose queue one call may wait."""
    config = app.with_name("small_for_clients.toml")
    config.write_text("[pools.small]\nworkers = 1\ncapacity = 1\n")
    yield from serving(app, config=str(config))


@pytest.fixture
def client(server: Server, make_client: Callable[..., Any]) -> Any:
    """A client of the module's server."""
    return make_client(server)


def opened(server: Server) -> int:
    """How many connections to the server are open."""
    port = int((server.http or "").rpartition(":")[2])
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "01" for line in lines)


def test_a_client_names_its_server() -> None:
    assert repr(Client("http://127.0.0.1:1/tools")) == "<Client of http://127.0.0.1:1/tools>"
    assert repr(AsyncClient("unix:///a/b")) == "<AsyncClient of unix:///a/b>"


def test_calls(client: Any) -> None:
    assert client.call("add", a=1, b=2) == 3
    assert client.call("add", {"a": 1}, b=5) == 6
    assert client.call("total.of-all", items=[{"x": 1}, {"y": 2}]) == {"total": 3}
    assert client.call("reverse", b"\x00\xff") == b"\xff\x00"
    assert client.call("reverse", data=b"abc") == b"cba"
    assert client.call("reverse", bytes(3_000_000) + b"1") == b"1" + bytes(3_000_000)
    assert client.call("large", n=3_000_000) == "x" * 3_000_000
    assert client.call("add", a=-(2**62), b=0) == -(2**62)


def test_a_connection_serves_many_calls(server: Server, client: Any) -> None:
    client.call("add", a=1)
    before = opened(server)
    for number in range(20):
        assert client.call("add", a=number) == number + 1
        with client.stream("count", n=3) as items:
            assert list(items) == [0, 1, 2]
    assert opened(server) == before


def test_metadata(server: Server, make_client: Callable[..., Any]) -> None:
    client = make_client(server, metadata={"user": "ann", "city": "Oslo"})
    assert client.call("metadata", metadata={"city": "Rome"}) == {"user": "ann", "city": "Rome"}
    for wrong in ({"User": "x"}, {"a b": "x"}, {"a": "ü"}, {"a": "x\r\nb: c"}):
        with pytest.raises(ValueError, match="metadata"):
            client.call("metadata", metadata=wrong)


@pytest.mark.parametrize(
    ("tool", "arguments", "kind", "status", "words"),
    [
        ("add", {"a": "x"}, CallInvalid, "INVALID_ARGUMENT", "the arguments do not fit: a: "),
        ("add", b"1", CallInvalid, "INVALID_ARGUMENT", "takes no raw bytes"),
        ("nothing", {}, CallFailed, "NOT_FOUND", "no tool named"),
        ("divide", {"a": 1.0, "b": 0.0}, CallFailed, "UNKNOWN", "ZeroDivisionError"),
        ("refuse", {"status": "PERMISSION_DENIED"}, CallFailed, "PERMISSION_DENIED", "not today"),
        ("refuse", {"status": "RESOURCE_EXHAUSTED"}, CallRefused, "RESOURCE_EXHAUSTED", "not today"),
        *(
            ("refuse", {"status": status}, CallFailed, status, "not today")
            for status in ("ALREADY_EXISTS", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "DATA_LOSS")
        ),
        ("strange", {}, CallFailed, "INTERNAL", "cannot be written"),
        ("die", {}, CallUnavailable, "UNAVAILABLE", "exit status 7"),
        ("slow", {}, CallTimeout, "DEADLINE_EXCEEDED", "longer than it may"),
        ("late", {}, CallTimeout, "DEADLINE_EXCEEDED", "the deadline of the tool, 0.1 s, has passed"),
    ],
    ids=str,
)
def test_failures(client: Any, tool: str, arguments: Any, kind: Any, status: str, words: str) -> None:
    with pytest.raises(CallFailed, match=words) as caught:
        client.call(tool, arguments)
    assert (type(caught.value), caught.value.status) == (kind, status)


def test_a_failure_has_violations(client: Any) -> None:
    with pytest.raises(CallInvalid) as caught:
        client.call("total.of-all", items=[{"x": 1}, {"y": "z"}])
    ((field, why),) = caught.value.violations
    assert (field, bool(why)) == ("items[1].y", True)
    assert isinstance(caught.value, ValueError)


def test_streams(server: Server, client: Any, gate: Gate) -> None:
    with client.stream("count", n=5000) as items:
        assert list(items) == list(range(5000))
    with client.stream("letters", text="ab\nü") as items:
        assert list(items) == ["a", "b", "\n", "ü"]
    with client.stream("count", n=0) as items:
        assert list(items) == []
    with client.stream("fails_late", n=2) as items:
        assert [next(items), next(items)] == [0, 1]
        with pytest.raises(CallFailed, match="LookupError: no more") as caught:
            next(items)
    assert caught.value.status == "UNKNOWN"
    with client.stream("count", n="x") as items, pytest.raises(CallInvalid):
        next(items)
    with (
        client.stream("add", a=1) as items,
        pytest.raises(CallFailed, match=r"the tool 'add' .*client\.call\('add'"),
    ):
        next(items)


def test_leaving_a_stream_cancels_it(client: Any, gate: Gate) -> None:
    def leave() -> None:
        with client.stream("endless", folder=str(gate.folder)) as items:
            assert [next(items), next(items)] == [0, 1]

    stops(gate, leave)


def test_dropping_a_stream_cancels_it(server: Server, gate: Gate) -> None:
    def leave() -> None:
        for item in client.stream("endless", folder=str(gate.folder)):
            if item == 3:
                break

    with Client(f"http://{server.http}") as client:
        stops(gate, leave)


def test_dropping_a_stream_on_asyncio_cancels_it(server: Server, gate: Gate) -> None:
    async def main() -> None:
        async with AsyncClient(f"http://{server.http}") as client:
            async for item in client.stream("endless", folder=str(gate.folder)):
                if item == 3:
                    break
            # The client stays open until the tool has stopped.
            pid = gate.marks("runs")[-1]
            while is_alive(pid) and not gate.marks("closed"):
                await asyncio.sleep(0.01)

    stops(gate, lambda: asyncio.run(main()))


def test_a_timeout_is_the_server_s_too(solo: Server, make_client: Callable[..., Any], gate: Gate) -> None:
    client = make_client(solo, timeout=60)
    with pytest.raises(CallTimeout) as caught:
        client.call("sleep", folder=str(gate.folder), timeout=0.3)
    assert isinstance(caught.value, TimeoutError)
    assert client.call("add", a=1) == 2, "the only worker is free"
    with client.stream("endless", folder=str(gate.folder), timeout=0.3) as items, pytest.raises(CallTimeout):
        for _ in items:
            pass
    assert client.call("add", a=1) == 2
    for wrong in (0, -1, "1"):
        with pytest.raises((TypeError, ValueError), match="timeout"):
            client.call("add", a=1, timeout=wrong)


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield f"http://127.0.0.1:{made.getsockname()[1]}"


def test_a_timeout_needs_no_server(silent: str, make_client: Callable[..., Any]) -> None:
    client = make_client(silent)
    with pytest.raises(CallTimeout):
        client.call("add", a=1, timeout=0.05)
    with client.stream("count", n=1, timeout=0.05) as items, pytest.raises(CallTimeout):
        next(items)


def test_a_server_that_is_not_there(make_client: Callable[..., Any], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as made:
        url = f"http://127.0.0.1:{made.getsockname()[1]}"
    for place in (url, f"unix://{tmp_path}/nothing"):
        client = make_client(place, retries=2)
        with pytest.raises(
            CallUnavailable, match=rf"the server at {re.escape(place)} cannot be reached: "
        ) as caught:
            client.call("add", a=1)
        assert isinstance(caught.value, ConnectionError)
        with pytest.raises(CallUnavailable):
            client.tools()


def test_a_cancelled_coroutine_cancels_its_call(solo: Server, gate: Gate) -> None:
    async def main() -> None:
        async with AsyncClient(f"http://{solo.http}") as client:
            call = asyncio.create_task(client.call("sleep", folder=str(gate.folder)))
            while not gate.marks("sleeps"):
                await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await client.call("add", a=1) == 2, "the only worker is free"

    asyncio.run(main())


def test_ctrl_c_cancels_a_call(solo: Server, gate: Gate) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, f"http://{solo.http}", str(gate.folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: gate.marks("sleeps"))
    program.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in program.communicate(timeout=60)[1]
    with Client(f"http://{solo.http}") as client:
        assert client.call("add", a=1) == 2, "the only worker is free"


def test_threads_share_a_client(server: Server) -> None:
    wrong: list[Any] = []
    with Client(f"http://{server.http}") as client:

        def work(first: int) -> None:
            numbers = range(first, first + 50)
            wrong.extend(number for number in numbers if client.call("add", a=number) != number + 1)

        threads = [threading.Thread(target=work, args=(first * 1000,)) for first in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_coroutines_share_a_client(server: Server) -> None:
    async def main() -> list[int]:
        async with AsyncClient(f"http://{server.http}") as client:
            return await asyncio.gather(*(client.call("add", a=number) for number in range(100)))

    assert asyncio.run(main()) == list(range(1, 101))


def test_a_client_goes_on_in_another_loop(server: Server) -> None:
    client = AsyncClient(f"http://{server.http}")

    async def call() -> int:
        first: int = await client.call("add", a=1)
        for connection in client._idle:
            connection.close()
        return first

    assert asyncio.run(call()) == 2
    # The connections of the first loop are closed, and are not used again.
    assert asyncio.run(call()) == 2


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_closed_client_calls_nothing(kind: Any, server: Server) -> None:
    async def main() -> None:
        client = AsyncClient(f"http://{server.http}")
        await client.aclose()
        await client.call("add", a=1)

    client = Client(f"http://{server.http}")
    client.close()
    with pytest.raises(ValueError, match="closed"):
        asyncio.run(main()) if kind is AsyncClient else client.call("add", a=1)


def test_tools(server: Server, make_client: Callable[..., Any]) -> None:
    client = make_client(server)
    known = {one.name: one for one in client.tools()}
    assert known["add"].description == "Adds two numbers."
    assert known["add"].input_schema["required"] == ["a"]
    assert (known["add"].streams, known["count"].streams) == (False, True)
    assert client.tool("add")(a=1, b=5) == 6
    assert client.tool("add")({"a": 1}) == 2
    assert client.tool("reverse")(b"ab") == b"ba"
    assert client.tool("metadata", metadata={"x": "1"})() == {"x": "1"}
    with pytest.raises(CallFailed) as caught:
        client.tool("nothing")
    assert caught.value.status == "NOT_FOUND"


def test_a_tool_looks_like_its_function(server: Server) -> None:
    with Client(f"http://{server.http}") as client:
        add = client.tool("add")
        assert (add.__name__, add.__doc__) == ("add", "Adds two numbers.")
        assert str(inspect.signature(add)) == "(*, a: int, b: int = 1)"
        assert repr(add) == "<tool add(*, a: int, b: int = 1)>"
        with client.tool("count")(n=2) as items:
            assert list(items) == [0, 1]


def test_tokens(guarded: Server, make_client: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CallFailed) as caught:
        make_client(guarded).call("add", a=1)
    assert caught.value.status == "UNAUTHENTICATED"
    assert make_client(guarded, token="open-sesame-the-cave").call("add", a=1) == 2
    monkeypatch.setenv("ROPEWALK_TOKEN", "open-sesame-the-cave")
    client = make_client(guarded)
    assert client.call("add", a=1) == 2
    assert "sesame" not in repr(client)
    assert [tool.name for tool in client.tools()]
    for wrong in ("a b", "ü", "a\r\nb: c"):
        with pytest.raises(ValueError, match="token") as refused:
            make_client(guarded, token=wrong)
        assert wrong not in str(refused.value)


def test_a_full_server_is_tried_again(small: Server, make_client: Callable[..., Any], gate: Gate) -> None:
    client = make_client(small)
    url = f"http://{small.http}"

    def hold() -> None:
        with Client(url) as one:
            one.call("hold", folder=str(gate.folder))

    threads = [threading.Thread(target=hold) for _ in range(2)]
    threads[0].start()
    until(lambda: gate.marks())
    threads[1].start()
    until(lambda: small.runtime["small"].statistics().queued == 1)
    with pytest.raises(CallRefused, match="full") as caught:
        client.call("add", a=1)
    assert caught.value.retry_after == 1
    with pytest.raises(CallRefused):
        client.call("add", a=1, retries=5, timeout=1)
    opener = threading.Timer(0.2, gate.open)
    opener.start()
    assert client.call("add", a=1, retries=20) == 2
    for thread in [*threads, opener]:
        thread.join()


def test_what_may_run_twice_is_tried_again(solo: Server, make_client: Callable[..., Any], gate: Gate) -> None:
    client = make_client(solo, retries=3)
    with pytest.raises(CallUnavailable):
        client.call("die_first", folder=str(gate.folder))
    assert len(gate.marks("ran")) == 1, "it may have run"
    for mark in gate.folder.glob("ran.*"):
        mark.unlink()
    assert client.call("die_first", folder=str(gate.folder), idempotent=True) == "alive"


def test_arguments_of_many_types(solo: Server, make_client: Callable[..., Any]) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Colour(enum.Enum):
        RED = "red"

    @dataclasses.dataclass
    class Point:
        x: int

    class Model(pydantic.BaseModel):
        at: datetime.date

    client = make_client(solo)
    day = datetime.date(2026, 1, 2)
    given = [Colour.RED, Point(1), Model(at=day), day, {3}, b"\xff", memoryview(b"ab"), (1, None)]
    assert client.call("echo", value=given) == [
        "red",
        {"x": 1},
        {"at": "2026-01-02"},
        "2026-01-02",
        [3],
        "/w==",
        "YWI=",
        [1, None],
    ]
    for wrong in (object(), float("nan"), decimal.Decimal(1)):
        with pytest.raises((TypeError, ValueError)):
            client.call("echo", value=wrong)


def test_numpy_s_arguments(client: Any) -> None:
    np = pytest.importorskip("numpy")
    assert client.call("add", a=np.int64(2), b=np.array(3)) == 5


def test_over_a_unix_socket(server: Server, make_client: Callable[..., Any], tmp_path: Path) -> None:
    host, _, port = (server.http or "").rpartition(":")
    path = tmp_path / "a socket"
    relay = socket.socket(socket.AF_UNIX)
    relay.bind(str(path))
    relay.listen()

    def pass_on(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with relay.accept()[0] as near, socket.create_connection((host, int(port))) as far:
            back = threading.Thread(target=pass_on, args=(far, near))
            back.start()
            pass_on(near, far)
            back.join()

    thread = threading.Thread(target=serve)
    thread.start()
    client = make_client(f"unix://{tmp_path}/a%20socket")
    assert client.call("add", a=1) == 2
    with client.stream("count", n=3) as items:
        assert list(items) == [0, 1, 2]
    client.close()
    thread.join()
    relay.close()
    client.close = lambda: None


def test_a_tool_that_calls_a_tool_passes_its_span_on(server: Server, solo: Server) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    body = json.dumps({"url": f"http://{server.http}"}).encode()
    said = ask(solo, "POST", "/v1/tools/through", body, {"traceparent": parent})
    assert said.json == {"traceparent": parent}


def test_opentelemetry_s_span_is_passed_on(client: Any) -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    span = trace.NonRecordingSpan(
        trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(1))
    )
    with trace.use_span(span):
        found = client.call("metadata")
    assert found["traceparent"] == f"00-{0xABC:032x}-{0xDEF:016x}-01"


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8080",
        "ftp://x",
        "http://",
        "http://x:99999",
        "http://x/?a=b",
        "http://a:secret@x",
        "unix://",
        "unix:///",
    ],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match="url must") as caught:
        Client(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("limit", [float("inf"), 1e300, 10**30])
def test_an_endless_timeout_is_none(server: Server, make_client: Callable[..., Any], limit: float) -> None:
    assert make_client(server, timeout=limit).call("add", a=1) == 2
    client = make_client(server, timeout=1e-9)
    assert client.call("add", a=1, timeout=limit) == 2
    with client.stream("count", n=2, timeout=limit) as items:
        assert list(items) == [0, 1]


def test_what_is_no_timeout(server: Server, make_client: Callable[..., Any]) -> None:
    client = make_client(server)
    for wrong in (float("nan"), -1, 0, -float("inf")):
        with pytest.raises(ValueError, match="timeout must be"):
            client.call("add", a=1, timeout=wrong)
        with pytest.raises(ValueError, match="timeout must be"):
            make_client(server, timeout=wrong)


def test_what_cannot_be_called(client: Any) -> None:
    for wrong in ("", "a/b", "../healthz", "a b", "ü"):
        with pytest.raises(ValueError, match="no tool named"):
            client.call(wrong)
    with pytest.raises(TypeError, match="not both"):
        client.call("reverse", b"1", data=b"2")
    with pytest.raises(TypeError, match="mapping"):
        client.call("add", [1])
    with pytest.raises(TypeError, match="the name of a tool must be a text, not 3"):
        client.call(3)


def test_a_stream_is_not_called(client: Any, gate: Gate) -> None:
    # Also one without an end, which is not read.
    for tool, arguments in (("count", {"n": 2}), ("endless", {"folder": str(gate.folder)})):
        words = rf"the tool '{tool}' streams its items: read them by client\.stream\('{tool}'"
        with pytest.raises(CallFailed, match=words) as caught:
            client.call(tool, **arguments)
        assert caught.value.status == "FAILED_PRECONDITION"
    until(lambda: gate.marks("closed"))


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"token": 3}, "token must be a text or None, not one of type int"),
        ({"metadata": 3}, "metadata must be a mapping of texts or None, not 3"),
        ({"metadata": {"a": 3}}, "metadata must have texts for names and values, not 'a': 3"),
        ({"tls": True}, "tls must be an ssl.SSLContext or None, not True"),
        ({"url": None}, "url must be a text"),
        ({"timeout": "1"}, "timeout must be a number of seconds"),
        ({"retries": "1"}, "retries must be a whole number"),
    ],
)
def test_a_setting_of_another_type_is_named(kind: Any, setting: Any, words: str) -> None:
    with pytest.raises(TypeError, match=re.escape(words)):
        kind(**setting)


@pytest.mark.parametrize("program", [FORKS, FORKS_IN_A_LOOP])
def test_a_forked_child_has_connections_of_its_own(server: Server, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program, f"http://{server.http}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
