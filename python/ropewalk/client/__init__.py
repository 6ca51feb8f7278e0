"""Clients of a server of tools, for threads and for asyncio, without another library.

with Client("http://127.0.0.1:8080") as client:
    client.call("add", a=1, b=2)
    for prime in client.stream("primes", above=99_000):
        ...

async with AsyncClient("http://127.0.0.1:8080") as client:
    await client.call("add", a=1, b=2)
"""

from __future__ import annotations

from ropewalk._errors import CallFailed, CallInvalid, CallRefused, CallTimeout, CallUnavailable
from ropewalk.client._async import AsyncClient, AsyncRemoteTool, AsyncSession, AsyncStream
from ropewalk.client._calls import ToolInfo
from ropewalk.client._sync import Client, RemoteTool, Session, Stream

__all__ = [
    "AsyncClient",
    "AsyncRemoteTool",
    "AsyncSession",
    "AsyncStream",
    "CallFailed",
    "CallInvalid",
    "CallRefused",
    "CallTimeout",
    "CallUnavailable",
    "Client",
    "RemoteTool",
    "Session",
    "Stream",
    "ToolInfo",
]
