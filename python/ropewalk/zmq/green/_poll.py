"""Waiting for several sockets and descriptors, while other greenlets run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ropewalk.zmq import _compiled
from ropewalk.zmq._poll import Poller as _Poller
from ropewalk.zmq.constants import POLLIN, POLLOUT
from ropewalk.zmq.green import _hub
from ropewalk.zmq.green._socket import Socket

if TYPE_CHECKING:
    from collections.abc import Sequence


def zmq_poll(sockets: Sequence[tuple[Any, int]], timeout: int = -1) -> list[tuple[Any, int]]:
    """As `ropewalk.zmq.zmq_poll`."""
    return _poll(sockets, timeout)


def _poll(sockets: Sequence[tuple[Any, int]], timeout: float) -> list[tuple[Any, int]]:
    end = _hub.deadline(timeout)
    while True:
        ready: list[tuple[Any, int]] = _compiled.zmq_poll(sockets, 0)
        if ready or timeout == 0 or not sockets:
            return ready
        if not _await(sockets, _hub.left(end)):
            return _compiled.zmq_poll(sockets, 0)


def _await(sockets: Sequence[tuple[Any, int]], seconds: float | None) -> bool:
    """Waits until one of them may be ready; false after this time."""
    event = _hub.Event()
    joined: list[tuple[Any, Any]] = []
    watchers: list[Any] = []
    try:
        for what, flags in sockets:
            if isinstance(what, Socket):
                joined.append((what, what._join(flags, event)))
                continue
            descriptor = what if isinstance(what, int) else what.fileno()
            is_socket = isinstance(what, _compiled.Socket)
            # A blocking socket's descriptor reports every change by becoming readable.
            wanted = _hub.READ if is_socket or flags & POLLIN else 0
            wanted |= _hub.WRITE if flags & POLLOUT and not is_socket else 0
            watchers.append(_hub.watch(descriptor, wanted or _hub.READ, event.set))
        return bool(event.wait(seconds))
    finally:
        for watcher in watchers:
            watcher.stop()
        for socket, waiter in joined:
            socket._leave(waiter)


class Poller(_Poller):
    """As `ropewalk.zmq.Poller`, while other greenlets run."""

    def poll(self, timeout: float | None = None) -> list[tuple[Any, int]]:
        """As `ropewalk.zmq.Poller.poll`."""
        return _poll(self.sockets, -1 if timeout is None else timeout)


__all__ = ["Poller", "zmq_poll"]
