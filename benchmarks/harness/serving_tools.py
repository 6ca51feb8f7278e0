"""The tools of the suite `serving`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from ropewalk.serving import tool


@tool
def echo(text: str) -> dict[str, str]:
    """Says the text again."""
    return {"text": text}


@tool
def work(seconds: float) -> None:
    """Takes so long."""
    time.sleep(seconds)


@tool
def spin(folder: str) -> int:
    """Says that it has begun, and stays in C code with the interpreter's lock."""
    Path(folder, f"spins-{os.getpid()}").touch()
    return sum(range(10**12))


@tool
def numbers(count: int) -> Iterator[int]:
    """A stream."""
    yield from range(count)


@tool(pool="heavy")
def product(size: int) -> float:
    """The trace of a matrix product."""
    import numpy as np

    made = np.ones((size, size))
    return float((made @ made).trace())


@tool
def single(item: int) -> int:
    """Costs 2 ms, and a tenth for the item."""
    time.sleep(0.0021)
    return item


@tool(batch=64, window="1 ms")
def together(item: list[int]) -> list[int]:
    """Costs 2 ms, and a tenth for each item."""
    time.sleep(0.002 + 0.0001 * len(item))
    return item
