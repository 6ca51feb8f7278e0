"""What all transports have in common beside their compiled part: their errors, flow control, and their end."""

from __future__ import annotations

import asyncio
import warnings
import weakref
from asyncio.log import logger
from typing import TYPE_CHECKING, Any


class Transports:
    """The transports of a loop, by the numbers of their files; weak references, as in asyncio's loop."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        #: Also used directly, where it counts.
        self.known: dict[int, weakref.ref[Any]] = {}

    def __getitem__(self, number: int) -> Any:
        transport = self.known[number]()
        if transport is None:
            raise KeyError(number)
        return transport

    def get(self, number: int) -> Any:
        """Return the transport with this number, or None."""
        known = self.known.get(number)
        return None if known is None else known()

    def __setitem__(self, number: int, transport: Any) -> None:
        self.known[number] = weakref.ref(transport)

    def __delitem__(self, number: int) -> None:
        del self.known[number]


class BaseTransport:
    """The parts of a transport that are rare. The core calls some of them."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def _loop(self) -> Any: ...
        @property
        def _sock(self) -> Any: ...
        @_sock.setter
        def _sock(self, sock: Any) -> None: ...
        @property
        def _sock_fd(self) -> int: ...
        @property
        def _protocol(self) -> Any: ...
        def _attach(self, loop: Any, file: Any, protocol: asyncio.BaseProtocol, /) -> None: ...
        def _begin(self, waiter: asyncio.Future[None] | None, /) -> None: ...
        def _leave(self) -> None: ...
        def _force_close(self, error: BaseException | None, /) -> None: ...
        def is_closing(self) -> bool: ...

    def __repr__(self) -> str:
        return f"<{' '.join([type(self).__name__, self._state(), f'fd={self._sock_fd}', *self._details()])}>"

    def _state(self) -> str:
        if self._loop is None:
            return "closed"
        return "closing" if self.is_closing() else "open"

    def _details(self) -> list[str]:
        return []

    # --- called by the core --------------------------------------------------------------------------------------

    def _fatal_error(self, error: BaseException, message: str = "Fatal error on transport") -> None:
        if isinstance(error, OSError):
            if self._loop.get_debug():
                logger.debug("%r: %s", self, message, exc_info=error)
        else:
            self._report(error, message)
        self._force_close(error)

    def _callback_raised(self, error: BaseException, method: str) -> None:
        """Report an exception of a protocol's method after which the transport goes on."""
        self._report(error, f"Exception in callback {type(self._protocol).__name__}.{method}()")

    def _report(self, error: BaseException, message: str) -> None:
        self._loop.call_exception_handler(
            {
                "message": message,
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )

    def _unclosed(self, _warn: Any = warnings.warn) -> None:
        try:
            _warn(f"unclosed transport {self!r}", ResourceWarning, source=self)
        finally:
            self._leave()


class WritingTransport(BaseTransport):
    """The same for a transport that writes."""

    __slots__ = ()

    #: What asyncio's log says of writes that nobody receives.
    _lost_words = "socket.send() raised exception."

    if TYPE_CHECKING:

        def _set_limits(self, high: int, low: int, /) -> None: ...
        def get_write_buffer_size(self) -> int: ...

    def _details(self) -> list[str]:
        return [f"bufsize={self.get_write_buffer_size()}"]

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
        logger.warning(self._lost_words)
