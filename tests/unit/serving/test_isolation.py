"""What callers do not see of each other, and a forked child not of its parent's server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.forking import in_a_child
from tests.unit.serving.conftest import call

from ropewalk.serving import Server, ServingError

TOOLS = """
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Annotated

from pydantic import AfterValidator

from ropewalk.serving import tool

CALLER = ContextVar("CALLER", default="nobody")


@tool
def before(caller: str) -> str:
    found = CALLER.get()
    CALLER.set(caller)
    return found


def noted(caller: str) -> str:
    CALLER.set(f"{caller}, as read")
    return caller


@tool
def read(caller: Annotated[str, AfterValidator(noted)]) -> Iterator[str]:
    yield CALLER.get()


@tool
def steps(caller: str) -> Iterator[str]:
    yield CALLER.get()
    CALLER.set(caller)
    yield CALLER.get()
    yield CALLER.get()


@tool(batch=4)
def together(caller: list[str]) -> list[str]:
    found = CALLER.get()
    CALLER.set("one of a batch")
    return [found] * len(caller)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the tools above, with one worker."""
    pytest.importorskip("pydantic")
    file = tmp_path_factory.mktemp("isolation") / "tools_of_isolation.py"
    file.write_text(TOOLS)
    with Server(file, http="127.0.0.1:0", workers=1) as made:
        yield made


def test_context_variables_are_those_of_a_call(server: Server) -> None:
    for _ in range(2):
        assert call(server, "before", {"caller": "alice"}).json == "nobody"
        assert call(server, "together", {"caller": "bob"}).json == "nobody"
        assert call(server, "read", {"caller": "eve"}).body == b'"eve, as read"\n'
        items = call(server, "steps", {"caller": "carol"}).body.splitlines()
        assert [json.loads(item) for item in items] == ["nobody", "carol", "carol"]


def test_a_forked_child_leaves_its_parents_server_alone(server: Server) -> None:
    def use() -> None:
        for refused in (server.drain, server.reload, server.wait_ready):
            with pytest.raises(ServingError, match="a forked child"):
                refused()
        server.close()

    assert in_a_child(use) == 0
    assert call(server, "before", {"caller": "dave"}).json == "nobody"
