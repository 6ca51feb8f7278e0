"""Whose loop a contest runs on."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _measure import Case

#: Ropewalk first, then its peers; those that are not installed are left out.
LOOPS = ("ropewalk", "asyncio", "uvloop", "rloop", "rsloop", "zuvloop")


def new_loop(name: str) -> asyncio.AbstractEventLoop:
    """A loop of that package."""
    if name == "asyncio":
        return asyncio.new_event_loop()
    made: asyncio.AbstractEventLoop = importlib.import_module(name).new_event_loop()
    return made


def cases(
    contest: str, arguments: dict[str, object], loops: tuple[str, ...] = LOOPS, prefix: str = ""
) -> list[Case]:
    """One contest on every loop."""
    from _measure import Case

    return [
        Case(
            prefix + name,
            contest,
            arguments | {"loop_of": name},
            () if name == "asyncio" else (name,),
            timeout=60.0,
        )
        for name in loops
    ]
