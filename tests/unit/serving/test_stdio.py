"""MCP over standard input and output: `ropewalk serve APP.py --stdio` as a program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.polling import descendants, is_alive, until
from tests.tasks import Gate
from tests.unit.cli.conftest import command

ROOT = Path(__file__).parents[3]
APP = """
import sys
from pathlib import Path
import ropewalk
from ropewalk.serving import tool
from tests.tasks import Gate

print("the file is loaded")

@tool
def add(a: int, b: int = 1) -> int:
    print("a tool prints")
    sys.__stdout__.write("and writes\\\\n")
    sys.__stdout__.flush()
    return a + b

@tool
def hold(folder: str) -> int:
    return Gate(Path(folder)).hold()

@tool
def asks() -> str:
    return sys.stdin.read()
"""


class Client:
    """A program that serves, and the client that has started it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.errors = (folder / "errors").open("wb")
        self.process = subprocess.Popen(
            command("serve", "app_of_stdio.py", "--stdio", "--workers", "1", *arguments),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=os.environ | {"PYTHONPATH": path},
        )
        self.folder = folder

    def say(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        """The next message."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.folder / "errors").read_text()
        return json.loads(line)

    def request(self, number: int, method: str, **params: Any) -> None:
        self.say(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode())

    def notify(self, method: str, **params: Any) -> None:
        self.say(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def call(self, number: int, tool: str, **arguments: Any) -> None:
        self.request(number, "tools/call", name=tool, arguments=arguments)

    def open(self) -> Any:
        client = {"name": "test", "version": "1"}
        self.request(0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        said = self.hear()["result"]
        self.notify("notifications/initialized")
        return said

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> int:
        status = self.process.wait(60)
        for file in (self.process.stdin, self.process.stdout, self.errors):
            assert file is not None
            file.close()
        return status


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Starts the program."""
    pytest.importorskip("pydantic")
    (tmp_path / "app_of_stdio.py").write_text(APP)
    made: list[Client] = []

    def start(*arguments: str) -> Client:
        made.append(Client(tmp_path, *arguments))
        return made[-1]

    yield start
    for client in made:
        client.process.kill()
        client.end()


def test_a_client_calls_tools_that_print(begin: Callable[..., Client]) -> None:
    client = begin()
    said = client.open()
    assert said["protocolVersion"] == "2025-11-25"
    assert said["capabilities"].keys() == {"tools", "extensions"}
    client.request(1, "tools/list")
    assert [tool["name"] for tool in client.hear()["result"]["tools"]] == ["add", "asks", "hold"]
    client.call(2, "add", a=2)
    said = client.hear()
    assert (said["id"], said["result"]["structuredContent"]) == (2, {"result": 3})
    client.call(3, "asks")
    assert client.hear()["result"]["structuredContent"] == {"result": ""}
    left = descendants(client.process.pid)
    client.leave()
    assert client.end() == 0
    until(lambda: not any(map(is_alive, left)))
    errors = (client.folder / "errors").read_text()
    assert "serving app_of_stdio.py on standard input and output (MCP): add, asks, hold\n" in errors
    for text in ("the file is loaded", "a tool prints", "and writes"):
        assert text in errors


def test_the_revision_without_sessions(begin: Callable[..., Client]) -> None:
    client = begin()
    own = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    client.request(1, "server/discover", _meta=own)
    assert "2026-07-28" in client.hear()["result"]["supportedVersions"]
    client.request(2, "tools/call", name="add", arguments={"a": 1}, _meta=own)
    said = client.hear()
    assert (said["id"], said["result"]["resultType"], said["result"]["isError"]) == (2, "complete", False)
    client.leave()
    assert client.end() == 0


def test_calls_are_answered_after_the_end_of_the_input(begin: Callable[..., Client], gate: Gate) -> None:
    client = begin()
    client.open()
    client.call(1, "hold", folder=str(gate.folder))
    until(lambda: gate.marks())
    client.leave()
    gate.open()
    assert client.hear()["result"]["isError"] is False
    assert client.end() == 0


def test_sigterm_waits_for_calls(begin: Callable[..., Client], gate: Gate) -> None:
    client = begin()
    client.open()
    client.call(1, "hold", folder=str(gate.folder))
    until(lambda: gate.marks())
    client.process.send_signal(signal.SIGTERM)
    gate.open()
    assert client.hear()["id"] == 1
    assert client.end() == 0


def test_a_client_that_is_gone_frees_the_worker(begin: Callable[..., Client], gate: Gate) -> None:
    client = begin("--drain-timeout", "1000")
    client.open()
    client.call(1, "hold", folder=str(gate.folder))
    (worker,) = until(lambda: gate.marks())
    assert client.process.stdout is not None
    client.process.stdout.close()
    client.leave()
    until(lambda: not is_alive(worker))
    assert client.process.wait(60) == 0


def test_cancelling_frees_the_worker(begin: Callable[..., Client], gate: Gate) -> None:
    client = begin()
    client.open()
    client.call(1, "hold", folder=str(gate.folder))
    until(lambda: gate.marks())
    client.notify("notifications/cancelled", requestId=1)
    client.call(2, "add", a=1)
    said = client.hear()
    assert (said["id"], said["result"]["structuredContent"]) == (2, {"result": 2})
    client.leave()
    assert client.end() == 0


def test_what_is_no_message_is_answered(begin: Callable[..., Client]) -> None:
    client = begin("--max-request", "1 kB")
    client.open()
    for line, code in [(b"{", -32700), (b"[]", -32600), (b"x" * 5000, -32600), (b"\xff", -32700)]:
        client.say(line)
        said = client.hear()
        assert (said["id"], said["error"]["code"]) == (None, code)
    client.call(1, "add", a=1)
    assert client.hear()["id"] == 1
    client.leave()
    assert client.end() == 0


def test_http_is_served_beside_it(begin: Callable[..., Client]) -> None:
    import http.client

    client = begin("--http", "127.0.0.1:0")
    client.open()
    errors = client.folder / "errors"
    line = until(lambda: next((line for line in errors.read_text().splitlines() if "http://" in line), None))
    connection = http.client.HTTPConnection(line.partition("http://")[2].partition(" ")[0], timeout=60)
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()
    client.leave()
    assert client.end() == 0


def test_a_program_without_standard_input(tmp_path: Path) -> None:
    pytest.importorskip("pydantic")
    (tmp_path / "app_of_stdio.py").write_text(APP)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    program = " ".join(command("serve", "app_of_stdio.py", "--stdio"))
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {program} <&-"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "--stdio needs standard input" in done.stderr
