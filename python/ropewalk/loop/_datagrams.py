"""`DatagramTransport`: an endpoint of datagrams."""

from __future__ import annotations

import asyncio
from asyncio import trsock
from socket import SOCK_DGRAM, socket as plain_socket
from typing import TYPE_CHECKING, Any

from ropewalk._load import loop as _core
from ropewalk.loop._transport import WritingTransport

if TYPE_CHECKING:
    from socket import socket

    from ropewalk.loop._loop import Loop

#: The longest datagram: asyncio's own limit.
_LONGEST = 256 * 1024
#: Seconds until a datagram is sent again for which the receiver's queue had no room.
_PATIENCE = 0.001


class DatagramTransport(  # pyright: ignore[reportIncompatibleMethodOverride]
    WritingTransport, _core.Datagram, asyncio.DatagramTransport
):
    """A socket for datagrams, connected or not: an `asyncio.DatagramTransport`."""

    def __init__(
        self,
        loop: Loop,
        sock: socket,
        protocol: asyncio.BaseProtocol,
        address: Any = None,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        self._extra = {} if extra is None else extra
        self._extra["socket"] = trsock.TransportSocket(sock)
        self._extra["sockname"] = _asked(sock.getsockname)
        peer = _asked(sock.getpeername)
        self._extra.setdefault("peername", peer)
        self._attach(loop, sock, protocol)
        # A subclass of sockets may have methods of its own for datagrams.
        is_plain = type(sock) is plain_socket and sock.type == SOCK_DGRAM
        self._set_peer(address or None, peer is not None, int(sock.family) if is_plain else None)
        loop._transports[self._sock_fd] = self
        self._begin(waiter)

    # --- called by the core, for sockets and addresses that it does not know ---------------------------------------

    def _receive_by_object(self) -> tuple[bytes, Any] | None:
        try:
            data, sender = self._sock.recvfrom(_LONGEST)
        except (BlockingIOError, InterruptedError):
            return None
        return data, sender

    def _send_by_object(self, data: bytes, address: Any) -> bool:
        """Send a datagram; return whether there was room."""
        try:
            if self._extra["peername"]:
                self._sock.send(data)
            else:
                self._sock.sendto(data, address)
        except (BlockingIOError, InterruptedError):
            return False
        return True

    def _retry_later(self) -> None:
        self._loop.call_later(_PATIENCE, self._retry)


def _asked(question: Any) -> Any:
    try:
        return question()
    except OSError:
        return None
