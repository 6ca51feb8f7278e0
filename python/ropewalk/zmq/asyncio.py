"""Sockets for asyncio: methods that block in `ropewalk.zmq` return futures here, on Ropewalk's loop and on any other.

An operation that need not wait is done before its method returns, and its future is finished: awaiting it does not
suspend. So a message is sent even if the program does not await the future. Operations that must wait are completed
when the loop reports the socket's descriptors (the compiled `Watch`), in their order.

Cancel safety: a cancelled receive has taken no message. A cancelled send was either done before or is never done.
"""

from __future__ import annotations

import asyncio
import pickle
import warnings
from asyncio import Future
from typing import TYPE_CHECKING, Any, Self, TypeVar

import ropewalk.zmq as _zmq
from ropewalk.zmq import _compiled
from ropewalk.zmq.constants import EVENTS, POLLIN, POLLOUT
from ropewalk.zmq.error import Again
from ropewalk.zmq.utils import jsonapi

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Self

# Any, because its methods are called whatever they return.
_Blocking: Any = _zmq.Socket

_R = TypeVar("_R")

_POLLIN, _POLLOUT, _EVENTS = int(POLLIN), int(POLLOUT), int(EVENTS)


class Socket(_compiled.AsyncSocket, _zmq.Socket["Future[Any]"]):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A socket whose methods that send, receive and poll return futures; else as `ropewalk.zmq.Socket`."""

    #: The same socket with blocking methods.
    _blocking: Any

    def __init__(
        self,
        context: Any = None,
        socket_type: int = -1,
        io_loop: Any = None,
        _from_socket: _zmq.Socket[Any] | None = None,
        **options: Any,
    ) -> None:
        if io_loop is not None:
            warnings.warn("io_loop is ignored: the running loop is used", DeprecationWarning, stacklevel=2)
        make: Any = super().__init__  # type: ignore[misc] # pyright: ignore
        if isinstance(context, _Blocking):
            context, _from_socket = None, context
        if _from_socket is None:
            make(context, socket_type, **options)
        else:
            make(shadow=_from_socket)
        # A shadow of the number and not of this object: it must not keep this object, which closes the socket when it
        # is collected.
        self._blocking = _Blocking.shadow(self.underlying)
        self._watch = _compiled.Watch(self._blocking, Again)

    @classmethod
    def from_socket(cls, socket: _zmq.Socket[Any], io_loop: Any = None) -> Self:
        """Return an asynchronous object for a blocking socket."""
        return cls(_from_socket=socket, io_loop=io_loop)

    def close(self, linger: int | None = None) -> None:
        """Close the socket, and cancel the futures that wait for it."""
        self._leave()
        super().close(linger)

    def __del__(self) -> None:
        self._leave()
        super().__del__()

    def _leave(self) -> None:
        # There is none if the constructor failed.
        watch: Any = self._watch
        if watch is not None:
            watch.leave()

    def get(self, option: int) -> Any:
        """As `ropewalk.zmq.Socket.get`."""
        value = super().get(option)
        if option == _EVENTS:
            # Reading the option has consumed the wake-up of waiting operations.
            self._watch.look_again()
        return value

    getsockopt = get

    # --- receiving -----------------------------------------------------------------------------------------------

    def recv_many(self, n: int, flags: int = 0) -> Future[list[bytes | list[bytes]]]:  # type: ignore[override]
        """Receive up to `n` messages, and wait for the first only: each is `bytes`, or a list of several parts."""
        return self._receive(_recv_many, flags, n)

    def recv_into(self, buf: Any, /, *, nbytes: int = 0, flags: int = 0) -> Future[int]:  # type: ignore[override]
        """Receive a part into `buf`; the result is its size in bytes."""
        return self._receive(_recv_into, flags, buf, nbytes)

    def recv_string(self, flags: int = 0, encoding: str = "utf-8") -> Future[str]:  # type: ignore[override]
        """Receive text."""
        return self._receive(_Blocking.recv_string, flags, encoding)

    recv_unicode = recv_string  # type: ignore[assignment]

    def recv_json(self, flags: int = 0, **options: Any) -> Future[Any]:
        """Receive an object as JSON; `options` are passed to `json.loads`."""
        return self._receive(_recv_json, flags, options)

    def recv_pyobj(self, flags: int = 0) -> Future[Any]:
        """Receive a pickled object.

        Unpickling can run code of the sender: use it only with peers that are authenticated and trusted.
        """
        return self._receive(_Blocking.recv_pyobj, flags)

    def recv_serialized(  # type: ignore[override]
        self,
        deserialize: Callable[[list[Any]], _R],
        flags: int = 0,
        copy: bool = True,
    ) -> Future[_R]:
        """Receive a whole message; the result is ``deserialize(parts)``."""
        return self._receive(_recv_serialized, flags, deserialize, copy)

    def _receive(self, call: Callable[..., Any], flags: int, *arguments: Any) -> Future[Any]:
        return self._watch.receive(call, flags, arguments)

    # --- sending -------------------------------------------------------------------------------------------------

    def send_multipart(
        self, msg_parts: Sequence[Any], flags: int = 0, copy: bool = True, track: bool = False, **options: Any
    ) -> Future[Any]:
        """Send a whole message, given as its parts."""
        return self._transmit(_send_multipart, flags, msg_parts, copy, track, options)

    def send_many(self, messages: Sequence[Any], flags: int = 0) -> Future[int]:  # type: ignore[override]
        """Send several messages, each `bytes` or a list of parts; the result is their number, when all are sent."""
        return self._transmit(_Many(messages), flags)

    def send_string(
        self, u: str, flags: int = 0, copy: bool = True, encoding: str = "utf-8", **options: Any
    ) -> Future[Any]:
        """Send text."""
        if not isinstance(u, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("send_string takes text; send takes bytes")
        return self.send(u.encode(encoding), flags, copy, **options)

    send_unicode = send_string

    def send_json(self, obj: Any, flags: int = 0, **options: Any) -> Future[Any]:
        """Send `obj` as JSON; `options` are passed to `json.dumps`."""
        routing = {name: options.pop(name) for name in ("routing_id", "group") if name in options}
        return self.send(jsonapi.dumps(obj, **options), flags, **routing)

    def send_pyobj(self, obj: Any, flags: int = 0, protocol: int = -1, **options: Any) -> Future[Any]:
        """Send `obj` as a pickle."""
        return self.send(pickle.dumps(obj, protocol), flags, **options)

    def send_serialized(
        self, msg: Any, serialize: Any, flags: int = 0, copy: bool = True, **options: Any
    ) -> Future[Any]:
        """Send the parts that ``serialize(msg)`` returns."""
        return self.send_multipart(serialize(msg), flags, copy, **options)

    def _transmit(self, call: Callable[..., Any], flags: int, *arguments: Any) -> Future[Any]:
        return self._watch.transmit(call, flags, arguments)

    # --- events --------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None, flags: int = POLLIN) -> Future[int]:  # type: ignore[override]
        """Await one of the events `flags`, at most `timeout` ms; the result is the events that hold, 0 if none does."""
        try:
            state = self._blocking.poll_state() & flags
        except Exception as error:
            return _failed(error)
        # Reading the events may have consumed the wake-up of other operations.
        self._watch.look_again()
        if state or timeout == 0:
            return _done(state)
        future = self._watch.add_event(int(flags))
        if timeout is not None and timeout > 0:
            timer = future.get_loop().call_later(timeout / 1000, _set_result, future, 0)
            future.add_done_callback(lambda _: timer.cancel())
        return future


class Poller(_zmq.Poller):
    """Waits for many sockets and descriptors: asynchronous sockets, blocking ones, and objects with a `fileno`."""

    def poll(self, timeout: float | None = -1) -> Future[list[tuple[Any, int]]]:  # type: ignore[override]
        """Await pairs of a ready socket and its events; an empty list after `timeout` ms, if that is not negative."""
        try:
            ready = self._look()
        except Exception as error:
            return _failed(error)
        if ready or timeout == 0:
            return _done(ready)
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None or timeout < 0 else loop.time() + timeout / 1000
        return loop.create_task(self._wait(loop, deadline))

    async def _wait(self, loop: asyncio.AbstractEventLoop, deadline: float | None) -> list[tuple[Any, int]]:
        descriptors: list[Any] = []
        wanted: list[Future[Any]] = []
        try:
            while True:
                wanted.clear()
                for socket, events in self.sockets:
                    wanted.append(self._watch(loop, socket, events, descriptors))
                left = None if deadline is None else max(0.0, deadline - loop.time())
                # An event between the last check and the registration was not reported.
                ready = self._look()
                if ready or left == 0:
                    return ready
                await asyncio.wait(
                    wanted or [loop.create_future()], timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                for future in wanted:
                    if future.cancelled():
                        raise asyncio.CancelledError
                    future.cancel()
                self._unwatch(loop, descriptors)
        finally:
            for future in wanted:
                future.cancel()
            self._unwatch(loop, descriptors)
            for socket, _ in self.sockets:
                _forget(socket)

    def _look(self) -> list[tuple[Any, int]]:
        ready = super().poll(0)
        for socket, _ in self.sockets:
            # Reading the events may have consumed the wake-up of other operations.
            watch = socket._watch if isinstance(socket, Socket) else _watches.get(id(socket))
            if watch is not None:
                watch.look_again()
        return ready

    def _watch(
        self, loop: asyncio.AbstractEventLoop, socket: Any, events: int, descriptors: list[Any]
    ) -> Future[Any]:
        if isinstance(socket, Socket):
            return socket._watch.add_event(events)
        if isinstance(socket, _Blocking):
            return _shared_watch(socket).add_event(events)
        future: Future[Any] = loop.create_future()
        descriptors.append(socket)
        if events & _POLLIN:
            loop.add_reader(socket, _set_result, future, None)
        if events & _POLLOUT:
            loop.add_writer(socket, _set_result, future, None)
        return future

    def _unwatch(self, loop: asyncio.AbstractEventLoop, descriptors: list[Any]) -> None:
        while descriptors:
            descriptor = descriptors.pop()
            loop.remove_reader(descriptor)
            loop.remove_writer(descriptor)


class Context(_zmq.Context[Socket]):
    """A context whose sockets are asynchronous."""

    _socket_class = Socket
    # Not shared with the blocking contexts.
    _instance = None

    def __init__(self, io_threads: int | _zmq.Context[Any] = 1, shadow: _zmq.Context[Any] | int = 0) -> None:
        # The blocking class declares another class of sockets.
        make: Any = super().__init__  # type: ignore[misc] # pyright: ignore
        make(io_threads, shadow)


def install() -> None:
    """Do nothing but warn: any loop works."""
    warnings.warn("zmq.asyncio.install is not needed", DeprecationWarning, stacklevel=2)


# A descriptor has one callback in a loop, so pollers that wait for the same blocking socket share its watch.
_watches: dict[int, _compiled.Watch] = {}


def _shared_watch(socket: _zmq.Socket[Any]) -> _compiled.Watch:
    watch = _watches.get(id(socket))
    if watch is None:
        watch = _watches[id(socket)] = _compiled.Watch(socket, Again)
    return watch


def _forget(socket: Any) -> None:
    watch = _watches.get(id(socket))
    if watch is not None and not watch.has_events():
        del _watches[id(socket)]
        watch.close()


def _done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def _failed(error: BaseException) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def _set_result(future: Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


# The calls of waiting operations have the socket and the flags as their first arguments.


def _recv_many(socket: _zmq.Socket[Any], flags: int, n: int) -> Any:
    return socket.recv_many(n, flags)


def _recv_into(socket: _zmq.Socket[Any], flags: int, buffer: Any, nbytes: int) -> Any:
    return socket.recv_into(buffer, nbytes=nbytes, flags=flags)


def _recv_json(socket: _zmq.Socket[Any], flags: int, options: dict[str, Any]) -> Any:
    return socket.recv_json(flags, **options)


def _recv_serialized(socket: _zmq.Socket[Any], flags: int, deserialize: Any, copy: bool) -> Any:
    return socket.recv_serialized(deserialize, flags, copy)


def _send_multipart(
    socket: _zmq.Socket[Any], flags: int, parts: Any, copy: bool, track: bool, options: dict[str, Any]
) -> Any:
    return socket.send_multipart(parts, flags, copy, track, **options)


class _Many:
    """Sends messages, as many at once as the socket has room for."""

    def __init__(self, messages: Iterable[Any]) -> None:
        self._messages = list(messages)
        self._sent = 0

    def __call__(self, socket: _zmq.Socket[Any], flags: int) -> int:
        while self._sent < len(self._messages):
            self._sent += socket.send_many(self._messages[self._sent :], flags)
        return self._sent


__all__ = ["Context", "Poller", "Socket", "install"]
