"""`StreamTransport`: the transport of a connected socket."""

from __future__ import annotations

import asyncio
from asyncio import constants, trsock
from typing import TYPE_CHECKING, Any
from weakref import ref

from ropewalk._load import loop as _core
from ropewalk.loop._transport import WritingTransport

if TYPE_CHECKING:
    from socket import socket


class _Socket(trsock.TransportSocket):
    """The socket that a program gets from its transport, which gathers no writes once the program uses it."""

    __slots__ = ("_transport",)

    def __init__(self, sock: socket, transport: ref[StreamTransport]) -> None:
        super().__init__(sock)
        self._transport = transport

    def _show(self) -> None:
        transport = self._transport()
        if transport is not None:
            transport._show_descriptor()

    def fileno(self) -> int:
        self._show()
        return super().fileno()

    def dup(self) -> socket:
        self._show()
        return super().dup()

    def shutdown(self, how: int) -> None:
        self._show()
        super().shutdown(how)


class StreamTransport(WritingTransport, _core.Stream):
    """A connected TCP or Unix socket: an `asyncio.Transport`.

    The transport sends what is written at once if nothing waits before it. Of a connection that a server accepted it
    may send what one callback writes together, when the callback ends.
    """

    #: asyncio's `start_tls` accepts the transport.
    _start_tls_compatible = True
    _sendfile_compatible = constants._SendfileMode.TRY_NATIVE
    #: asyncio's transports have the method that reads here. The core reads, so there is none.
    _read_ready_cb: None = None

    if TYPE_CHECKING:
        _extra: dict[str, Any]

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the connection's `socket`, `sockname` or `peername`, or what TLS adds."""
        found = self._info(name, default)
        if name == "socket" and not isinstance(found, trsock.TransportSocket):
            found = self._extra[name] = _Socket(found, ref(self))
        return found

    def _state(self) -> str:
        state = super()._state()
        if state == "open":
            state = "reading" if self.is_reading() else "paused"
        return state

    def can_write_eof(self) -> bool:
        """Return True: each direction of a socket can be closed by itself."""
        return True

    # --- called by asyncio's sendfile ----------------------------------------------------------------------------

    def _make_empty_waiter(self) -> asyncio.Future[None]:
        if self._empty_waiter is not None:
            raise RuntimeError("Empty waiter is already set")
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._empty_waiter = waiter
        if not self.get_write_buffer_size():
            waiter.set_result(None)
        return waiter

    def _reset_empty_waiter(self) -> None:
        self._empty_waiter = None


_core._set_transport_class(StreamTransport)
