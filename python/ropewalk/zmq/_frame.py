"""One part of a message, with its properties."""

from __future__ import annotations

import sys

from ropewalk.zmq import _compiled
from ropewalk.zmq._enums import MessageOption
from ropewalk.zmq._options import OptionAttributes, names_of, repr_name

#: How many bytes a frame's ``repr`` shows of a long frame, and how long a frame may be to be shown completely.
_SHOWN, _WHOLE = 12, 16


def copy_threshold() -> int | None:
    """What `ropewalk.zmq.COPY_THRESHOLD` is now: a program may set it."""
    threshold: int | None = sys.modules["ropewalk.zmq"].COPY_THRESHOLD
    return threshold


class Frame(_compiled.Frame, OptionAttributes):
    """One part of a message: ``recv(copy=False)`` returns frames, and a frame can be sent repeatedly without a copy.

    The buffer protocol (``memoryview(frame)``, ``frame.buffer``) gives its bytes without a copy, ``frame.bytes`` copies
    them. Properties of the peer from the handshake are items: ``frame["User-Id"]``.

    Args:
        data: The content; any object with the buffer protocol.
        track: Whether to make a `MessageTracker`, which reports when the bytes were released.
        copy: Whether to copy the bytes now; by default only if they are fewer than `copy_threshold`.
        copy_threshold: In bytes, by default `COPY_THRESHOLD`.
    """

    _repr_name = "ropewalk.zmq.Frame"
    _copy_threshold = staticmethod(copy_threshold)

    _option_names = names_of(MessageOption)

    def __getitem__(self, name: int | str | bytes) -> int | str:
        found: int | str = self.get(name)
        return found

    def __repr__(self) -> str:
        size = len(self)
        whole = size <= _WHOLE
        shown = repr(self.bytes) if whole else f"{bytes(self.buffer[:_SHOWN])!r}...{_rounded(size)}"
        return f"<{repr_name(type(self))}({shown})>"

    @property
    def group(self) -> str:
        """The group to which the message was sent, or will be (RADIO and DISH)."""
        group: str = self.get("group")
        return group

    @group.setter
    def group(self, group: str | bytes) -> None:
        self.set("group", group)

    @property
    def routing_id(self) -> int:
        """The client from which the message came, or to which it will be sent (SERVER and PEER)."""
        number: int = self.get("routing_id")
        return number

    @routing_id.setter
    def routing_id(self, routing_id: int) -> None:
        self.set("routing_id", routing_id)


def _rounded(size: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size // unit}{name}"
    return f"{size}B"


Message = Frame

__all__ = ["Frame", "Message"]
