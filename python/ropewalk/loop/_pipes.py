"""`ReadPipeTransport` and `WritePipeTransport`: what reads from a pipe, and what writes to one."""

from __future__ import annotations

import errno
import os
from stat import S_ISCHR, S_ISFIFO, S_ISSOCK
from typing import TYPE_CHECKING, Any

from ropewalk._load import loop as _core
from ropewalk.loop._transport import BaseTransport, WritingTransport

if TYPE_CHECKING:
    import asyncio

    from ropewalk.loop._loop import Loop


def _prepare(pipe: Any) -> int:
    """Check that a file can be waited for, switch its blocking off, and return its mode."""
    mode = os.fstat(pipe.fileno()).st_mode
    if not (S_ISFIFO(mode) or S_ISSOCK(mode) or S_ISCHR(mode)):
        raise ValueError("Pipe transport is only for pipes, sockets and character devices")
    os.set_blocking(pipe.fileno(), False)
    return mode


class ReadPipeTransport(BaseTransport, _core.ReadPipe):
    """The reading end of a pipe, a socket or a terminal: an `asyncio.ReadTransport`."""

    def __init__(
        self,
        loop: Loop,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        self._extra = {} if extra is None else extra
        self._extra["pipe"] = pipe
        _prepare(pipe)
        self._attach(loop, pipe, protocol)
        self._begin(waiter)

    def _details(self) -> list[str]:
        return ["reading" if self.is_reading() else "not reading"]

    # --- called by the core --------------------------------------------------------------------------------------

    def _at_end(self) -> None:
        self._loop.call_soon(self._protocol.eof_received)

    def _fatal_error(self, error: BaseException, message: str = "Fatal error on pipe transport") -> None:
        # A terminal reports the end of its other side so; asyncio reports every other error, whatever its class.
        if not (isinstance(error, OSError) and error.errno == errno.EIO):
            self._report(error, message)
        self._force_close(error)


class WritePipeTransport(WritingTransport, _core.WritePipe):
    """The writing end of a pipe, a socket or a terminal: an `asyncio.WriteTransport`."""

    _lost_words = "pipe closed by peer or os.write(pipe, data) raised exception."

    def __init__(
        self,
        loop: Loop,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        self._extra = {} if extra is None else extra
        self._extra["pipe"] = pipe
        mode = _prepare(pipe)
        self._attach(loop, pipe, protocol)
        # What is typed into a terminal is not its end.
        self._has_reader = not S_ISCHR(mode)
        self._begin(waiter)

    def can_write_eof(self) -> bool:
        """Return True: the end of a pipe is its close."""
        return True

    def _start_reading(self) -> None:
        if self._has_reader:
            self._start_writing()
