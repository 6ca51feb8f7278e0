"""Waiting for several sockets, descriptors and file objects at once."""

from __future__ import annotations

from typing import Any

from ropewalk.zmq import _compiled
from ropewalk.zmq._enums import PollEvent

_BOTH = PollEvent.POLLIN | PollEvent.POLLOUT


class Poller:
    """Waits for sockets, descriptors and objects with a ``fileno()``, in any mixture.

    Examples:
        >>> import ropewalk.zmq as zmq
        >>> with zmq.Context() as context, context.socket(zmq.PULL) as inbox:
        ...     poller = zmq.Poller()
        ...     poller.register(inbox, zmq.POLLIN)
        ...     dict(poller.poll(0))
        {}
    """

    def __init__(self) -> None:
        #: The registered sockets and descriptors with their flags, in the order of registration.
        self.sockets: list[tuple[Any, int]] = []
        self._map: dict[Any, int] = {}

    def __contains__(self, socket: object) -> bool:
        return socket in self._map

    def register(self, socket: Any, flags: int = _BOTH) -> None:
        """Register a socket or descriptor; with `flags` 0, unregister it if it is registered."""
        place = self._map.get(socket)
        if flags:
            if place is None:
                self._map[socket] = len(self.sockets)
                self.sockets.append((socket, flags))
            else:
                self.sockets[place] = (socket, flags)
        elif place is not None:
            self.unregister(socket)

    def modify(self, socket: Any, flags: int = _BOTH) -> None:
        """Change the flags of a registered socket or descriptor."""
        self.register(socket, flags)

    def unregister(self, socket: Any) -> None:
        """Unregister a socket or descriptor.

        Raises:
            KeyError: It is not registered.
        """
        place = self._map.pop(socket)
        del self.sockets[place]
        for later, (moved, _) in enumerate(self.sockets[place:], place):
            self._map[moved] = later

    def poll(self, timeout: float | None = None) -> list[tuple[Any, int]]:
        """Wait until a socket or descriptor is ready, at most `timeout` milliseconds; `None` or negative for ever.

        Returns:
            Pairs of what is ready and its flags: a socket as itself, any other object as its descriptor.
        """
        return _compiled.zmq_poll(self.sockets, -1 if timeout is None or timeout < 0 else int(timeout))


def select(
    rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """Wait as `select.select` does, for sockets too, at most `timeout` seconds.

    Returns:
        Three lists: ready to read, ready to write, failed. Objects that are no sockets appear as descriptors.
    """
    wanted: dict[Any, int] = {}
    for flag, sockets in (
        (PollEvent.POLLIN, rlist),
        (PollEvent.POLLOUT, wlist),
        (PollEvent.POLLERR, xlist),
    ):
        for socket in sockets:
            wanted[socket] = wanted.get(socket, 0) | flag
    milliseconds = -1 if timeout is None or timeout < 0 else int(timeout * 1000)
    ready = _compiled.zmq_poll(list(wanted.items()), milliseconds)
    readable = [socket for socket, flags in ready if flags & PollEvent.POLLIN]
    writable = [socket for socket, flags in ready if flags & PollEvent.POLLOUT]
    failed = [socket for socket, flags in ready if flags & PollEvent.POLLERR]
    return readable, writable, failed


__all__ = ["Poller", "select"]
