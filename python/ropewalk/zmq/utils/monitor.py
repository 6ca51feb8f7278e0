"""Decodes the messages of a monitor socket into dictionaries."""

from __future__ import annotations

import struct
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypedDict, cast, overload

from ropewalk.zmq.constants import Event

if TYPE_CHECKING:
    import ropewalk.zmq.asyncio
    from ropewalk.zmq._socket import Socket

# Version 1 of the events: a number of 16 bits and a value of 32 bits.
_HEAD = struct.Struct("=Hi")


class _MonitorMessage(TypedDict):
    #: The kind of event.
    event: int
    #: The event's value: a descriptor, an errno, an interval in ms or the code of a failed handshake.
    value: int
    #: The event's endpoint.
    endpoint: bytes


def parse_monitor_message(msg: list[bytes]) -> _MonitorMessage:
    """Return the event in the two parts of a monitor's message.

    Raises:
        RuntimeError: the message is malformed.
    """
    if len(msg) != 2 or len(msg[0]) != _HEAD.size:
        raise RuntimeError(f"not a message of a monitor: {msg}")
    event, value = _HEAD.unpack(msg[0])
    return {"event": Event(event), "value": value, "endpoint": msg[1]}


async def _parse_later(msg: Awaitable[list[bytes]]) -> _MonitorMessage:
    return parse_monitor_message(await msg)


@overload
def recv_monitor_message(
    socket: ropewalk.zmq.asyncio.Socket, flags: int = 0
) -> Awaitable[_MonitorMessage]: ...
@overload
def recv_monitor_message(socket: Socket[bytes], flags: int = 0) -> _MonitorMessage: ...
def recv_monitor_message(socket: Socket[Any], flags: int = 0) -> _MonitorMessage | Awaitable[_MonitorMessage]:
    """Return the next event of a monitor socket; if the socket is asynchronous, an awaitable of it."""
    msg: Any = socket.recv_multipart(flags)
    if isinstance(msg, Awaitable):
        return _parse_later(cast("Awaitable[list[bytes]]", msg))
    return parse_monitor_message(msg)


__all__ = ["parse_monitor_message", "recv_monitor_message"]
