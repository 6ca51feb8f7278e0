"""The extension module of messaging: sockets, contexts and frames, with the API of pyzmq's compiled backends."""

import builtins
from asyncio import Future
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any, Literal, Self, final, overload

from _typeshed import ReadableBuffer, WriteableBuffer

# --- factories that the package registers ------------------------------------

def set_errors(make: Callable[[int, str], BaseException], /) -> None:
    """Register the factory of exceptions: ``make(errno, message)`` returns the instance to raise.

    A static method ``_make_error`` of a socket's, a context's or a frame's own type takes precedence.
    """

def set_trackers(make: Callable[[Event | None], Any], /) -> None:
    """Register the factory of trackers: ``make(event)`` for an event to be set, ``make(None)`` for a finished tracker.

    A static method ``_make_tracker`` of the socket's or the frame's own type takes precedence.
    """

# --- constants ---------------------------------------------------------------

IPC_PATH_MAX_LEN: int
"""The longest path that an ipc endpoint may name, in bytes."""
PYZMQ_DRAFT_API: bool
"""Whether the socket types exist that libzmq calls drafts; always true."""

# --- frames ------------------------------------------------------------------

class Frame:
    """One part of a message.

    The buffer protocol gives its bytes, without a copy and read-only.
    """

    more: bool
    """Whether more parts of the same message follow."""
    tracker: Any
    """The tracker, which reports when the bytes are released; `None` if the frame is not tracked."""
    def __init__(
        self,
        data: ReadableBuffer | None = None,
        track: bool = False,
        copy: bool | None = None,
        copy_threshold: int | None = None,
    ) -> None:
        """Make a frame of `data`; without `copy`, data smaller than `copy_threshold` are copied and others shared.

        Raises:
            TypeError: `data` is a `str`, or has no buffer protocol.
        """
    @property
    def buffer(self) -> memoryview:
        """The bytes, not copied."""
    @property
    def bytes(self) -> builtins.bytes:
        """The bytes, copied when they are first read."""
    def __len__(self) -> int: ...
    def __bytes__(self) -> builtins.bytes: ...
    def __copy__(self) -> Self: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def fast_copy(self) -> Self:
        """Return another frame over the same bytes."""
    def get(self, option: int | str | builtins.bytes) -> Any:
        """Return a message option by its number, or a property by its name.

        ``"routing_id"`` is an `int`, ``"group"`` and the peer's properties are `str`.
        """
    def set(self, option: int | str, value: int | str | builtins.bytes) -> None:
        """Set ``"routing_id"`` or ``"group"``."""

Message = Frame

# --- contexts and sockets ----------------------------------------------------

class Context:
    """A set of sockets that reach each other by ``inproc`` and end together."""

    _shadow: bool
    """Whether another object owns the context."""
    def __init__(self, io_threads: int = 1, shadow: int = 0) -> None:
        """Make a context, or with `shadow` a second object for the context with this `underlying`."""
    @property
    def closed(self) -> bool:
        """Whether the context was terminated, in this process or in the one from which it was forked."""
    @property
    def underlying(self) -> int:
        """The context's number, for `shadow`."""
    def set(self, option: int, optval: int) -> None:
        """Set an option.

        Raises:
            RuntimeError: the context was terminated.
        """
    def get(self, option: int) -> int:
        """Return an option's value.

        Raises:
            RuntimeError: the context was terminated.
        """
    def term(self) -> None:
        """Terminate the context: calls that wait on its sockets raise ``ETERM``.

        It waits until every socket is closed, and has sent its messages or reached its linger period.
        """

class Socket:
    """A socket. Concurrent calls by two threads are refused, except on the types that libzmq calls thread-safe.

    A subclass may have a ``_frame_class``, a subclass of this module's `Frame`, in which it receives without ``copy``.
    """

    _shadow: bool
    """Whether another object owns the socket."""
    context: Any
    copy_threshold: int
    """Without ``copy``, messages of fewer bytes than this are copied all the same."""
    def __init__(
        self,
        context: Context | None = None,
        socket_type: int = -1,
        shadow: int = 0,
        copy_threshold: int | None = None,
    ) -> None:
        """Make a socket, or with `shadow` a second object for the socket with this `underlying`."""
    @property
    def closed(self) -> bool:
        """Whether the socket was closed, by this object or another."""
    @property
    def _closed(self) -> bool:
        """Whether this object knows that the socket was closed; it does not ask the core."""
    @property
    def underlying(self) -> int:
        """The socket's number, for `shadow`."""
    def set(self, option: int, optval: int | bytes) -> None:
        """Set an option.

        Raises:
            TypeError: the value is of another type than the option.
        """
    def get(self, option: int) -> Any:
        """Return an option's value, an `int` or `bytes`."""
    def bind(self, addr: str | bytes) -> None:
        """Accept connections at an endpoint."""
    def unbind(self, addr: str | bytes) -> None:
        """Accept no more connections at an endpoint, and end those that it accepted."""
    def connect(self, addr: str | bytes) -> None:
        """Connect to an endpoint, now or when a peer binds it."""
    def disconnect(self, addr: str | bytes) -> None:
        """End the connection to an endpoint."""
    def close(self, linger: int | None = None) -> None:
        """Close the socket without blocking; `linger` is in milliseconds, -1 for ever."""
    def monitor(self, addr: str | bytes | None, events: int = 0xFFFF) -> None:
        """Publish the socket's events at an ``inproc`` endpoint; `None` ends that."""
    def join(self, group: str | bytes) -> None:
        """Receive messages to a group (DISH)."""
    def leave(self, group: str | bytes) -> None:
        """Stop receiving messages to a group (DISH)."""
    def connect_peer(self, addr: str | bytes) -> int:
        """Connect to an endpoint; return the routing id of the peer there (PEER)."""
    def send(
        self,
        data: ReadableBuffer | Frame,
        flags: int = 0,
        copy: bool = True,
        track: bool = False,
        routing_id: int | None = None,
        group: str | bytes | None = None,
    ) -> Any:
        """Send one part of a message; the last one if `flags` are without ``SNDMORE``.

        Args:
            data: Bytes, anything with the buffer protocol, or a frame.
            flags: ``NOBLOCK``, ``SNDMORE``.
            copy: Without it, large data are not copied; they must not change before they are sent.
            track: Whether the returned tracker watches the data.
            routing_id: The receiving client (SERVER, PEER).
            group: The receiving group (RADIO).

        Returns:
            A tracker for a tracked frame or without `copy`, else `None`.

        Raises:
            TypeError: `data` is a `str`, or has no buffer protocol.
            ValueError: With `track`, `data` is a frame that was made without tracking.
        """
    def send_multipart(
        self,
        msg_parts: Sequence[ReadableBuffer | Frame],
        flags: int = 0,
        copy: bool = True,
        track: bool = False,
    ) -> Any:
        """Send a whole message as `send` does; an error sends no part of it.

        Raises:
            ValueError: `msg_parts` is empty.
        """
    def send_many(self, messages: Sequence[Any], flags: int = 0) -> int:
        """Send several messages, each a buffer or a list of buffers; return how many were sent.

        It waits for room for the first only, and with ``NOBLOCK`` not at all.
        """
    def try_send(self, data: ReadableBuffer | Frame, flags: int = 0) -> bool:
        """Send one part if there is room; return whether it was sent."""
    @overload
    def recv(self, flags: int = 0, copy: Literal[True] = True, track: bool = False) -> bytes: ...
    @overload
    def recv(self, flags: int = 0, *, copy: Literal[False], track: bool = False) -> Any: ...
    @overload
    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> Any:
        """Receive one part, as `bytes` or without `copy` as a frame; ``RCVMORE`` says whether more follow."""
    def recv_into(self, buffer: WriteableBuffer, /, *, nbytes: int = 0, flags: int = 0) -> int:
        """Receive one part into a buffer, cut at `nbytes` or its size; return the part's own size."""
    @overload
    def recv_multipart(
        self, flags: int = 0, copy: Literal[True] = True, track: bool = False
    ) -> list[bytes]: ...
    @overload
    def recv_multipart(self, flags: int = 0, *, copy: Literal[False], track: bool = False) -> list[Any]: ...
    @overload
    def recv_multipart(self, flags: int = 0, copy: bool = True, track: bool = False) -> list[Any]:
        """Receive the (remaining) parts of a message, as `bytes` or without `copy` as frames."""
    def recv_many(self, n: int, flags: int = 0) -> list[bytes | list[bytes]]:
        """Receive up to `n` messages, and wait for the first only.

        A message of one part is `bytes`, any other a list of them.
        """
    def try_recv(self) -> bytes | None:
        """Receive one part if one has arrived, else return `None`."""
    def try_recv_multipart(self) -> list[bytes] | None:
        """Receive a whole message if one has arrived, else return `None`."""
    def poll_state(self) -> int:
        """Return which of POLLIN and POLLOUT hold, without waiting."""

# --- asynchronous sockets ------------------------------------------------------

@final
class Watch:
    """The operations that wait for a socket in an event loop, which watches the socket's two descriptors.

    It belongs to the thread that runs the loop. An operation's future fails with `again` after the socket's timeout.
    """

    def __new__(cls, socket: Socket, again: type[BaseException]) -> Self:
        """Watch a blocking socket; an operation that would block raises `again`."""
    @property
    def receivers(self) -> int:
        """Return how many receives wait."""
    def receive(self, call: Callable[..., Any], flags: int, arguments: tuple[Any, ...]) -> Future[Any]:
        """Return a future for the result of ``call(socket, flags, *arguments)``, which receives."""
    def transmit(self, call: Callable[..., Any], flags: int, arguments: tuple[Any, ...]) -> Future[Any]:
        """Return a future for the result of ``call(socket, flags, *arguments)``, which sends."""
    def add_event(self, events: int) -> Future[int]:
        """Return a future for the first of `events` that hold."""
    def has_events(self) -> bool:
        """Whether a future waits for events."""
    def look_again(self) -> None:
        """Try the waiting operations in the loop's next iteration: another may have consumed their wake-up."""
    def close(self) -> None:
        """Cancel the waiting operations, and unregister from the loop."""
    def leave(self) -> None:
        """Close the watch of a socket that is about to be closed, and keep nothing of the socket."""
    def _readable(self) -> None: ...
    def _look(self) -> None: ...
    def _expire(self, pending: Future[Any]) -> None: ...

class AsyncSocket(Socket):
    """A socket whose plain operations return futures; its maker sets `_watch` once."""

    _watch: Watch
    """The watch; `None` before the maker has set it."""
    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self: ...
    def send(
        self,
        data: ReadableBuffer | Frame,
        flags: int = 0,
        copy: bool = True,
        track: bool = False,
        routing_id: int | None = None,
        group: str | bytes | None = None,
    ) -> Future[Any]:
        """Send a part of a message; the future's result is what `Socket.send` returns."""
    @overload  # type: ignore[override]
    def recv(self, flags: int = 0, copy: Literal[True] = True, track: bool = False) -> Future[bytes]: ...
    @overload
    def recv(self, flags: int = 0, *, copy: Literal[False], track: bool = False) -> Future[Any]: ...
    @overload
    def recv(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, flags: int = 0, copy: bool = True, track: bool = False
    ) -> Future[Any]:
        """Receive the next part of a message: `bytes`, or without `copy` a frame."""
    @overload  # type: ignore[override]
    def recv_multipart(
        self, flags: int = 0, copy: Literal[True] = True, track: bool = False
    ) -> Future[list[bytes]]: ...
    @overload
    def recv_multipart(
        self, flags: int = 0, *, copy: Literal[False], track: bool = False
    ) -> Future[list[Any]]: ...
    @overload
    def recv_multipart(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, flags: int = 0, copy: bool = True, track: bool = False
    ) -> Future[list[Any]]:
        """Receive a whole message: the list of its parts."""

# --- several sockets ---------------------------------------------------------

def zmq_poll(sockets: Sequence[tuple[Any, int]], timeout: int = -1) -> list[tuple[Any, int]]:
    """Wait until one of the sockets and descriptors is ready; `timeout` is in milliseconds, negative for ever.

    The result has a socket as itself, any other object as its descriptor.
    """

def proxy(frontend: Socket, backend: Socket, capture: Socket | None = None) -> int:
    """Pass messages both ways between two sockets until the context ends."""

def proxy_steerable(
    frontend: Socket, backend: Socket, capture: Socket | None = None, control: Socket | None = None
) -> int:
    """Run a proxy whose `control` socket receives PAUSE, RESUME, STATISTICS and TERMINATE."""

def device(type: int, frontend: Socket, backend: Socket) -> int:
    """Run a proxy; the type has no effect any more."""

# --- the rest ----------------------------------------------------------------

def curve_keypair() -> tuple[bytes, bytes]:
    """Return a new public and secret key, each as 40 bytes of Z85."""

def curve_public(secret_key: str | bytes) -> bytes:
    """Return the public key that belongs to a secret one."""

def strerror(errno: int) -> str:
    """Return the text for an error number."""

def zmq_errno() -> int:
    """Return the number of this thread's latest error."""

def has(capability: str) -> bool:
    """Whether a transport or mechanism is supported, by libzmq's name for it."""

def zmq_version_info() -> tuple[int, int, int]:
    """Return the version of libzmq that this package behaves as."""
