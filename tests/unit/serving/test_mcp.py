"""Tools over MCP, by messages that the tests write themselves."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until
from tests.tasks import Gate
from tests.unit.serving.conftest import ask, stops

from ropewalk.serving import Server, ServingError

Make = Callable[..., Server]

HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
TOOLS = """
import sys, time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pydantic

import ropewalk
from ropewalk.serving import tool
from tests.tasks import Gate

@dataclass
class Point:
    x: int
    y: int = 0

@tool(read_only=True, idempotent=True)
def mirror(point: Point) -> Point:
    \"\"\"Swaps the coordinates.\"\"\"
    return Point(point.y, point.x)

@tool
def length(text: Annotated[str, pydantic.Field(max_length=5)], items: list[int] = []) -> int:
    return len(text) + len(items)

@tool
def greet(name: str) -> str:
    return f'"{name}"'

@tool
def anything(what: str) -> Any:
    return {"object": {"a": 1}, "number": 10**30, "nothing": None}[what]

@tool
def reverse(data: bytes) -> bytes:
    return data[::-1]

@tool
def steps(folder: str) -> int:
    gate = Gate(Path(folder))
    task = ropewalk.current_task()
    task.progress(1, 2, "half")
    gate.hold("steps")
    task.progress(2, 2)
    return 2

@tool
def count(n: int) -> Iterator[int]:
    yield from range(n)

@tool
def half(number: float) -> float:
    return number / 2

@tool
def roots(numbers: list[float]) -> list[float]:
    return [n**0.5 if n >= 0 else float("nan") for n in numbers]

@tool
def dropped(n: int) -> Iterator[Point]:
    for one in range(n):
        yield Point(one)
    yield Point("none")

@tool
def spin(folder: str) -> None:
    Gate(Path(folder)).mark("spins")
    sum(1 for _ in iter(int, 1))
"""


@pytest.fixture(scope="session")
def mcp_app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of tools."""
    pytest.importorskip("pydantic")
    file = tmp_path_factory.mktemp("mcp") / "tools_of_mcp.py"
    file.write_text(TOOLS)
    return file


@pytest.fixture
def mcp(make_server: Make, mcp_app: Path) -> Server:
    """A server of them, on one worker."""
    return make_server(mcp_app)


def message(method: str, params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def request(server: Server, method: str, params: Any) -> Any:
    """What the server answers."""
    said = ask(server, "POST", "/mcp", message(method, params), HEADERS)
    assert said.status == 200, said
    return said.json


def called(server: Server, name: str, /, **arguments: Any) -> Any:
    """The result of a call."""
    return request(server, "tools/call", {"name": name, "arguments": arguments})["result"]


def test_tools_are_listed_with_their_schemas(mcp: Server) -> None:
    tools = {tool["name"]: tool for tool in request(mcp, "tools/list", {})["result"]["tools"]}
    assert sorted(tools) == sorted(tool.name for tool in mcp.tools)
    mirror = tools["mirror"]
    assert mirror["description"] == "Swaps the coordinates."
    assert mirror["annotations"] == {"readOnlyHint": True, "idempotentHint": True}
    assert mirror["inputSchema"]["required"] == ["point"]
    assert mirror["outputSchema"]["properties"].keys() == {"x", "y"}
    length = tools["length"]
    assert "annotations" not in length
    assert length["outputSchema"]["properties"] == {"result": {"type": "integer"}}
    assert length["inputSchema"]["properties"]["text"]["maxLength"] == 5
    assert "outputSchema" not in tools["anything"]
    assert tools["count"]["outputSchema"]["properties"]["result"] == {
        "type": "array",
        "items": {"type": "integer"},
    }


@pytest.mark.parametrize(
    ("name", "arguments", "structured", "text"),
    [
        ("mirror", {"point": {"x": 1, "y": 2}}, {"x": 2, "y": 1}, '{"x":2,"y":1}'),
        ("length", {"text": "ab", "items": [1]}, {"result": 3}, "3"),
        ("greet", {"name": "ü"}, {"result": '"ü"'}, '"ü"'),
        ("anything", {"what": "object"}, {"a": 1}, '{"a":1}'),
        ("anything", {"what": "number"}, None, "1" + 30 * "0"),
        ("anything", {"what": "nothing"}, None, "null"),
        ("reverse", {"data": "AQI="}, {"result": "AgE="}, "AgE="),
        ("count", {"n": 3}, {"result": [0, 1, 2]}, "[0,1,2]"),
    ],
)
def test_a_result_is_structured_and_text(
    mcp: Server, name: str, arguments: Any, structured: Any, text: str
) -> None:
    result = called(mcp, name, **arguments)
    assert result["isError"] is False
    assert result.get("structuredContent") == structured
    assert result["content"] == [{"type": "text", "text": text}]


def test_wrong_arguments_name_their_fields(mcp: Server) -> None:
    result = called(mcp, "length", text="abcdef", items=[1, "x"], other=1)
    assert result["isError"] is True
    text = result["content"][0]["text"]
    assert text.startswith("the arguments do not fit: ")
    for field in ("text: ", "items[1]: ", "other: "):
        assert field in text
    four = [{"x": 1}, "a", None, "b"]
    assert "\n- items[3]: " in called(mcp, "length", text="a", items=four)["content"][0]["text"]
    result = called(mcp, "anything", what="wrong")
    assert (result["isError"], result["content"][0]["text"]) == (True, "KeyError: 'wrong'")


def test_a_result_that_does_not_fit_its_schema_is_an_error(mcp: Server) -> None:
    result = called(mcp, "roots", numbers=[4, -1])
    assert result["isError"] is True
    assert "structuredContent" not in result
    assert "the result of the tool 'roots' does not fit its annotation: [1]: " in result["content"][0]["text"]
    assert called(mcp, "roots", numbers=[4])["structuredContent"] == {"result": [2.0]}
    result = called(mcp, "dropped", n=2)
    assert result["isError"] is True
    assert "does not fit its annotation: x: " in result["content"][0]["text"]


@pytest.mark.parametrize("meta", [{}, {"_meta": {"progressToken": "t"}}], ids=["plain", "with-progress"])
def test_numbers_are_the_same_as_text_and_structured(mcp: Server, meta: Any) -> None:
    # An inexact parser reads the neighbour of each of the first three.
    for number in (
        0.12000000000000001,
        0.43000000000000005,
        0.09090909090909091,
        1e23,
        5e-324,
        1.7976931348623157e308,
    ):
        twice = number * 2 if number < 1e308 else number
        params = {"name": "half", "arguments": {"number": twice}} | meta
        said = ask(mcp, "POST", "/mcp", message("tools/call", params), HEADERS)
        body = said.body.decode()
        result = json.loads(body[body.index('{"jsonrpc') :])["result"]
        assert result["structuredContent"] == {"result": twice / 2}
        assert json.loads(result["content"][0]["text"]) == twice / 2


def test_progress_is_sent_while_the_tool_runs(mcp: Server, gate: Gate) -> None:
    connection = http.client.HTTPConnection(mcp.http or "", timeout=60)
    params = {"name": "steps", "arguments": {"folder": str(gate.folder)}, "_meta": {"progressToken": "t"}}
    connection.request("POST", "/mcp", message("tools/call", params), HEADERS)
    response = connection.getresponse()
    assert response.headers["content-type"] == "text/event-stream"

    def hear() -> Any:
        for line in response:
            if line.startswith(b"data: {"):
                return json.loads(line.removeprefix(b"data: "))
        raise AssertionError("no more messages")

    first = hear()
    assert first["method"] == "notifications/progress"
    assert first["params"] == {"progressToken": "t", "progress": 1.0, "total": 2.0, "message": "half"}
    gate.open()
    second = hear()
    assert second["params"] == {"progressToken": "t", "progress": 2.0, "total": 2.0}
    assert hear()["result"]["structuredContent"] == {"result": 2}
    connection.close()


def test_health_answers_and_a_client_that_leaves_frees_the_worker(mcp: Server, gate: Gate) -> None:
    connection = http.client.HTTPConnection(mcp.http or "", timeout=60)
    params = {"name": "spin", "arguments": {"folder": str(gate.folder)}}
    connection.request("POST", "/mcp", message("tools/call", params), HEADERS)
    until(lambda: gate.marks("spins"))
    assert ask(mcp, "GET", "/healthz").status == 200
    connection.close()
    assert called(mcp, "length", text="")["structuredContent"] == {"result": 0}


def test_a_cancelled_call_frees_its_worker(mcp: Server, gate: Gate) -> None:
    params: Any = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    opened = ask(mcp, "POST", "/mcp", message("initialize", params), HEADERS)
    own = HEADERS | {"mcp-session-id": opened.headers["mcp-session-id"]}
    connection = http.client.HTTPConnection(mcp.http or "", timeout=60)
    params = {"name": "spin", "arguments": {"folder": str(gate.folder)}}
    connection.request("POST", "/mcp", message("tools/call", params), own)
    until(lambda: gate.marks("spins"))
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert ask(mcp, "POST", "/mcp", json.dumps(cancel).encode(), own).status == 202
    assert json.loads(connection.getresponse().read())["error"]["message"] == "the call was cancelled"
    connection.close()
    assert called(mcp, "length", text="")["structuredContent"] == {"result": 0}


def test_a_stream_that_does_not_end_is_limited(make_server: Make, app: Path, gate: Gate) -> None:
    server = make_server(app, max_request=10_000)

    def exceed() -> None:
        result = called(server, "endless", folder=str(gate.folder))
        assert result["isError"] is True
        assert "10000 bytes" in result["content"][0]["text"]

    stops(gate, exceed)


def test_a_page_of_another_site_is_refused(mcp: Server) -> None:
    body = message("ping", {})
    address = mcp.http or ""
    for origin, host in [
        ("https://evil.example", address),
        ("http://evil.example", "evil.example"),
        ("null", address),
    ]:
        said = ask(mcp, "POST", "/mcp", body, HEADERS | {"origin": origin, "host": host})
        assert said.status == 403, origin
    assert ask(mcp, "POST", "/mcp", body, HEADERS | {"origin": f"http://{address}"}).status == 200


def test_large_messages_are_refused(make_server: Make, mcp_app: Path) -> None:
    server = make_server(mcp_app, max_request=1000)
    said = ask(server, "POST", "/mcp", message("ping", {"_meta": {"x": "y" * 2000}}), HEADERS)
    assert said.status == 413
    assert "1000 bytes" in said.json["error"]["message"]


def test_read_only_is_a_switch() -> None:
    from ropewalk.serving import tool

    with pytest.raises(TypeError, match="read_only"):
        tool(read_only=1)  # type: ignore[call-overload]
    with pytest.raises(ServingError):
        tool(read_only=True)(len)
