"""Small modules under the names that programs for pyzmq import."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    # pyzmq loads this one by itself; here the first use does.
    if name == "jsonapi":
        return import_module("ropewalk.zmq.utils.jsonapi")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
