"""`StreamReader`: asyncio's reader, with compiled `read` and `readexactly`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from ropewalk._load import loop as _core

if TYPE_CHECKING:
    from collections.abc import Awaitable


class StreamReader(asyncio.StreamReader):
    """The reader of a connection: asyncio's class and state, with two methods replaced."""

    def read(self, n: int = -1) -> Awaitable[bytes]:  # type: ignore[override]
        """As `asyncio.StreamReader.read`."""
        return _core._read(self, n, False) if n > 0 else super().read(n)

    def readexactly(self, n: int) -> Awaitable[bytes]:  # type: ignore[override]
        """As `asyncio.StreamReader.readexactly`."""
        return _core._read(self, n, True) if n > 0 else super().readexactly(n)


_core._set_reader_class(StreamReader)


def speed_up(protocol: asyncio.BaseProtocol) -> None:
    """Replace the class of the reader behind asyncio's stream protocol by `StreamReader`."""
    if type(protocol) is asyncio.StreamReaderProtocol:
        reader = cast("Any", protocol)._stream_reader
        if type(reader) is asyncio.StreamReader:
            reader.__class__ = StreamReader
