"""The event loops on which contests run."""

from __future__ import annotations

import asyncio
import importlib

#: Ropewalk and its peers, with the modules that each needs; those that are not installed are left out.
PLAYERS: dict[str, tuple[str, ...]] = {
    "ropewalk": ("ropewalk",),
    "asyncio": (),
    "uvloop": ("uvloop",),
    "rloop": ("rloop",),
    "rsloop": ("rsloop",),
    "zuvloop": ("zuvloop",),
}
#: The peers, for lines without a goal against each.
PEERS = dict.fromkeys(name for name in PLAYERS if name != "ropewalk")


def new_loop(name: str) -> asyncio.AbstractEventLoop:
    """A loop of that package."""
    if name == "asyncio":
        return asyncio.new_event_loop()
    made: asyncio.AbstractEventLoop = importlib.import_module(name).new_event_loop()
    return made
