"""Other projects' clients call a server: grpcio, and httpx."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.polling import until
from tests.tasks import Gate

from ropewalk.serving import Server

APP = """
from collections.abc import Iterator
from pathlib import Path
import os, time
import ropewalk
from ropewalk.serving import tool
from tests.tasks import Gate

@tool
def add(a: int, b: int = 1) -> int:
    return a + b

@tool
def count(n: int) -> Iterator[int]:
    yield from range(n)

@tool
def endless(folder: str) -> Iterator[int]:
    number = 0
    try:
        while True:
            yield number
            number += 1
    finally:
        Gate(Path(folder)).mark("closed")

@tool
def reverse(data: bytes) -> bytes:
    return data[::-1]

@tool
def fail() -> None:
    raise LookupError("nothing")

@tool
def die() -> None:
    os._exit(3)

@tool
def sleep(folder: str) -> None:
    Gate(Path(folder)).mark("sleeps")
    time.sleep(100)

@tool
def metadata() -> dict[str, str]:
    return dict(ropewalk.current_task().metadata)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one worker."""
    pytest.importorskip("pydantic")
    file = tmp_path_factory.mktemp("app") / "tools_for_clients.py"
    file.write_text(APP)
    with Server(file, http="127.0.0.1:0", grpc="127.0.0.1:0", workers=1) as made:
        assert made.wait_ready(60)
        yield made


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def field(number: int, data: bytes) -> bytes:
    """A field of a message."""
    return bytes([number << 3 | 2]) + varint(len(data)) + data


def fields(message: bytes) -> dict[int, bytes]:
    """The fields of a message that are bytes, each with the last of its values."""
    found = {}
    while message:
        number, kind, message = message[0] >> 3, message[0] & 7, message[1:]
        length = shift = 0
        while True:
            byte, message = message[0], message[1:]
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if kind == 2:
            found[number], message = message[:length], message[length:]
    return found


def request(tool: str, arguments: Any = None, form: int = 1, **metadata: str) -> bytes:
    """An `ExecuteRequest`."""
    data = arguments if isinstance(arguments, bytes) else json.dumps(arguments or {}).encode()
    pairs = [field(3, field(1, key.encode()) + field(2, value.encode())) for key, value in metadata.items()]
    return field(1, tool.encode()) + field(2, field(form, data)) + b"".join(pairs)


def result(message: bytes) -> Any:
    """The JSON of an `ExecuteResponse`, or of an item."""
    return json.loads(fields(fields(message)[1])[1])


@pytest.fixture
def channel(server: Server) -> Iterator[Any]:
    """A channel of grpcio's."""
    grpc = pytest.importorskip("grpc")
    with grpc.insecure_channel(server.grpc) as made:
        yield made


def execute(channel: Any, message: bytes, **more: Any) -> bytes:
    answer: bytes = channel.unary_unary("/ropewalk.v1.Tools/Execute")(message, **more)
    return answer


def test_a_call(channel: Any) -> None:
    assert result(execute(channel, request("add", {"a": 2, "b": 3}))) == 5
    assert result(execute(channel, request("metadata", user="ann", city="Oslo"))) == {
        "user": "ann",
        "city": "Oslo",
    }
    assert fields(fields(execute(channel, request("reverse", b"abc", form=3)))[1]) == {3: b"cba"}
    large = bytes(2_000_000)
    assert fields(fields(execute(channel, request("reverse", large, form=3)))[1]) == {3: large}


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "words"),
    [
        ("add", {"a": "x"}, "INVALID_ARGUMENT", "the arguments do not fit: a: "),
        ("nothing", {}, "NOT_FOUND", "there is no tool named"),
        ("fail", {}, "UNKNOWN", "LookupError: nothing"),
        ("die", {}, "UNAVAILABLE", "exit status 3"),
        ("count", {"n": 1}, "FAILED_PRECONDITION", "call it by ExecuteStream"),
    ],
)
def test_a_failure(channel: Any, tool: str, arguments: Any, code: str, words: str) -> None:
    grpc = pytest.importorskip("grpc")
    with pytest.raises(grpc.RpcError) as caught:
        execute(channel, request(tool, arguments))
    assert caught.value.code().name == code
    assert words in caught.value.details()
    if code == "INVALID_ARGUMENT":
        status = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
        detail = fields(fields(status)[3])
        assert detail[1] == b"type.googleapis.com/ropewalk.v1.FieldViolations"
        assert fields(fields(detail[2])[1])[1] == b"a"


def test_a_deadline_ends_what_runs(channel: Any, gate: Gate) -> None:
    grpc = pytest.importorskip("grpc")
    with pytest.raises(grpc.RpcError) as caught:
        execute(channel, request("sleep", {"folder": str(gate.folder)}), timeout=0.3)
    assert caught.value.code().name == "DEADLINE_EXCEEDED"
    assert result(execute(channel, request("add", {"a": 2}))) == 3, "the only worker is free"


def test_a_cancelled_call_ends_what_runs(channel: Any, gate: Gate) -> None:
    call = channel.unary_unary("/ropewalk.v1.Tools/Execute").future(
        request("sleep", {"folder": str(gate.folder)})
    )
    until(lambda: gate.marks("sleeps"))
    call.cancel()
    assert result(execute(channel, request("add", {"a": 2}))) == 3


def test_a_stream(channel: Any, gate: Gate) -> None:
    stream = channel.unary_stream("/ropewalk.v1.Tools/ExecuteStream")
    assert [result(item) for item in stream(request("count", {"n": 1000}))] == list(range(1000))
    items = stream(request("endless", {"folder": str(gate.folder)}))
    assert result(next(items)) == 0
    items.cancel()
    until(lambda: gate.marks("closed"))
    assert result(execute(channel, request("add", {"a": 2}))) == 3


def test_health_and_reflection(channel: Any) -> None:
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    assert check(field(1, b"ropewalk.v1.Tools")) == b"\x08\x01"
    ask = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    (answer,) = ask(iter([field(7, b"")]))
    for service in (b"ropewalk.v1.Tools", b"grpc.health.v1.Health", b"inference.GRPCInferenceService"):
        assert service in answer
    (answer,) = ask(iter([field(4, b"grpc.health.v1.Health")]))
    assert b"HealthCheckRequest" in answer


def test_httpx(server: Server, gate: Gate) -> None:
    httpx = pytest.importorskip("httpx")
    with httpx.Client(base_url=f"http://{server.http}") as client:
        assert client.post("/v1/tools/add", json={"a": 2}).json() == 3
        with client.stream("POST", "/v1/tools/count", json={"n": 100}) as answer:
            assert [int(line) for line in answer.iter_lines()] == list(range(100))
        with client.stream(
            "POST",
            "/v1/tools/endless",
            json={"folder": str(gate.folder)},
            headers={"accept": "text/event-stream"},
        ) as answer:
            lines = answer.iter_lines()
            assert [next(lines) for _ in range(3)] == ["event: item", "data: 0", ""]
        until(lambda: gate.marks("closed"))


def test_many_clients_at_once(server: Server) -> None:
    httpx = pytest.importorskip("httpx")
    wrong: list[Any] = []

    def ask(first: int) -> None:
        with httpx.Client(base_url=f"http://{server.http}") as client:
            for number in range(first, first + 50):
                said = client.post("/v1/tools/add", json={"a": number}).json()
                if said != number + 1:
                    wrong.append((number, said))

    threads = [threading.Thread(target=ask, args=(first * 1000,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
