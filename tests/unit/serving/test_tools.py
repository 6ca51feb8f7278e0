"""`@tool`: what it accepts, and what it leaves as it was."""

from __future__ import annotations

import pickle
import types
from pathlib import Path
from typing import Any

import pytest

import ropewalk
from ropewalk.serving import Server, ServingError, Tool, tool
from ropewalk.serving._tool import tool_of
from ropewalk.serving._worker import tools_of


def plain(a: int) -> int:
    """Doubles.

    And no more.
    """
    return a * 2


@tool
def marked(a: int) -> int:
    return a * 3


def test_a_tool_stays_the_function_that_it_was() -> None:
    assert tool(plain) is plain
    assert (plain(2), marked(2)) == (4, 6)
    assert pickle.loads(pickle.dumps(marked)) is marked
    with ropewalk.Pool(1, kind="process") as pool:
        assert pool.submit(marked, 3).result() == 9


def test_a_tool_has_the_name_and_the_docstring_of_its_function() -> None:
    made = tool_of(tool(plain))
    assert made == Tool(
        plain, "plain", "Doubles.\n\nAnd no more.", False, None, None, None, False, False, None
    )
    assert tool_of(marked).description == ""  # type: ignore[union-attr]
    assert tool_of(3) is tool_of(len) is tool_of(lambda: 0) is None


def test_settings_are_kept() -> None:
    def warm() -> None: ...

    @tool(name="a.b-c_1", description="d", pool="p", timeout=1, deadline=2.5, idempotent=True, warmup=warm)
    def other() -> None: ...

    made = tool_of(other)
    assert made is not None
    assert (made.name, made.description, made.pool, made.timeout, made.deadline, made.idempotent) == (
        "a.b-c_1",
        "d",
        "p",
        1.0,
        2.5,
        True,
    )
    assert made.warmup is warm


def test_generators_stream() -> None:
    @tool
    def items() -> Any:
        yield 1

    @tool
    async def later() -> Any:
        yield 1

    assert [tool_of(one).streams for one in (items, later, marked)] == [True, True, False]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"name": "a b"}, ServingError, "up to 64 of the characters"),
        ({"name": "x" * 65}, ServingError, "up to 64"),
        ({"name": ""}, ServingError, "not ''"),
        ({"name": 3}, TypeError, "name must be a text"),
        ({"description": 3}, TypeError, "description must be"),
        ({"timeout": 0}, ValueError, "timeout must be more than 0"),
        ({"timeout": "1 x"}, ValueError, "timeout must be a number"),
        ({"timeout": "0 s"}, ValueError, "timeout must be more than 0"),
        ({"timeout": []}, TypeError, "timeout must be a number"),
        ({"deadline": -1}, ValueError, "deadline must be more than 0"),
        ({"idempotent": 1}, TypeError, "idempotent must be True or False"),
        ({"warmup": 1}, TypeError, "warmup must be a callable"),
        ({"pool": 1}, TypeError, "pool must be a text"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        tool(**settings)(lambda: None)


def test_what_cannot_be_a_tool() -> None:
    async def coroutine() -> None: ...

    with pytest.raises(ServingError, match="is a coroutine function"):
        tool(coroutine)
    with pytest.raises(ServingError, match="the warmup 'coroutine' is a coroutine function"):
        tool(warmup=coroutine)
    with pytest.raises(ServingError, match="marks functions"):
        tool(len)


def test_tools_of_a_module_are_found_by_their_names() -> None:
    module = types.ModuleType("some")
    module.__dict__.update(one=marked, again=marked, other=plain, number=3)
    assert set(tools_of(module)) == {"marked", "plain"}

    @tool(name="marked")
    def rival() -> None: ...

    module.__dict__["rival"] = rival
    with pytest.raises(ValueError, match="two tools have the name 'marked'"):
        tools_of(module)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1", "has no tools"),
        ("1 / 0", "fails when it is imported"),
        ("@tool\ndef f(*a): ...", "the parameter 'a' of 'f' has no name"),
        ("@tool(name='_unknown')\ndef f(): ...", "none of the last three first, and not '_unknown'"),
        ("@tool(name='..')\ndef f(): ...", "none of the last three first, and not '..'"),
        ("@tool\ndef f(a, /): ...", "the parameter 'a' of 'f' has no name"),
        ("@tool\ndef f(a: 'Missing'): ...", "the annotations of the tool 'f' cannot be resolved"),
        ("@tool\ndef f(a: 3): ...", "of the tool 'f' cannot be"),
        ("@tool\ndef f(): ...\n@tool(name='f')\ndef g(): ...", "two tools have the name 'f'"),
    ],
)
def test_files_that_cannot_be_served(tmp_path: Path, source: str, words: str) -> None:
    pytest.importorskip("pydantic")
    file = tmp_path / "app.py"
    file.write_text(f"from ropewalk.serving import tool\n{source}\n")
    with pytest.raises(ServingError, match=words):
        Server(file)
    with pytest.raises(ServingError, match="there is no file"):
        Server(tmp_path / "none.py")


def test_a_process_that_loads_a_tool_does_not_load_the_server(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom ropewalk.serving import tool, ToolError\n@tool\ndef f(): ...\n"
        "print([name for name in sys.modules if name in "
        "('ropewalk._core', 'ropewalk.serving._server', 'pydantic', 'msgspec', 'asyncio')])"
    )
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
