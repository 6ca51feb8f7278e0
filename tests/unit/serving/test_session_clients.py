"""Sessions of clients: which each may open, and whose they are, by every protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.serving.conftest import Said, ask
from tests.unit.serving.test_sessions import Talk

from ropewalk.serving import Server

TOOLS = """
import numpy as np
from numpy.typing import NDArray
from ropewalk.serving import tool

@tool(session=True)
class Sum:
    def __init__(self, start: float = 0) -> None:
        self.total = start

    def add(self, array: NDArray[np.float64]) -> NDArray[np.float64]:
        self.total = self.total + array
        return self.total

    def plus(self, n: float) -> float:
        self.total = self.total + n
        return float(self.total)

@tool(session=True)
class Other:
    def plus(self, n: float) -> float:
        return n

@tool
def plain() -> int:
    return 1
"""

CLIENTS = """
[clients.ann]
token = "token-secret-of-ann"
tools = ["Sum"]
[clients.bob]
token = "token-secret-of-bob"
[clients.eve]
token = "token-secret-of-eve"
tools = ["Other", "Sum.*", "plain"]
[clients.fay]
token = "token-secret-of-fay"
rate = "0.001/s"
burst = 2
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server of sessions with clients, and the file of these."""
    pytest.importorskip("pydantic")
    pytest.importorskip("numpy")
    folder = tmp_path_factory.mktemp("sessions")
    file, clients = folder / "tools_of_client_sessions.py", folder / "clients.toml"
    file.write_text(TOOLS)
    clients.write_text(CLIENTS)
    with Server(file, http="127.0.0.1:0", workers=1, clients_file=clients) as made:
        assert made.wait_ready(60)
        yield made, clients


def said_to(server: Server, name: str, method: str, path: str, body: Any = None, /, **more: str) -> Said:
    headers = {"Authorization": f"Bearer token-secret-of-{name}", "Content-Type": "application/json", **more}
    return ask(server, method, path, json.dumps(body or {}).encode(), headers)


def post(server: Server, name: str, path: str, body: Any = None, /) -> Said:
    return said_to(server, name, "POST", path, body)


def mcp(server: Server, client: str, method: str, /, **params: Any) -> Any:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    said = said_to(server, client, "POST", "/mcp", message, Accept="application/json, text/event-stream")
    return said.json.get("result") or said.json["error"]


def test_a_client_opens_its_own_sessions(guarded: tuple[Server, Path]) -> None:
    server, _ = guarded
    said = post(server, "ann", "/v1/sessions/Sum", {"start": 1})
    assert said.status == 201
    path = said.headers["location"]
    assert post(server, "ann", f"{path}/plus", {"n": 2}).json == 3
    # What she may not open is as what is not there.
    for name in ("Other", "None"):
        assert post(server, "ann", f"/v1/sessions/{name}").error["code"] == "PERMISSION_DENIED"
        assert post(server, "ann", f"/v1/tools/{name}").error["code"] == "PERMISSION_DENIED"
    assert post(server, "ann", "/v1/tools/Sum").error["code"] == "FAILED_PRECONDITION"
    # A session is its client's alone, whatever others may call.
    assert post(server, "bob", f"{path}/plus", {"n": 2}).status == 404
    assert said_to(server, "bob", "DELETE", path).status == 404
    assert said_to(server, "ann", "DELETE", path).status == 204


def test_lists_have_the_sessions_of_a_client(guarded: tuple[Server, Path]) -> None:
    server, _ = guarded
    for name, tools, sessions in (
        ("ann", [], ["Sum"]),
        ("eve", ["plain"], ["Other"]),
        ("bob", ["plain"], ["Other", "Sum"]),
    ):
        for listed in (
            said_to(server, name, "GET", "/v1/tools").json,
            post(server, name, "/ropewalk.v1.Tools/ListTools").json,
        ):
            assert [one["name"] for one in listed.get("tools", [])] == tools
            assert [one["name"] for one in listed["sessions"]] == sessions
        paths = said_to(server, name, "GET", "/openapi.json").json["paths"]
        assert [one for one in paths if one in ("/v1/sessions/Sum", "/v1/sessions/Other")] == [
            f"/v1/sessions/{one}" for one in sessions
        ]
        found = [one["name"] for one in mcp(server, name, "tools/list")["tools"]]
        assert {one.partition(".")[0] for one in found} == {*tools, *sessions}


def test_agents_have_the_sessions_of_their_client(guarded: tuple[Server, Path]) -> None:
    server, _ = guarded

    def called(name: str, tool: str, **arguments: Any) -> Any:
        return mcp(server, name, "tools/call", name=tool, arguments=arguments)

    session = called("ann", "Sum", start=1)["structuredContent"]["session"]
    assert called("ann", "Sum.plus", session=session, n=2)["structuredContent"] == {"result": 3}
    assert "no such session" in called("bob", "Sum.plus", session=session, n=2)["content"][0]["text"]
    # A pattern of methods opens nothing: who may open a session may call it.
    for tool in ("Sum", "Sum.plus", "Sum.close"):
        assert called("eve", tool, session=session)["code"] == -32602
    assert called("ann", "Other.plus", session=session, n=1)["code"] == -32602
    assert not called("ann", "Sum.close", session=session)["isError"]


def test_opening_and_calling_count_for_the_rate(guarded: tuple[Server, Path]) -> None:
    server, _ = guarded
    path = post(server, "fay", "/v1/sessions/Sum").headers["location"]
    assert post(server, "fay", f"{path}/plus", {"n": 2}).json == 2
    assert post(server, "fay", f"{path}/plus", {"n": 2}).status == 429
    assert post(server, "fay", "/v1/sessions/Sum").status == 429
    # A client that may not call may end what it has opened.
    assert said_to(server, "fay", "DELETE", path).status == 204


def test_a_conversation_is_a_client_s_as_long_as_it_is_one(guarded: tuple[Server, Path]) -> None:
    server, clients = guarded
    one = Talk(server, token="token-secret-of-ann")
    other = Talk(server, token="token-secret-of-eve")
    try:
        one.open("Sum", start=1)
        assert one.read() == (0, "opened", None)
        one.call(1, "plus", n=2)
        assert one.read() == (1, "result", 3)
        other.open("Sum")
        assert other.status() == "PERMISSION_DENIED"
        clients.write_text(CLIENTS.replace("secret-of-ann", "secret-of-nobody"))
        server.reload_credentials()
        one.call(2, "plus", n=2)
        assert one.read() == (2, "failure", 16)
        # What she may call now holds, too; the session is still hers.
        clients.write_text(CLIENTS.replace('["Sum"]', '["plain"]'))
        server.reload_credentials()
        one.call(3, "plus", n=2)
        assert one.read() == (3, "failure", 7)
        clients.write_text(CLIENTS)
        server.reload_credentials()
        one.call(4, "plus", n=2)
        assert one.read() == (4, "result", 5)
    finally:
        one.close()
        other.close()
        clients.write_text(CLIENTS)
        server.reload_credentials()


def test_sessions_take_arrays(guarded: tuple[Server, Path]) -> None:
    server, _ = guarded
    path = post(server, "bob", "/v1/sessions/Sum", {"start": 1}).headers["location"]
    assert post(server, "bob", f"{path}/add", {"array": [1, 2]}).json == [2.0, 3.0]
    assert post(server, "bob", f"{path}/add", {"array": "x"}).error["violations"][0]["field"] == "array"
    # Nested too deeply, as for any tool.
    headers = {"Authorization": "Bearer token-secret-of-bob", "Content-Type": "application/json"}
    said = ask(server, "POST", f"{path}/add", b"[" * 1000, headers)
    assert "more deeply than 128" in said.error["message"]
