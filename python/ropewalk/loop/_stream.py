"""`StreamTransport`: the transport of a connected socket."""

from __future__ import annotations

import asyncio
import warnings
from asyncio import constants, futures, transports, trsock
from asyncio.log import logger
from socket import AF_INET, AF_INET6, IPPROTO_TCP, SOCK_STREAM, TCP_NODELAY
from typing import TYPE_CHECKING, Any

from ropewalk._load import loop as _core
from ropewalk.loop._reader import speed_up

if TYPE_CHECKING:
    from socket import socket

    from ropewalk.loop._loop import Loop

_MISSING = object()
#: Type checkers do not know asyncio's private names.
_futures: Any = futures


class StreamTransport(_core.Stream):
    """A connected TCP or Unix socket: an `asyncio.Transport`.

    The transport collects writes and sends them together: when `data_received` returns, or else in the next iteration
    of the loop. It sends data above the high-water mark at once.
    """

    #: asyncio's `start_tls` accepts the transport.
    _start_tls_compatible = True
    _sendfile_compatible = constants._SendfileMode.TRY_NATIVE

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
        self._extra["socket"] = trsock.TransportSocket(sock)
        self._attach(loop, sock, protocol, server)
        if not loop.get_debug():
            speed_up(protocol)
        if sock.family in (AF_INET, AF_INET6) and sock.type == SOCK_STREAM and sock.proto in (0, IPPROTO_TCP):
            # Without Nagle's algorithm, so that a small write does not wait for the acknowledgement of earlier ones.
            sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        if server is not None:
            _attach_to_server(server, self)
        loop._transports[self._sock_fd] = self
        loop.call_soon(protocol.connection_made, self)
        # Reading starts only after that: `connection_made` is called before `data_received`.
        loop.call_soon(self._start_reading)
        if waiter is not None:
            loop.call_soon(_futures._set_result_unless_cancelled, waiter, None)

    def __repr__(self) -> str:
        if self._sock is None:
            state = "closed"
        elif self.is_closing():
            state = "closing"
        else:
            state = "reading" if self.is_reading() else "paused"
        return f"<{type(self).__name__} {state} fd={self._sock_fd} bufsize={self.get_write_buffer_size()}>"

    def __del__(self, _warn: Any = warnings.warn) -> None:
        sock = self._sock
        if sock is not None:
            _warn(f"unclosed transport {self!r}", ResourceWarning, source=self)
            server = self._detach()
            sock.close()
            if server is not None:
                _detach_from_server(server, self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information about the connection: `socket`, `sockname`, `peername`, and what TLS adds."""
        known = self._extra.get(name, _MISSING)
        if known is not _MISSING:
            return known
        if name in ("sockname", "peername") and self._sock is not None:
            try:
                address = self._sock.getsockname() if name == "sockname" else self._sock.getpeername()
            except OSError:
                address = None
            self._extra[name] = address
            return address
        return default

    def can_write_eof(self) -> bool:
        """Return True: each direction of a socket can be closed by itself."""
        return True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks of flow control in bytes; by default `high` is 64 KiB, and `low` a quarter of `high`."""
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._set_limits(high, low)

    # --- called by the core --------------------------------------------------------------------------------------

    def _pause_protocol(self) -> None:
        self._call_protocol("pause_writing")

    def _resume_protocol(self) -> None:
        self._call_protocol("resume_writing")

    def _call_protocol(self, what: str) -> None:
        protocol, loop = self._protocol, self._loop
        try:
            getattr(protocol, what)()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            loop.call_exception_handler(
                {
                    "message": f"protocol.{what}() failed",
                    "exception": error,
                    "transport": self,
                    "protocol": protocol,
                }
            )

    def _warn_lost(self) -> None:
        logger.warning("socket.send() raised exception.")

    def _fatal_error(self, error: BaseException, message: str = "Fatal error on transport") -> None:
        if isinstance(error, OSError):
            if self._loop.get_debug():
                logger.debug("%r: %s", self, message, exc_info=error)
        else:
            self._loop.call_exception_handler(
                {
                    "message": message,
                    "exception": error,
                    "transport": self,
                    "protocol": self._protocol,
                }
            )
        self._force_close(error)

    def _schedule_connection_lost(self, error: BaseException | None) -> None:
        self._loop.call_soon(self._call_connection_lost, error)

    def _call_connection_lost(self, error: BaseException | None) -> None:
        sock, protocol = self._sock, self._protocol
        if sock is None:
            return
        try:
            if protocol is not None:
                # As in asyncio's transports, whatever class the error has.
                protocol.connection_lost(error)  # type: ignore[arg-type]
        finally:
            waiter = self._empty_waiter
            # `get_extra_info` still returns them after the end.
            self.get_extra_info("sockname")
            self.get_extra_info("peername")
            server = self._detach()
            sock.close()
            if server is not None:
                _detach_from_server(server, self)
            if waiter is not None and not waiter.done():
                waiter.set_exception(ConnectionError("Connection is closed by peer"))

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
