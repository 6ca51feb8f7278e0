"""`ZMQStream`: callbacks for a socket in tornado's event loop, on any loop of asyncio. Needs tornado."""

from __future__ import annotations

import asyncio
import importlib
import pickle
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from ropewalk.zmq import _compiled
from ropewalk.zmq._enums import Flag, PollEvent
from ropewalk.zmq._poll import Poller
from ropewalk.zmq._socket import Socket
from ropewalk.zmq.error import Again, ContextTerminated, ZMQError
from ropewalk.zmq.utils import jsonapi

if TYPE_CHECKING:
    from ropewalk.zmq._tracker import MessageTracker

# tornado is optional, and has no types that a checker without it could know.
_ioloop: Any = importlib.import_module("tornado.ioloop")
_log: Any = importlib.import_module("tornado.log").gen_log

_IN, _OUT = PollEvent.POLLIN, PollEvent.POLLOUT
_Received = Callable[[list[Any]], object]
_Sent = Callable[[Sequence[Any], "MessageTracker | None"], object]
#: Methods of the socket that a stream has, too.
_SHARED = (
    "bind",
    "bind_to_random_port",
    "connect",
    "setsockopt",
    "getsockopt",
    "setsockopt_string",
    "getsockopt_string",
    "setsockopt_unicode",
    "getsockopt_unicode",
)


class ZMQStream:
    """A blocking socket whose messages come to callbacks, and leave in the loop.

    One message is received and one is sent in a turn of the loop, so that others have their turns. A callback may be a
    coroutine function.

    Args:
        socket: The socket; an asynchronous one is shadowed by a blocking one, with a warning.
        io_loop: tornado's loop, by default the current one.
    """

    bind: Any
    bind_to_random_port: Any
    connect: Any
    setsockopt: Any
    getsockopt: Any
    setsockopt_string: Any
    getsockopt_string: Any
    setsockopt_unicode: Any
    getsockopt_unicode: Any

    def __init__(self, socket: Socket[Any], io_loop: Any = None) -> None:
        if isinstance(socket, _compiled.AsyncSocket):
            warnings.warn(
                "a stream is over a blocking socket: make it with zmq.Socket(shadow=socket)",
                RuntimeWarning,
                stacklevel=2,
            )
            socket = Socket(shadow=socket)
        #: The socket; `None` once the stream is closed.
        self.socket: Any = socket
        self.io_loop: Any = _ioloop.IOLoop.current() if io_loop is None else io_loop
        self.poller = Poller()
        self._descriptor = socket.fileno()
        self._unsent: deque[tuple[Sequence[Any], dict[str, Any]]] = deque()
        self._received: _Received | None = None
        self._sent: _Sent | None = None
        self._ended: Callable[[], object] | None = None
        self._copy = True
        #: `flush` has worked in this turn: the loop's own call does nothing.
        self._flushed = False
        for name in _SHARED:
            setattr(self, name, getattr(socket, name))
        self.io_loop.add_handler(socket, self._handle_events, self.io_loop.READ)

    # --- callbacks ---------------------------------------------------------------

    def on_recv(self, callback: _Received | None, copy: bool = True) -> None:
        """Call this with the parts of each message; `None` ends receiving. `copy` is as in `Socket.recv`."""
        self._check_closed()
        self._received, self._copy = callback, copy
        self._look_again()

    def on_recv_stream(
        self, callback: Callable[[ZMQStream, list[Any]], object] | None, copy: bool = True
    ) -> None:
        """As `on_recv`, for a callback that takes the stream before the message."""
        if callback is None:
            return self.stop_on_recv()
        return self.on_recv(lambda message: callback(self, message), copy)

    def on_send(self, callback: _Sent | None) -> None:
        """Call this with each message that was sent, and its tracker or `None`."""
        self._check_closed()
        self._sent = callback

    def on_send_stream(
        self, callback: Callable[[ZMQStream, Sequence[Any], MessageTracker | None], object] | None
    ) -> None:
        """As `on_send`, for a callback that takes the stream before the message."""
        if callback is None:
            return self.stop_on_send()
        return self.on_send(lambda message, tracker: callback(self, message, tracker))

    def stop_on_recv(self) -> None:
        """Receive no more."""
        self.on_recv(None)

    def stop_on_send(self) -> None:
        """Call nobody after a send."""
        self.on_send(None)

    def set_close_callback(self, callback: Callable[[], object] | None) -> None:
        """Call this when the stream is closed."""
        self._ended = callback

    # --- sending -----------------------------------------------------------------

    def send(
        self,
        msg: Any,
        flags: int = 0,
        copy: bool = True,
        track: bool = False,
        callback: _Sent | None = None,
        **kwargs: Any,
    ) -> None:
        """Send a message of one part in a turn of the loop; a callback is set as by `on_send`."""
        self.send_multipart([msg], flags, copy, track, callback, **kwargs)

    def send_multipart(
        self,
        msg: Sequence[Any],
        flags: int = 0,
        copy: bool = True,
        track: bool = False,
        callback: _Sent | None = None,
        **kwargs: Any,
    ) -> None:
        """Send a message in a turn of the loop; a callback is set as by `on_send`."""
        self._check_closed()
        self._unsent.append((msg, {**kwargs, "flags": flags, "copy": copy, "track": track}))
        if callback is not None:
            self.on_send(callback)
        self._look_again()

    def send_string(
        self,
        u: str,
        flags: int = 0,
        encoding: str = "utf-8",
        callback: _Sent | None = None,
        **kwargs: Any,
    ) -> None:
        """Send text."""
        if not isinstance(u, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"strings only, not {type(u)}: {u!r}")
        self.send(u.encode(encoding), flags, callback=callback, **kwargs)

    send_unicode = send_string

    def send_json(self, obj: Any, flags: int = 0, callback: _Sent | None = None, **kwargs: Any) -> None:
        """Send an object as JSON."""
        self.send(jsonapi.dumps(obj), flags, callback=callback, **kwargs)

    def send_pyobj(
        self, obj: Any, flags: int = 0, protocol: int = -1, callback: _Sent | None = None, **kwargs: Any
    ) -> None:
        """Send a pickled object."""
        self.send(pickle.dumps(obj, protocol), flags, callback=callback, **kwargs)

    def flush(self, flag: int = _IN | _OUT, limit: int | None = None) -> int:
        """Receive and send now what is possible, and return how many messages that were, at most `limit`.

        Messages that come are taken even if there is no callback.
        """
        self._check_closed()
        was_flushed, self._flushed = self._flushed, False
        count = 0
        while self.socket is not None and (not limit or count < limit):
            wanted = flag & _IN | (flag & _OUT if self.sending() else 0)
            ready = self.socket.poll(0, wanted) if wanted else 0
            if not ready:
                break
            if ready & _IN:
                count += self._receive()
            if ready & _OUT and self.socket is not None and self.sending():
                count += self._transmit()
        if count and not was_flushed:
            self.io_loop.add_callback(self._end_flush)
        self._flushed = was_flushed or count > 0
        self._look_again()
        return count

    def _end_flush(self) -> None:
        self._flushed = False
        self._look_again()

    # --- state and end -----------------------------------------------------------

    def receiving(self) -> bool:
        """Whether a callback takes messages."""
        return self._received is not None

    def sending(self) -> bool:
        """Whether messages wait to be sent."""
        return bool(self._unsent)

    def closed(self) -> bool:
        """Whether the stream is closed; it closes itself if its socket was closed."""
        if self.socket is not None and self.socket.closed:
            self.close()
        return self.socket is None

    def close(self, linger: int | None = None) -> None:
        """Close the stream and its socket."""
        socket, self.socket = self.socket, None
        if socket is None:
            return
        if socket.closed:
            warnings.warn(
                f"the socket was closed before its stream, which now takes descriptor {self._descriptor} out of the "
                "loop: another file may have got that number; close the stream instead",
                stacklevel=2,
            )
            self.io_loop.remove_handler(self._descriptor)
        else:
            self.io_loop.remove_handler(socket)
            socket.close(linger)
        if self._ended is not None:
            self._run(self._ended)

    def _check_closed(self) -> None:
        if self.socket is None:
            raise OSError("Stream is closed")

    # --- events ------------------------------------------------------------------

    def _look_again(self) -> None:
        """The descriptor reports changes and not states: what is possible already is done in another turn."""
        wanted = (_IN if self.receiving() else 0) | (_OUT if self.sending() else 0)
        if self.socket is not None and wanted and not self._flushed:
            try:
                ready = self.socket.events
            except ZMQError:
                return  # The loop's own call says so.
            if ready & wanted:
                self.io_loop.add_callback(self._handle_events, self.socket, 0)

    def _handle_events(self, _descriptor: Any, _events: int) -> None:
        if self.socket is None:
            return
        try:
            ready = self.socket.events
        except ContextTerminated:
            _log.warning("Got events for stream %s after terminating context", self)
            self.closed()
            return
        except ZMQError as error:
            if not self.closed():
                _log.error("Error getting events for %s: %s", self, error)
            return
        if self._flushed:
            return
        if ready & _IN and self.receiving():
            self._receive()
        if ready & _OUT and self.socket is not None and self.sending():
            self._transmit()
        self._look_again()

    def _receive(self) -> int:
        try:
            message = self.socket.recv_multipart(Flag.NOBLOCK, copy=self._copy)
        except Again:
            return 0
        if self._received is not None:
            self._run(self._received, message)
        return 1

    def _transmit(self) -> int:
        message, options = self._unsent.popleft()
        try:
            tracker = self.socket.send_multipart(message, **options)
        except ZMQError as error:
            _log.error("SEND Error: %s", error)
            tracker = error
        if self._sent is not None:
            self._run(self._sent, message, tracker)
        return 1

    def _run(self, callback: Callable[..., object], *arguments: Any) -> None:
        try:
            result = callback(*arguments)
        except Exception:
            _log.error("Uncaught exception in ZMQStream callback", exc_info=True)
            raise
        if isinstance(result, Awaitable):
            awaitable: Awaitable[Any] = result  # pyright: ignore[reportUnknownVariableType]
            asyncio.ensure_future(awaitable).add_done_callback(_report)


def _report(task: asyncio.Future[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.error("Uncaught exception in ZMQStream callback", exc_info=error)


__all__ = ["ZMQStream"]
