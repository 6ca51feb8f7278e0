"""The official client of MCP, of the Python SDK, calls a server: over HTTP and over standard input and output."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until
from tests.tasks import Gate
from tests.unit.cli.conftest import command

from ropewalk.serving import Server

mcp = pytest.importorskip("mcp")
anyio = pytest.importorskip("anyio")
if not hasattr(mcp, "Client"):
    pytest.skip("needs mcp 2", allow_module_level=True)

ROOT = Path(__file__).parents[2]
APP = """
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ropewalk
from ropewalk.serving import tool
from tests.tasks import Gate

@dataclass
class Person:
    name: str
    age: int | None = None

@tool(read_only=True)
def add(a: int, b: int = 1) -> int:
    \"\"\"Adds two numbers.\"\"\"
    return a + b

@tool
def birthday(person: Person) -> Person:
    return Person(person.name, (person.age or 0) + 1)

@tool
def count(n: int) -> Iterator[int]:
    yield from range(n)

@tool
def steps(folder: str) -> str:
    task = ropewalk.current_task()
    task.progress(1, 3, "one")
    Gate(Path(folder)).hold()
    task.progress(3, 3, "three")
    return "done"

@tool
def sleep(folder: str) -> None:
    Gate(Path(folder)).mark("sleeps")
    time.sleep(100)
"""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pydantic")
    file = tmp_path_factory.mktemp("mcp_sdk") / "tools_for_sdk.py"
    file.write_text(APP)
    return file


@pytest.fixture(scope="module")
def server(app: Path) -> Iterator[Server]:
    with Server(app, http="127.0.0.1:0", workers=1) as made:
        assert made.wait_ready(60)
        yield made


@pytest.fixture(params=["http-2026-07-28", "http-legacy", "http-auto", "stdio-legacy", "stdio-auto"])
def client(request: pytest.FixtureRequest, app: Path) -> Any:
    """A client that is not connected yet."""
    transport, _, mode = request.param.partition("-")
    if transport == "http":
        return mcp.Client(f"http://{request.getfixturevalue('server').http}/mcp", mode=mode)
    program, *arguments = command("serve", str(app), "--stdio", "--workers", "1")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    started = mcp.StdioServerParameters(
        command=program, args=arguments, env=dict(os.environ) | {"PYTHONPATH": path}
    )
    return mcp.Client(started, mode=mode)


def test_tools_are_listed(client: Any) -> None:
    async def main() -> None:
        async with client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert sorted(tools) == ["add", "birthday", "count", "sleep", "steps"]
        assert tools["add"].description == "Adds two numbers."
        assert tools["add"].annotations.read_only_hint is True
        assert tools["birthday"].output_schema["type"] == "object"

    anyio.run(main)


def test_tools_are_called(client: Any) -> None:
    async def main() -> None:
        async with client:
            # The client checks results by the schemas of the list.
            await client.list_tools()
            result = await client.call_tool("add", {"a": 2})
            assert (result.is_error, result.structured_content) == (False, {"result": 3})
            assert result.content[0].text == "3"
            result = await client.call_tool("birthday", {"person": {"name": "Ann", "age": 41}})
            assert result.structured_content == {"name": "Ann", "age": 42}
            result = await client.call_tool("count", {"n": 4})
            assert result.structured_content == {"result": [0, 1, 2, 3]}
            result = await client.call_tool("add", {"a": "x"})
            assert result.is_error
            assert "a: Input should be" in result.content[0].text
            with pytest.raises(mcp.MCPError, match="no tool named"):
                await client.call_tool("nothing", {})

    anyio.run(main)


def test_progress_reaches_the_client(client: Any, gate: Gate) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def report(progress: float, total: float | None, text: str | None) -> None:
        seen.append((progress, total, text))
        gate.open()

    async def main() -> None:
        async with client:
            result = await client.call_tool("steps", {"folder": str(gate.folder)}, progress_callback=report)
        assert result.content[0].text == "done"

    anyio.run(main)
    assert seen == [(1, 3, "one"), (3, 3, "three")]


def test_a_client_that_gives_up_frees_the_worker(client: Any, gate: Gate) -> None:
    async def main() -> None:
        async with client, anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "sleep", {"folder": str(gate.folder)})
            await anyio.to_thread.run_sync(lambda: until(lambda: gate.marks("sleeps")))
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                # The one worker is free again.
                result = await client.call_tool("add", {"a": 1})
            assert result.structured_content == {"result": 2}

    anyio.run(main)
