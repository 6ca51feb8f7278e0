"""Sockets whose waits let other greenlets run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import ropewalk.zmq as _zmq
from ropewalk.zmq.constants import (
    DONTWAIT,
    EVENTS,
    PEER,
    POLLIN,
    POLLOUT,
    RCVTIMEO,
    SERVER,
    SNDTIMEO,
    STREAM,
)
from ropewalk.zmq.error import Again, ZMQError
from ropewalk.zmq.green import _hub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_T = TypeVar("_T")
_EVENTS = int(EVENTS)
#: These report at once that the peer which a message names has no room.
_REFUSING = (SERVER, PEER, STREAM)


class Socket(_zmq.Socket[bytes]):
    """A socket that lets other greenlets run while it waits; else as `ropewalk.zmq.Socket`."""

    _repr_name = "ropewalk.zmq.green.Socket"

    #: What greenlets wait for, and how they are woken.
    _waiters: list[tuple[int, Any]]
    _watcher: Any

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.__dict__.update(_waiters=[], _watcher=None)
        super().__init__(*arguments, **options)

    def close(self, linger: int | None = None) -> None:
        """Close the socket; greenlets that wait for it get an error."""
        # Before the descriptor's number can be another's.
        self._unwatch()
        super().close(linger)
        for _, event in self._waiters:
            event.set()

    # --- waiting -----------------------------------------------------------------

    def _join(self, wanted: int, event: Any) -> tuple[int, Any]:
        """Set the event when one of these is possible, or the socket is closed."""
        waiter = (wanted, event)
        self._waiters.append(waiter)
        if self._watcher is None:
            self.__dict__["_watcher"] = _hub.watch(self.fileno(), _hub.READ, self._changed)
        # What has changed before is not reported any more.
        self._changed()
        return waiter

    def _leave(self, waiter: tuple[int, Any]) -> None:
        self._waiters.remove(waiter)
        if not self._waiters:
            self._unwatch()

    def _unwatch(self) -> None:
        watcher = self.__dict__.get("_watcher")
        self.__dict__["_watcher"] = None
        if watcher is not None:
            watcher.stop()

    def _changed(self) -> None:
        """Wake those whose wish can be met. Every operation may consume what the descriptor reports to others."""
        if not self._waiters:
            return
        try:
            ready: int = super().get(EVENTS)
        except ZMQError:
            ready = -1
        for wanted, event in self._waiters:
            if ready & wanted:
                event.set()

    def _try(self, wanted: int, timeout: int, flags: int, attempt: Callable[[int], _T]) -> _T:
        may_wait = not flags & DONTWAIT and not (wanted == POLLOUT and self.type in _REFUSING)
        end, in_vain = None, 0
        while True:
            try:
                return attempt(flags | DONTWAIT)
            except Again:
                if not may_wait:
                    raise
                if in_vain == 0:
                    end = _hub.deadline(super().get(timeout))
            finally:
                self._changed()
            in_vain += 1
            if in_vain > 3 and wanted == POLLOUT:
                # A ROUTER has room for some peer, but not for the one that the message names.
                _hub.pause()
            event = _hub.Event()
            waiter = self._join(wanted, event)
            try:
                woken = event.wait(_hub.left(end))
            finally:
                self._leave(waiter)
            if not woken:
                raise Again()

    # --- operations --------------------------------------------------------------

    def send(
        self,
        data: Any,
        flags: int = 0,
        copy: bool = True,
        track: bool = False,
        routing_id: int | None = None,
        group: str | bytes | None = None,
    ) -> Any:
        """As `ropewalk.zmq.Socket.send`."""
        call: Any = super().send

        def attempt(flags: int) -> Any:
            return call(data, flags, copy, track, routing_id, group)

        return self._try(POLLOUT, SNDTIMEO, flags, attempt)

    def send_multipart(
        self, msg_parts: Any, flags: int = 0, copy: bool = True, track: bool = False, **to: Any
    ) -> Any:
        """As `ropewalk.zmq.Socket.send_multipart`."""
        call: Any = super().send_multipart
        parts = list(msg_parts)
        return self._try(POLLOUT, SNDTIMEO, flags, lambda flags: call(parts, flags, copy, track, **to))

    def send_many(self, messages: Iterable[Any], flags: int = 0) -> int:
        """As `ropewalk.zmq.Socket.send_many`."""
        call: Any = super().send_many
        known = list(messages)
        sent: int = self._try(POLLOUT, SNDTIMEO, flags, lambda flags: call(known, flags)) if known else 0
        return sent

    def recv(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, flags: int = 0, copy: bool = True, track: bool = False
    ) -> Any:
        """As `ropewalk.zmq.Socket.recv`."""
        call: Any = super().recv
        return self._try(POLLIN, RCVTIMEO, flags, lambda flags: call(flags, copy, track))

    def recv_into(self, buffer: Any, /, *, nbytes: int = 0, flags: int = 0) -> int:
        """As `ropewalk.zmq.Socket.recv_into`."""
        call: Any = super().recv_into
        size: int = self._try(POLLIN, RCVTIMEO, flags, lambda flags: call(buffer, nbytes=nbytes, flags=flags))
        return size

    def recv_multipart(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, flags: int = 0, copy: bool = True, track: bool = False
    ) -> Any:
        """As `ropewalk.zmq.Socket.recv_multipart`."""
        call: Any = super().recv_multipart
        return self._try(POLLIN, RCVTIMEO, flags, lambda flags: call(flags, copy, track))

    def recv_many(self, n: int, flags: int = 0) -> Any:
        """As `ropewalk.zmq.Socket.recv_many`."""
        call: Any = super().recv_many
        return self._try(POLLIN, RCVTIMEO, flags, lambda flags: call(n, flags))

    def get(self, option: int) -> Any:
        """As `ropewalk.zmq.Socket.get`."""
        value = super().get(option)
        if option == _EVENTS:
            self._changed()
        return value

    getsockopt = get

    def poll(self, timeout: float | None = None, flags: int = POLLIN) -> int:
        """As `ropewalk.zmq.Socket.poll`."""
        # An error, and not a wait, for a closed socket.
        ready = super().poll(0, flags)
        end = _hub.deadline(timeout)
        while not ready and timeout != 0:
            event = _hub.Event()
            waiter = self._join(flags, event)
            try:
                woken = event.wait(_hub.left(end))
            finally:
                self._leave(waiter)
            ready = super().poll(0, flags)
            if not woken:
                break
        return ready


class Context(_zmq.Context[Socket]):
    """A context whose sockets let other greenlets run while they wait."""

    _socket_class = Socket
    # Not shared with the blocking contexts.
    _instance = None


__all__ = ["Context", "Socket"]
