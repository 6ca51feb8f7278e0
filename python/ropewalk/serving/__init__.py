"""Serving: functions as tools, which programs in any language call over HTTP, gRPC and Connect.

@tool
def add(a: int, b: int = 1) -> int:
    return a + b

with Server("app.py", http="127.0.0.1:8080") as server:     # or: ropewalk serve app.py
    server.wait()

A tool is a plain function in a file or a module. It runs on a worker of a pool; the program that has the server only
passes bytes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ropewalk._errors import ServingError, ToolError, ToolStatus
from ropewalk.serving._tool import Tool, tool

if TYPE_CHECKING:
    from ropewalk.serving._server import Server

__all__ = ["Server", "ServingError", "Tool", "ToolError", "ToolStatus", "tool"]


def __getattr__(name: str) -> object:
    # Workers load the modules of tools, and must not load what makes pools.
    if name != "Server":
        raise AttributeError(f"module 'ropewalk.serving' has no attribute {name!r}")
    from ropewalk.serving._server import Server

    return Server


def __dir__() -> list[str]:
    return sorted(__all__)
