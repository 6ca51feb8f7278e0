"""`StreamTransport`: the transport of a connected socket."""

from __future__ import annotations

import asyncio
from asyncio import constants, transports, trsock
from typing import TYPE_CHECKING, Any
from weakref import ref

from ropewalk._load import loop as _core
from ropewalk.loop._reader import speed_up
from ropewalk.loop._transport import WritingTransport

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket

    from ropewalk.loop._loop import Loop


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

    def __init__(
        self,
        loop: Loop,
        sock: socket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
        server: Any = None,
    ) -> None:
        self._extra = {} if extra is None else extra
        self._extra["socket"] = _Socket(sock, ref(self))
        # Now, because the kernel forgets the peer of a connection that was reset. Accepted ones bring their peer along.
        self._extra["sockname"] = _address(sock.getsockname)
        if "peername" not in self._extra:
            self._extra["peername"] = _address(sock.getpeername)
        self._attach(loop, sock, protocol)
        if not loop.get_debug():
            speed_up(protocol)
        _core._send_without_delay(sock)
        if server is not None:
            self._server = server
            _attach_to_server(server, self)
        loop._transports.known[self._sock_fd] = ref(self)
        self._begin(loop, protocol, waiter)

    def _state(self) -> str:
        state = super()._state()
        if state == "open":
            state = "reading" if self.is_reading() else "paused"
        return state

    def _leave(self, file: socket) -> None:
        server, waiter = self._server, self._empty_waiter
        known, number = self._loop._transports.known, self._sock_fd
        if (weak := known.get(number)) is not None and weak() in (self, None):
            del known[number]
        super()._leave(file)
        if server is not None:
            _detach_from_server(server, self)
        if waiter is not None and not waiter.done():
            waiter.set_exception(ConnectionError("Connection is closed by peer"))

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


# Before 3.12 a server counts its connections; from 3.12 on it has the set of them.
if hasattr(asyncio.base_events.Server, "close_clients") or hasattr(asyncio.base_events.Server, "_clients"):

    def _attach_to_server(server: Any, transport: transports.Transport) -> None:
        server._attach(transport)

    def _detach_from_server(server: Any, transport: transports.Transport) -> None:
        server._detach(transport)

else:

    def _attach_to_server(server: Any, transport: transports.Transport) -> None:
        server._attach()

    def _detach_from_server(server: Any, transport: transports.Transport) -> None:
        server._detach()


def _address(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except OSError:
        return None
