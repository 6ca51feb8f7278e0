"""The socket: the compiled class with pyzmq's names and conventions."""

from __future__ import annotations

import warnings
from contextlib import suppress
from errno import EADDRINUSE, ENOTSUP
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

from ropewalk.zmq import _compiled
from ropewalk.zmq._encoded import EncodedMessages
from ropewalk.zmq._enums import Event, OptionKind, PollEvent, SocketType
from ropewalk.zmq._frame import Frame, copy_threshold
from ropewalk.zmq._options import OptionAttributes, names_of, repr_name
from ropewalk.zmq._socket_options import SocketOption
from ropewalk.zmq.error import ZMQBindError, ZMQError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, TypeAlias

    from ropewalk.zmq._context import Context

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    #: The type that a socket receives: `bytes`, or an awaitable of it.
    _Received = DefaultTypeVar("_Received", covariant=True, default=bytes)
else:
    # Type variables have defaults from Python 3.13 on; only type checkers need them.
    _Received = TypeVar("_Received", covariant=True)
_SocketT = TypeVar("_SocketT", bound="Socket[Any]", covariant=True)

#: The full range of `Socket.bind_to_random_port`, for which the system chooses the port.
_DYNAMIC_PORTS = (49152, 65536)


class Bound(Generic[_SocketT]):
    """The result of ``bind`` and ``connect``: a context manager that unbinds or disconnects at its end."""

    def __init__(self, socket: _SocketT, kind: Literal["bind", "connect"], addr: str | bytes) -> None:
        self.socket = socket
        self.kind = kind
        self.addr = addr

    def __repr__(self) -> str:
        return f"<SocketContext({self.kind}={self.addr!r})>"

    def __enter__(self) -> _SocketT:
        return self.socket

    def __exit__(self, *_: object) -> None:
        if self.socket.closed:
            return
        if self.kind == "bind":
            self.socket.unbind(self.addr)
        else:
            self.socket.disconnect(self.addr)


class Socket(_compiled.Socket, EncodedMessages, OptionAttributes, Generic[_Received]):
    """A socket, made by `Context.socket`. One thread at a time may use it, and the program must close it.

    ``Socket(other)`` and ``Socket(shadow=other)`` make a second object for the same socket, an asynchronous one for a
    blocking one for instance. The owner of the first object closes the socket.

    Options are attributes: ``socket.linger = 0``, ``socket.last_endpoint``.

    Args:
        ctx_or_socket: The socket's context, or the socket that this object shadows.
        socket_type: A `SocketType`.
        shadow: The socket that this object shadows, or that socket's ``underlying``.
        copy_threshold: ``send(copy=False)`` copies messages that are smaller than this, in bytes.

    Examples:
        >>> import ropewalk.zmq as zmq
        >>> with zmq.Context() as context, context.socket(zmq.REP) as rep, context.socket(zmq.REQ) as req:
        ...     port = rep.bind_to_random_port("tcp://127.0.0.1")
        ...     _ = req.connect(f"tcp://127.0.0.1:{port}")
        ...     req.send(b"ping")
        ...     rep.send(rep.recv() + b" pong")
        ...     req.recv()
        b'ping pong'
    """

    _repr_name = "ropewalk.zmq.Socket"

    _option_names = names_of(SocketOption)
    _frame_class = Frame
    _copy_threshold = staticmethod(copy_threshold)
    _shadow = False
    _shadow_obj: object = None
    _monitor_socket: Any = None
    _type_name = "UNKNOWN"

    context: Context[Any]
    type: SocketType

    @overload
    def __init__(
        self: Socket[bytes],
        ctx_or_socket: Context[Any],
        socket_type: int,
        *,
        copy_threshold: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Socket[bytes], *, shadow: Socket[Any] | int, copy_threshold: int | None = None
    ) -> None: ...
    @overload
    def __init__(self: Socket[bytes], ctx_or_socket: Socket[Any]) -> None: ...
    def __init__(
        self,
        ctx_or_socket: Context[Any] | Socket[Any] | None = None,
        socket_type: int = 0,
        *,
        shadow: Socket[Any] | int = 0,
        copy_threshold: int | None = None,
    ) -> None:
        if isinstance(ctx_or_socket, Socket):
            shadow, ctx_or_socket = ctx_or_socket, None
        if shadow:
            self._shadow = True
            self._shadow_obj = shadow
        number = shadow if isinstance(shadow, int) else shadow.underlying
        super().__init__(ctx_or_socket, socket_type, shadow=number, copy_threshold=copy_threshold)
        if isinstance(shadow, Socket):
            self.context = shadow.context
        elif not shadow and ctx_or_socket is not None:
            ctx_or_socket._numbers.add(self.underlying)
        kind: int = self.get(SocketOption.TYPE)
        try:
            self.__dict__["type"] = SocketType(kind)
        except ValueError:
            self._type_name = str(kind)
        else:
            self._type_name = SocketType(kind).name

    def __del__(self) -> None:
        if self._shadow or self.closed:
            return
        warnings.warn(f"Unclosed socket {self}", ResourceWarning, stacklevel=2, source=self)
        self.close()

    def __repr__(self) -> str:
        closed = " closed" if self.closed else ""
        return f"<{repr_name(type(self))}(zmq.{self._type_name}) at {id(self):#x}{closed}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        self.close()

    def __copy__(self, memo: object = None) -> Self:
        return self.__class__.shadow(self.underlying)

    __deepcopy__ = __copy__

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError(f"cannot pickle {self.__class__.__name__!r}: a socket belongs to its process")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *SocketOption.__members__]

    @classmethod
    def shadow(cls, address: int | Socket[Any]) -> Self:
        """Return a second object for a socket, given the socket or its ``underlying``."""
        face: Self = cast("Any", cls)(shadow=address)
        return face

    def close(self, linger: int | None = None) -> None:
        """Close the socket; it sends unsent messages for at most `linger` milliseconds, by default its option."""
        context: Any = self.context
        if context is not None:
            context._rm_socket(self)
        super().close(linger)

    # --- endpoints ---------------------------------------------------------------

    def bind(self, addr: str | bytes) -> Bound[Self]:  # type: ignore[override]
        """Accept connections at an endpoint: ``tcp://127.0.0.1:5555``, ``ipc:///run/it``, ``inproc://name``.

        Returns:
            A context manager that unbinds the endpoint. ``last_endpoint`` has a port that the system chose (``:*``,
            ``:0``).
        """
        try:
            super().bind(addr)
        except ZMQError as error:
            error.strerror += f" (addr={addr!r})"
            raise
        # The endpoint as given unbinds it too, unless it contains a wildcard.
        with suppress(ZMQError, UnicodeDecodeError):
            addr = cast("bytes", self.get(SocketOption.LAST_ENDPOINT)).decode() or addr
        return Bound(self, "bind", addr)

    def connect(self, addr: str | bytes) -> Bound[Self]:  # type: ignore[override]
        """Connect to an endpoint, now or when a peer binds it.

        Returns:
            A context manager that disconnects the endpoint.
        """
        try:
            super().connect(addr)
        except ZMQError as error:
            error.strerror += f" (addr={addr!r})"
            raise
        return Bound(self, "connect", addr)

    def bind_to_random_port(
        self,
        addr: str,
        min_port: int = _DYNAMIC_PORTS[0],
        max_port: int = _DYNAMIC_PORTS[1],
        max_tries: int = 100,
    ) -> int:
        """Bind ``tcp://interface`` to a port from `min_port` up to below `max_port`, by default any, and return it.

        Raises:
            ZMQBindError: `max_tries` ports were all taken.
        """
        if (min_port, max_port) == _DYNAMIC_PORTS:
            self.bind(f"{addr}:*")
            return int(cast("bytes", self.get(SocketOption.LAST_ENDPOINT)).rpartition(b":")[2])
        # Here, because few programs choose, and its import takes long.
        import random

        for _ in range(max_tries):
            port = random.randrange(min_port, max_port)  # noqa: S311 - a port is no secret.
            try:
                self.bind(f"{addr}:{port}")
            except ZMQError as error:
                if error.errno != EADDRINUSE:
                    raise
            else:
                return port
        raise ZMQBindError("Could not bind socket to random port.")

    # --- options -----------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        # These options are also methods of the same name.
        if name.lower() in ("subscribe", "unsubscribe") and name not in self.__dict__:
            self.set(SocketOption[name.upper()], value.encode() if isinstance(value, str) else value)
        else:
            super().__setattr__(name, value)

    setsockopt = _compiled.Socket.set
    getsockopt = _compiled.Socket.get

    def set_string(self, option: int, optval: str, encoding: str = "utf-8") -> None:
        """Set an option to encoded text."""
        if not isinstance(optval, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"strings only, not {type(optval)}: {optval!r}")
        self.set(option, optval.encode(encoding))

    def get_string(self, option: int, encoding: str = "utf-8") -> str:
        """Return an option's value as text.

        Raises:
            TypeError: The option's value is a number.
        """
        if SocketOption(option).kind is not OptionKind.BYTES:
            raise TypeError(f"option {option} will not return a string to be decoded")
        return cast("bytes", self.get(option)).decode(encoding)

    setsockopt_string = setsockopt_unicode = set_string
    getsockopt_string = getsockopt_unicode = get_string

    def subscribe(self, topic: str | bytes) -> None:
        """Receive messages that begin with these bytes (SUB)."""
        self.set(SocketOption.SUBSCRIBE, topic.encode() if isinstance(topic, str) else topic)

    def unsubscribe(self, topic: str | bytes) -> None:
        """Undo one `subscribe` (SUB)."""
        self.set(SocketOption.UNSUBSCRIBE, topic.encode() if isinstance(topic, str) else topic)

    def get_hwm(self) -> int:
        """Return how many messages may wait for one peer."""
        number: int = self.get(SocketOption.SNDHWM)
        return number

    def set_hwm(self, value: int) -> None:
        """Set how many messages may wait for one peer, in each direction; it applies to later connections."""
        self.set(SocketOption.SNDHWM, value)
        self.set(SocketOption.RCVHWM, value)

    hwm = property(get_hwm, set_hwm, doc="How many messages may wait for one peer, in each direction.")

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when ``events`` may have changed, for a program's own polling.

        It reports changes and not states: after each wake-up read ``events`` until they are 0.
        """
        number: int = self.get(SocketOption.FD)
        return number

    @property
    def socket_type(self) -> int:
        """The socket's type, under a name that pyzmq has deprecated."""
        warnings.warn("Socket.socket_type is deprecated, use Socket.type", DeprecationWarning, stacklevel=2)
        return self.type

    # --- polling and monitoring --------------------------------------------------

    def poll(self, timeout: float | None = None, flags: int = PollEvent.POLLIN) -> int:
        """Wait until the socket is ready for `flags`, at most `timeout` milliseconds; `None` for ever.

        Returns:
            The flags for which it is ready; 0 after the timeout.
        """
        if self.closed:
            raise ZMQError(ENOTSUP)
        milliseconds = -1 if timeout is None or timeout < 0 else int(timeout)
        ready = _compiled.zmq_poll([(self, flags)], milliseconds)
        return ready[0][1] if ready else 0

    def get_monitor_socket(self, events: int | None = None, addr: str | None = None) -> Self:
        """Return a PAIR socket that receives the events of the connections; `zmq.utils.monitor` decodes them.

        Args:
            events: Which events, as `Event`; by default all.
            addr: The ``inproc`` endpoint to use; by default a new one.
        """
        if self._monitor_socket is not None and not self._monitor_socket.closed:
            return cast("Self", self._monitor_socket)
        if addr is None:
            addr = f"inproc://monitor.s-{self.underlying:x}"
        self.monitor(addr, Event.ALL if events is None else events)
        self._monitor_socket = self.context.socket(SocketType.PAIR)
        self._monitor_socket.connect(addr)
        return cast("Self", self._monitor_socket)

    def disable_monitor(self) -> None:
        """End the monitoring that `get_monitor_socket` began."""
        self._monitor_socket = None
        self.monitor(None, 0)


SyncSocket: TypeAlias = Socket[bytes]

__all__ = ["Socket", "SyncSocket"]
