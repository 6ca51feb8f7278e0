"""One part of a message, with its properties."""

from __future__ import annotations

from ropewalk.zmq import _compiled
from ropewalk.zmq._enums import MessageOption
from ropewalk.zmq._options import OptionAttributes, names_of

#: How much of a frame its ``repr`` shows, and how long one may be to be shown whole.
_SHOWN, _WHOLE = 12, 16


class Frame(_compiled.Frame, OptionAttributes):
    """One part of a message: what ``copy=False`` receives, and what can be sent several times without a copy.

    Its bytes are seen through the buffer protocol (``memoryview(frame)``, ``frame.buffer``) without a copy, or copied
    by ``frame.bytes``. What the peer and the handshake have said is under its name: ``frame["User-Id"]``.

    Args:
        data: What to send; anything with the buffer protocol.
        track: Whether to make a `MessageTracker`, which reports when the bytes were released.
        copy: Whether to copy them now; by default only what is smaller than `copy_threshold`.
        copy_threshold: In bytes, by default `COPY_THRESHOLD`.
    """

    __module__ = "ropewalk.zmq"

    _option_names = names_of(MessageOption)

    def __getitem__(self, name: int | str | bytes) -> int | str:
        found: int | str = self.get(name)
        return found

    def __repr__(self) -> str:
        size = len(self)
        whole = size <= _WHOLE
        shown = repr(self.bytes) if whole else f"{bytes(self.buffer[:_SHOWN])!r}...{_rounded(size)}"
        return f"<{type(self).__module__}.{type(self).__qualname__}({shown})>"

    @property
    def group(self) -> str:
        """The group that the message was, or is to be, sent to (RADIO and DISH)."""
        group: str = self.get("group")
        return group

    @group.setter
    def group(self, group: str | bytes) -> None:
        self.set("group", group)

    @property
    def routing_id(self) -> int:
        """The client that the message came from, or is to go to (SERVER and PEER)."""
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
