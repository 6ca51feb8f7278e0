"""The readers of streams: asyncio's, with compiled `read` and `readexactly`."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from ropewalk._load import loop as _core


def speed_up(protocol: asyncio.BaseProtocol) -> None:
    """Replace the class of the reader behind asyncio's stream protocol by the compiled one."""
    if type(protocol) is asyncio.StreamReaderProtocol:
        reader = cast("Any", protocol)._stream_reader
        if type(reader) is asyncio.StreamReader:
            reader.__class__ = _core.StreamReader
