"""Tools for callers in any language: `ropewalk serve examples/tools.py`.

curl http://127.0.0.1:8080/v1/tools/add -H 'content-type: application/json' -d '{"a": 2, "b": 3}'
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

import ropewalk
from ropewalk.serving import ToolError, tool


@dataclass
class Point:
    """A place on a plane."""

    x: float
    y: float


_primes: list[int] = []


def sieve() -> None:
    """Finds the primes below 100,000: what each worker does once, before its first call."""
    composite = bytearray(100_000)
    for number in range(2, len(composite)):
        if not composite[number]:
            _primes.append(number)
            composite[number * number :: number] = b"\1" * len(range(number * number, len(composite), number))


@tool(read_only=True)
def add(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b


@tool(idempotent=True)
def length(points: list[Point]) -> float:
    """The length of the line through some points."""
    pairs = itertools.pairwise(points)
    return sum(((b.x - a.x) ** 2 + (b.y - a.y) ** 2) ** 0.5 for a, b in pairs)


@tool(warmup=sieve, timeout=10)
def primes(above: int = 0) -> Iterator[int]:
    """The primes above a number, each as it is found."""
    if above >= _primes[-1]:
        raise ToolError(
            "only the primes below 100,000 are known", "INVALID_ARGUMENT", (("above", "too large"),)
        )
    yield from (number for number in _primes if number > above)


@tool
def greet() -> str:
    """Greets the caller by the name that came with the call."""
    task = ropewalk.current_task()
    name = task.metadata.get("name", "stranger") if task else "stranger"
    return f"Hello, {name}"


@tool
def wait(seconds: float) -> str:
    """Takes its time, for callers who try deadlines and cancellation. It ends early when it is cancelled."""
    end = time.monotonic() + seconds
    task = ropewalk.current_task()
    while time.monotonic() < end:
        if task and task.cancelled:
            return "cancelled"
        time.sleep(0.005)
    return "waited"


@tool(session=True, idle_timeout=60)
class Walk:
    """A walk on a plane, which remembers where it is."""

    def __init__(self, start: Point) -> None:
        self._at = start

    def go(self, dx: float = 0.0, dy: float = 0.0) -> Point:
        """Takes a step, and gives the new place."""
        self._at = Point(self._at.x + dx, self._at.y + dy)
        return self._at

    def spiral(self, steps: int) -> Iterator[Point]:
        """Takes steps that grow, and gives each place."""
        for step in range(steps):
            dx, dy = ((1, 0), (0, 1), (-1, 0), (0, -1))[step % 4]
            yield self.go(dx * step, dy * step)
