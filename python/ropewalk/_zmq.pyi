"""Messaging, compiled: sockets, contexts and frames, as pyzmq's own compiled backends have them, and a little more."""

import builtins
from asyncio import Future
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any, Literal, Self, final, overload

from _typeshed import ReadableBuffer, WriteableBuffer

# --- how the module speaks to the package above it ---------------------------

def set_errors(make: Callable[[int, str], BaseException], /) -> None:
    """Register what makes the exceptions: ``make(errno, message)`` returns the instance to raise.

    A static method ``_make_error`` of a socket's, a context's or a frame's own type wins over it.
    """

def set_trackers(make: Callable[[Event | None], Any], /) -> None:
    """Register what makes trackers: ``make(event)`` for an event that will be set, ``make(None)`` for a finished one.

    A static method ``_make_tracker`` of the socket's or the frame's own type wins over it.
    """

# --- constants ---------------------------------------------------------------

IPC_PATH_MAX_LEN: int
"""The longest path that an ipc endpoint may name, in bytes."""
PYZMQ_DRAFT_API: bool
"""Whether the sockets that libzmq calls drafts are here: they are."""

# --- frames ------------------------------------------------------------------

class Frame:
    """One part of a message.

    It shows its bytes through the buffer protocol, without a copy and read-only.
    """

    more: bool
    """Whether more parts of the same message follow."""
    tracker: Any
    """Tells when the bytes were let go; `None` if it was not asked to track."""
    def __init__(
        self,
        data: ReadableBuffer | None = None,
        track: bool = False,
        copy: bool | None = None,
        copy_threshold: int | None = None,
    ) -> None:
        """Make a frame of `data`; without `copy`, what is smaller than `copy_threshold` is copied, the rest shared.

        Raises:
            TypeError: `data` is a `str`, or shows no buffer.
        """
    @property
    def buffer(self) -> memoryview:
        """The bytes, not copied."""
    @property
    def bytes(self) -> builtins.bytes:
        """The bytes, copied when they are first asked for."""
    def __len__(self) -> int: ...
    def __bytes__(self) -> builtins.bytes: ...
    def __copy__(self) -> Self: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def fast_copy(self) -> Self:
        """Return another frame over the same bytes."""
    def get(self, option: int | str | builtins.bytes) -> Any:
        """Return a message option by its number, or a property by its name.

        ``"routing_id"`` gives an `int`, ``"group"`` and the peer's properties a `str`.
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
        """Make a context, or with `shadow` another name for the one whose `underlying` that is."""
    @property
    def closed(self) -> bool:
        """Whether it was terminated, here or in the process that this one was forked from."""
    @property
    def underlying(self) -> int:
        """The context's number, by which it can be shadowed."""
    def set(self, option: int, optval: int) -> None:
        """Set an option.

        Raises:
            RuntimeError: it was terminated.
        """
    def get(self, option: int) -> int:
        """Return an option's value.

        Raises:
            RuntimeError: it was terminated.
        """
    def term(self) -> None:
        """Terminate it: whatever waits on its sockets raises an error, ``ETERM``.

        It waits until every socket was closed, and has sent what it had or has lingered long enough.
        """

class Socket:
    """One socket. Calls by two threads at once are refused, except on the types that libzmq calls thread-safe.

    A subclass may have a ``_frame_class``, a subclass of this module's `Frame`: what it receives without ``copy``.
    """

    _shadow: bool
    """Whether another object owns the socket."""
    context: Any
    copy_threshold: int
    """Without ``copy``, what is smaller than this many bytes is copied all the same."""
    def __init__(
        self,
        context: Context | None = None,
        socket_type: int = -1,
        shadow: int = 0,
        copy_threshold: int | None = None,
    ) -> None:
        """Make a socket, or with `shadow` another name for the one whose `underlying` that is."""
    @property
    def closed(self) -> bool:
        """Whether it was closed, by whomever."""
    @property
    def _closed(self) -> bool:
        """Whether it was closed, as far as is known without asking."""
    @property
    def underlying(self) -> int:
        """The socket's number, by which it can be shadowed."""
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
        """Accept no more connections at an endpoint, and end those that came by it."""
    def connect(self, addr: str | bytes) -> None:
        """Connect to an endpoint, now or whenever somebody binds it."""
    def disconnect(self, addr: str | bytes) -> None:
        """End the connection to an endpoint."""
    def close(self, linger: int | None = None) -> None:
        """Close it: never blocks; `linger` is in milliseconds, -1 for ever."""
    def monitor(self, addr: str | bytes | None, events: int = 0xFFFF) -> None:
        """Publish its events at an ``inproc`` endpoint; `None` ends that."""
    def join(self, group: str | bytes) -> None:
        """Receive what is sent to a group (DISH)."""
    def leave(self, group: str | bytes) -> None:
        """Receive no longer what is sent to a group (DISH)."""
    def connect_peer(self, addr: str | bytes) -> int:
        """Connect to an endpoint; return the routing id of who will be there (PEER)."""
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
            copy: Without it, large data are not copied; they must not change until they are sent.
            track: Whether the tracker that is returned watches the data.
            routing_id: To which client (SERVER, PEER).
            group: To which group (RADIO).

        Returns:
            A tracker for a tracked frame or without `copy`, else `None`.

        Raises:
            TypeError: It is a `str`, or shows no buffer.
            ValueError: To be tracked is a frame that was made untracked.
        """
    def send_multipart(
        self,
        msg_parts: Sequence[ReadableBuffer | Frame],
        flags: int = 0,
        copy: bool = True,
        track: bool = False,
    ) -> Any:
        """Send a whole message, or on an error nothing of it; else as `send`.

        Raises:
            ValueError: There is no part.
        """
    def send_many(self, messages: Sequence[Any], flags: int = 0) -> int:
        """Send several messages, each a buffer or a list of buffers; return how many went.

        It waits for room for the first one only, and with ``NOBLOCK`` not for that either.
        """
    def try_send(self, data: ReadableBuffer | Frame, flags: int = 0) -> bool:
        """Send one part if that can be done at once; return whether it was."""
    @overload
    def recv(self, flags: int = 0, copy: Literal[True] = True, track: bool = False) -> bytes: ...
    @overload
    def recv(self, flags: int = 0, *, copy: Literal[False], track: bool = False) -> Any: ...
    @overload
    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> Any:
        """Receive one part, as `bytes` or without `copy` as a frame; ``RCVMORE`` tells whether more follow."""
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
        """Receive a whole message, or what is left of one: its parts, as `bytes` or without `copy` as frames."""
    def recv_many(self, n: int, flags: int = 0) -> list[bytes | list[bytes]]:
        """Receive up to `n` messages that are here; waits for the first one only.

        A message of one part comes as `bytes`, any other as a list of them.
        """
    def try_recv(self) -> bytes | None:
        """Receive one part if one is here."""
    def try_recv_multipart(self) -> list[bytes] | None:
        """Receive a whole message if one is here."""
    def poll_state(self) -> int:
        """Return which of POLLIN and POLLOUT hold, without waiting."""

# --- sockets that are awaited --------------------------------------------------

@final
class Watch:
    """Who waits for a socket in an event loop, behind its two descriptors.

    It belongs to the thread that runs the loop. An operation's future fails with `again` after the socket's timeout.
    """

    def __new__(cls, socket: Socket, again: type[BaseException]) -> Self:
        """Watch a blocking socket, whose operations are tried; what cannot be done yet raises `again`."""
    @property
    def receivers(self) -> int:
        """How many receives wait."""
    def receive(self, call: Callable[..., Any], flags: int, arguments: tuple[Any, ...]) -> Future[Any]:
        """Return a future for what ``call(socket, flags, *arguments)`` receives, now or later."""
    def transmit(self, call: Callable[..., Any], flags: int, arguments: tuple[Any, ...]) -> Future[Any]:
        """Return a future for what ``call(socket, flags, *arguments)`` sends, now or later."""
    def add_event(self, events: int) -> Future[int]:
        """Return a future for those of `events` that come first."""
    def has_events(self) -> bool:
        """Whether anybody waits for events."""
    def look_again(self) -> None:
        """Look at those who wait in the loop's next turn: an operation may have taken their signal."""
    def close(self) -> None:
        """Cancel whoever waits, and leave the loop."""
    def _readable(self) -> None: ...
    def _look(self) -> None: ...
    def _expire(self, told: Future[Any]) -> None: ...

class AsyncSocket(Socket):
    """A socket whose plain operations return futures. Who makes one gives it a watch, once."""

    _watch: Watch
    """`None` while it is half made."""
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
    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> Future[Any]:  # type: ignore[override]
        """Receive the next part of a message: `bytes`, or without `copy` a frame."""
    def recv_multipart(  # type: ignore[override]
        self, flags: int = 0, copy: bool = True, track: bool = False
    ) -> Future[Any]:
        """Receive a whole message: the list of its parts."""

# --- several sockets ---------------------------------------------------------

def zmq_poll(sockets: Sequence[tuple[Any, int]], timeout: int = -1) -> list[tuple[Any, int]]:
    """Wait until one of the sockets and descriptors is ready; `timeout` is in milliseconds, negative for ever.

    A socket answers as itself, anything else as its descriptor.
    """

def proxy(frontend: Socket, backend: Socket, capture: Socket | None = None) -> int:
    """Pass messages both ways between two sockets until the context ends."""

def proxy_steerable(
    frontend: Socket, backend: Socket, capture: Socket | None = None, control: Socket | None = None
) -> int:
    """As `proxy`, but `control` receives PAUSE, RESUME, STATISTICS and TERMINATE."""

def device(type: int, frontend: Socket, backend: Socket) -> int:
    """As `proxy`; the type says nothing any more."""

# --- the rest ----------------------------------------------------------------

def curve_keypair() -> tuple[bytes, bytes]:
    """Return a new public and secret key, each as 40 bytes of Z85."""

def curve_public(secret_key: str | bytes) -> bytes:
    """Return the public key that belongs to a secret one."""

def strerror(errno: int) -> str:
    """Return what an error number means."""

def zmq_errno() -> int:
    """Return the number of this thread's latest error."""

def has(capability: str) -> bool:
    """Whether a transport or mechanism is here, by libzmq's name for it."""

def zmq_version_info() -> tuple[int, int, int]:
    """Return the version of libzmq that this behaves as."""
