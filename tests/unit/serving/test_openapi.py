"""What `/openapi.json` promises holds: schemathesis makes requests of it, sound and broken, and judges the answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ropewalk.serving import Server

pytest.importorskip("pydantic")
pytest.importorskip("numpy")
hypothesis = pytest.importorskip("hypothesis")
schemathesis = pytest.importorskip("schemathesis")

# Other people's code, which warns of what it deprecates itself.
pytestmark = pytest.mark.filterwarnings("default")

TOOLS = """
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ropewalk.serving import ToolError, tool
from ropewalk.state import Shm, float32, int8

@tool
def add(a: int, b: int = 1) -> int:
    return a + b

@dataclass
class Point:
    x: float
    y: float
    name: str | None = None

class Color(Enum):
    RED = "red"
    BLUE = "blue"

@tool
def path(points: list[Point], color: Color, mode: Literal["open", "closed"] = "open") -> dict[str, Any]:
    return {"count": len(points), "color": color, "mode": mode}

@tool
def reverse(data: bytes) -> bytes:
    return data[::-1]

@tool
def count(n: int) -> Iterator[int]:
    yield from range(min(n, 3))

@tool
def scale(points: Shm[float32, "n 2"], by: Shm[int8, "2"] | None = None) -> Shm[float32, "n 2"]:
    return points * (2 if by is None else by)

@tool
def same(value: Any) -> Any:
    return value

@tool
def refuse(code: Literal["NOT_FOUND", "PERMISSION_DENIED", "UNAVAILABLE", "RESOURCE_EXHAUSTED"]) -> int:
    raise ToolError("not today", code)
"""


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file = tmp_path_factory.mktemp("openapi") / "tools_that_are_described.py"
    file.write_text(TOOLS)
    with Server(file, http="127.0.0.1:0", workers=1) as made:
        assert made.wait_ready(60)
        yield made


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_answers_are_those_that_are_described(described: Server, mode: str) -> None:
    url = f"http://{described.http}"
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = {one.ok().label: one.ok() for one in schema.get_all_operations()}
    assert {"POST /v1/tools/add", "POST /v1/tools/refuse"} <= set(operations)
    for label, operation in operations.items():
        # What such a tool answers is its own choice, and arrays have laws that a schema cannot say: all rows of one
        # length. Everything else is to be accepted if it fits, and refused if it does not.
        free = label.rpartition("/")[2] in ("refuse", "scale")
        spared = [
            "not_a_server_error",
            *(["positive_data_acceptance", "negative_data_rejection"] if free else []),
        ]
        _hold(operation, url, mode, spared)


def _hold(operation: Any, url: str, mode: str, spared: list[str]) -> None:
    from schemathesis.checks import CHECKS
    from schemathesis.specs.openapi import checks  # noqa: F401

    spared_checks = CHECKS.get_by_names(spared)

    @hypothesis.given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    @hypothesis.settings(
        max_examples=12,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    def hold(case: Any) -> None:
        # A caller without patience is answered that its time is up.
        case.headers = {name: value for name, value in (case.headers or {}).items() if "Timeout" not in name}
        response = case.call(base_url=url, timeout=60)
        assert response.status_code != 500, (case.as_curl_command(), response.text)
        case.validate_response(response, excluded_checks=spared_checks)

    hold()
