"""Servers: what their listeners do in rare cases. The code that runs for each connection is compiled."""

from __future__ import annotations

from asyncio import constants, trsock
from asyncio.log import logger
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket


class Accepting:
    """The part of a loop that accepts connections."""

    if TYPE_CHECKING:

        def call_exception_handler(self, context: dict[str, Any]) -> None: ...
        def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> object: ...
        def _remove_reader(self, fd: int, /) -> bool: ...
        def _start_serving(self, protocol_factory: Callable[[], Any], sock: socket, *rest: Any) -> None: ...

    def _accept_failed(
        self, error: OSError, protocol_factory: Callable[[], Any], sock: socket, *rest: Any
    ) -> None:
        """Report that no connection can be accepted now, and try again after a second."""
        self.call_exception_handler(
            {
                "message": f"socket.accept() out of system resource: {error.strerror}",
                "exception": error,
                "socket": trsock.TransportSocket(sock),
            }
        )
        self._remove_reader(sock.fileno())
        self.call_later(constants.ACCEPT_RETRY_DELAY, self._accept_again, protocol_factory, sock, *rest)

    def _accept_again(self, protocol_factory: Callable[[], Any], sock: socket, *rest: Any) -> None:
        # The server may have been closed meanwhile.
        if sock.fileno() >= 0:
            self._start_serving(protocol_factory, sock, *rest)

    # --- debug mode ----------------------------------------------------------------------------------------------

    def _note_accepted(self, server: Any, address: Any, connection: socket) -> None:
        logger.debug("%r got a new connection from %r: %r", server, address, connection)

    def _not_opened(self, error: BaseException, protocol: Any) -> None:
        context = {
            "message": "Error on transport creation for incoming connection",
            "exception": error,
        }
        if protocol is not None:
            context["protocol"] = protocol
        self.call_exception_handler(context)
