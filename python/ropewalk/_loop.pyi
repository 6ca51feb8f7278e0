"""The extension module of the event loop."""

# Methods whose arguments have names in asyncio, and are positional only here.
# pyright: reportIncompatibleMethodOverride=false

import asyncio
import sys
from asyncio import transports
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextvars import Context
from socket import socket
from traceback import StackSummary
from typing import IO, Any, Self, TypeVar, TypeVarTuple, Unpack, final

from _typeshed import FileDescriptorLike, ReadableBuffer, WriteableBuffer

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

# --- handles -----------------------------------------------------------------

@final
class Handle(asyncio.Handle):
    """A call that was scheduled on a loop: an `asyncio.Handle`."""

    @property
    def _callback(self) -> Callable[..., object] | None:
        """The callback; `None` once it has run or was cancelled."""
    @property
    def _args(self) -> tuple[Any, ...] | None:  # type: ignore[override]
        """Its arguments; `None` once it has run or was cancelled."""
    @property
    def _context(self) -> Context | None:
        """The context in which the callback runs. If the handle shares it, it is copied before it is returned."""
    @property
    def _loop(self) -> LoopCore | None:
        """The handle's loop."""
    @property
    def _repr(self) -> str | None:
        """The handle's `repr` from before it was cancelled, in debug mode."""
    @property
    def _cancelled(self) -> bool:  # type: ignore[override]
        """Whether the handle was cancelled."""
    @property
    def _source_traceback(self) -> StackSummary | None:
        """The stack that scheduled the callback, in debug mode."""
    def cancel(self) -> None:
        """Cancels the callback: the loop will not call it."""
    def cancelled(self) -> bool:
        """Whether the handle was cancelled."""
    def get_context(self) -> Context:
        """The context in which the callback runs. If the handle shares it, it is copied before it is returned."""

@final
class TimerHandle(asyncio.TimerHandle):
    """A call that was scheduled for a time: an `asyncio.TimerHandle`. It has the members of `Handle`."""

    @property
    def _callback(self) -> Callable[..., object] | None: ...
    @property
    def _args(self) -> tuple[Any, ...] | None: ...  # type: ignore[override]
    @property
    def _context(self) -> Context | None: ...
    @property
    def _loop(self) -> LoopCore | None: ...
    @property
    def _repr(self) -> str | None: ...
    @property
    def _cancelled(self) -> bool: ...  # type: ignore[override]
    @property
    def _source_traceback(self) -> StackSummary | None: ...
    @property
    def _when(self) -> float:
        """The timer's time, in seconds of the loop's clock."""
    @property
    def _scheduled(self) -> bool:
        """Whether the timer waits for its time."""
    def cancel(self) -> None: ...
    def cancelled(self) -> bool: ...
    def get_context(self) -> Context: ...
    def when(self) -> float:
        """The timer's time, in seconds of the loop's clock."""

if sys.version_info >= (3, 14):
    @final
    class ThreadSafeHandle(asyncio.Handle):
        """A call of `call_soon_threadsafe`: `cancel` waits while another thread runs it. It has `Handle`'s members."""

        @property
        def _callback(self) -> Callable[..., object] | None: ...
        @property
        def _args(self) -> tuple[Any, ...] | None: ...  # type: ignore[override]
        @property
        def _context(self) -> Context | None: ...
        @property
        def _loop(self) -> LoopCore | None: ...
        @property
        def _repr(self) -> str | None: ...
        @property
        def _cancelled(self) -> bool: ...  # type: ignore[override]
        @property
        def _source_traceback(self) -> StackSummary | None: ...
        def cancel(self) -> None: ...
        def cancelled(self) -> bool: ...
        def get_context(self) -> Context: ...

else:
    ThreadSafeHandle = Handle

# --- the loop ----------------------------------------------------------------

class LoopCore:
    """The queue, the timers and the descriptors of a loop."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def call_soon(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> Handle:
        """Calls `callback` in the next iteration of the loop; returns its handle."""
    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As `call_soon`, from any thread."""
    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        """Calls `callback` after `delay` seconds; returns its handle."""
    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        """Calls `callback` at a time of the loop's clock; returns its handle."""
    def time(self) -> float:
        """Seconds of the loop's clock, as `time.monotonic`."""
    def create_future(self) -> asyncio.Future[Any]:
        """Returns a future of this loop."""
    def create_task(
        self,
        coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
        *,
        name: object = None,
        context: Context | None = None,
        **kwargs: Any,
    ) -> asyncio.Task[_T]:
        """Returns a task of this loop, which runs the coroutine."""
    def get_debug(self) -> bool:
        """Whether debug mode is on."""
    def is_closed(self) -> bool:
        """Whether the loop was closed."""
    def is_running(self) -> bool:
        """Whether the loop runs."""
    def stop(self) -> None:
        """Ends `run_forever` after this iteration."""
    def sock_recv(self, sock: socket, n: int) -> Coroutine[Any, Any, bytes]:
        """Returns an awaitable of at most `n` bytes, which can be awaited once."""
    def sock_recv_into(self, sock: socket, buf: WriteableBuffer) -> Coroutine[Any, Any, int]:
        """Returns an awaitable of the number of bytes received into `buf`, which can be awaited once."""
    def sock_sendall(self, sock: socket, data: ReadableBuffer) -> Coroutine[Any, Any, None]:
        """Returns an awaitable that sends all of `data`, which can be awaited once."""
    def sock_recvfrom(self, sock: socket, bufsize: int) -> Coroutine[Any, Any, tuple[bytes, Any]]:
        """Returns an awaitable of one message and its sender's address, which can be awaited once."""
    def sock_recvfrom_into(
        self, sock: socket, buf: WriteableBuffer, nbytes: int = 0
    ) -> Coroutine[Any, Any, tuple[int, Any]]:
        """Returns an awaitable of a message's size and its sender's address, which can be awaited once."""
    def sock_sendto(self, sock: socket, data: ReadableBuffer, address: Any) -> Coroutine[Any, Any, int]:
        """Returns an awaitable that sends `data` as one message, which can be awaited once."""
    def sock_accept(self, sock: socket) -> Coroutine[Any, Any, tuple[socket, Any]]:
        """Returns an awaitable of a connection and its other end's address, which can be awaited once."""
    def sock_connect(self, sock: socket, address: Any) -> Coroutine[Any, Any, None]:
        """Returns an awaitable that connects a socket, which can be awaited once."""
    def sock_sendfile(
        self,
        sock: socket,
        file: IO[bytes],
        offset: int = 0,
        count: int | None = None,
        *,
        fallback: bool | None = True,
    ) -> Coroutine[Any, Any, int]:
        """Returns an awaitable that sends a file, and returns the number of bytes; it can be awaited once."""
    def sendfile(
        self,
        transport: asyncio.WriteTransport,
        file: IO[bytes],
        offset: int = 0,
        count: int | None = None,
        *,
        fallback: bool = True,
    ) -> Coroutine[Any, Any, int]:
        """Returns an awaitable that sends a file over a transport, which can be awaited once."""

    _debug: bool
    _closed: bool
    _stopping: bool
    _thread_id: int | None
    _task_factory: Any

    def _claim(self) -> None:
        """Makes the calling thread the one that runs it; raises RuntimeError if there is one."""
    def _run(self) -> None:
        """Runs iterations until `stop` was called."""
    def _discard(self) -> None:
        """Drops the scheduled callbacks, and closes the loop's descriptors."""
    def _check_closed(self) -> None: ...
    def _write_to_self(self) -> None: ...
    def _add_callback(self, handle: asyncio.Handle, /) -> None: ...
    def _add_reader(
        self, fd: FileDescriptorLike, callback: Callable[[Unpack[_Ts]], object], /, *args: *_Ts
    ) -> Handle: ...
    def _add_writer(
        self, fd: FileDescriptorLike, callback: Callable[[Unpack[_Ts]], object], /, *args: *_Ts
    ) -> Handle: ...
    def _remove_reader(self, fd: FileDescriptorLike, /) -> bool: ...
    def _remove_writer(self, fd: FileDescriptorLike, /) -> bool: ...
    def _pending(self, timers: bool, /) -> list[Any]:
        """Returns the timers, or what is to run."""
    def _accept_connection(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        sock: socket,
        sslcontext: Any = None,
        server: Any = None,
        backlog: int = 100,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> None:
        """Accepts what waits in the queue of a listener."""
    def _make_socket_transport(
        self,
        sock: socket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        *,
        extra: dict[str, Any] | None = None,
        server: Any = None,
    ) -> asyncio.Transport:
        """Makes the transport of a connected socket."""
    def _open_stream(
        self,
        sock: socket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None,
        extra: dict[str, Any] | None,
        server: Any,
        /,
    ) -> asyncio.Transport:
        """Makes it whatever the socket."""
    def _is_polled(self, fd: FileDescriptorLike, /) -> tuple[bool, bool]:
        """Whether a callback waits for reading, and whether one waits for writing."""

# --- connections -------------------------------------------------------------

class Stream(transports._FlowControlMixin):
    """The methods of a socket's transport that run for each message."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def write(self, data: ReadableBuffer, /) -> None:
        """Sends `data`: at once if nothing waits before it, unless the transport gathers."""
    def writelines(self, list_of_data: Iterable[ReadableBuffer], /) -> None:
        """Writes several pieces, as one `write` of their concatenation does."""
    def write_eof(self) -> None:
        """Closes the sending direction once all written data are sent."""
    def close(self) -> None:
        """Closes the connection once all written data are sent."""
    def abort(self) -> None:
        """Closes the connection at once, and drops unsent data."""
    def pause_reading(self) -> None:
        """Stops reading."""
    def resume_reading(self) -> None:
        """Reads again."""
    def is_reading(self) -> bool:
        """Whether the transport reads."""
    def is_closing(self) -> bool:
        """Whether the transport is closing, or is closed."""
    def get_protocol(self) -> asyncio.BaseProtocol:
        """Returns the protocol."""
    def set_protocol(self, protocol: asyncio.BaseProtocol, /) -> None: ...
    def get_write_buffer_size(self) -> int:
        """Returns the number of unsent bytes."""
    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Returns the low and the high mark of flow control, in bytes."""
    def _force_close(self, error: BaseException | None, /) -> None:
        """Closes the connection at once; `error` is the reason, or `None`."""
    def _start_reading(self) -> None:
        """Registers the socket with the loop."""
    def _begin(self, waiter: asyncio.Future[None] | None, /) -> None: ...
    def _call_connection_lost(self, error: BaseException | None, /) -> None: ...
    def _leave(self) -> None:
        """Drops every reference, and closes the file."""
    def __del__(self) -> None: ...
    def _attach(self, loop: LoopCore, file: Any, protocol: asyncio.BaseProtocol, /) -> None: ...
    def _set_limits(self, high: int, low: int, /) -> None: ...
    @property
    def _loop(self) -> Any:
        """The loop; `None` once the transport is closed."""
    @property
    def _protocol_paused(self) -> bool:
        """Whether the protocol's `pause_writing` was called last."""
    @property
    def _sock(self) -> socket | None:
        """The socket; `None` once the transport is closed."""
    @_sock.setter
    def _sock(self, sock: Any) -> None: ...
    @property
    def _sock_fd(self) -> int:
        """The socket's descriptor."""
    @property
    def _protocol(self) -> asyncio.BaseProtocol | None:
        """The protocol; `None` once the transport is closed."""

    _server: Any
    _extra: dict[str, Any]
    def _info(self, name: str, default: Any, /) -> Any:
        """What `get_extra_info` looks up."""
    def _show_descriptor(self) -> None:
        """Gathers no more writes: the program uses the socket itself from here on."""

    _empty_waiter: asyncio.Future[None] | None

class ReadPipe(transports.ReadTransport):
    """The methods of a reading pipe's transport that run for each message."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def _read_rest(self) -> None:
        """Passes on what has been written so far."""
    def close(self) -> None:
        """Closes the pipe."""
    def is_closing(self) -> bool:
        """Whether the transport is closing, or is closed."""
    def get_protocol(self) -> asyncio.BaseProtocol:
        """Returns the protocol."""
    def set_protocol(self, protocol: asyncio.BaseProtocol, /) -> None: ...
    def _force_close(self, error: BaseException | None, /) -> None:
        """Closes the transport at once; `error` is the reason, or `None`."""
    def _start_reading(self) -> None:
        """Registers the file with the loop."""
    def _begin(self, waiter: asyncio.Future[None] | None, /) -> None: ...
    def _call_connection_lost(self, error: BaseException | None, /) -> None: ...
    def _leave(self) -> None:
        """Drops every reference, and closes the file."""
    def __del__(self) -> None: ...
    def _attach(self, loop: LoopCore, file: Any, protocol: asyncio.BaseProtocol, /) -> None: ...
    @property
    def _loop(self) -> Any:
        """The loop; `None` once the transport is closed."""
    @property
    def _protocol_paused(self) -> bool:
        """Whether the protocol's `pause_writing` was called last."""
    @property
    def _sock(self) -> Any:
        """The socket or pipe; `None` once the transport is closed."""
    @property
    def _sock_fd(self) -> int:
        """The descriptor's number."""
    @property
    def _protocol(self) -> asyncio.BaseProtocol | None:
        """The protocol; `None` once the transport is closed."""
    def pause_reading(self) -> None:
        """Stops reading."""
    def resume_reading(self) -> None:
        """Reads again."""
    def is_reading(self) -> bool:
        """Whether the transport reads."""

class WritePipe(transports._FlowControlMixin):
    """The methods of a writing pipe's transport that run for each message."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def write(self, data: ReadableBuffer, /) -> None:
        """Writes `data` at once as far as there is room, and the rest when there is some."""
    def write_eof(self) -> None:
        """Closes the pipe once all written data are sent."""
    def _start_writing(self) -> None:
        """Registers the pipe with the loop, which watches for the end of its reader."""
    def close(self) -> None:
        """Closes the pipe once all written data are sent."""
    def is_closing(self) -> bool:
        """Whether the transport is closing, or is closed."""
    def get_protocol(self) -> asyncio.BaseProtocol:
        """Returns the protocol."""
    def set_protocol(self, protocol: asyncio.BaseProtocol, /) -> None: ...
    def _force_close(self, error: BaseException | None, /) -> None:
        """Closes the transport at once; `error` is the reason, or `None`."""
    def _start_reading(self) -> None:
        """Registers the file with the loop."""
    def _begin(self, waiter: asyncio.Future[None] | None, /) -> None: ...
    def _call_connection_lost(self, error: BaseException | None, /) -> None: ...
    def _leave(self) -> None:
        """Drops every reference, and closes the file."""
    def __del__(self) -> None: ...
    def _attach(self, loop: LoopCore, file: Any, protocol: asyncio.BaseProtocol, /) -> None: ...
    @property
    def _loop(self) -> Any:
        """The loop; `None` once the transport is closed."""
    @property
    def _protocol_paused(self) -> bool:
        """Whether the protocol's `pause_writing` was called last."""
    @property
    def _sock(self) -> Any:
        """The socket or pipe; `None` once the transport is closed."""
    @property
    def _sock_fd(self) -> int:
        """The descriptor's number."""
    @property
    def _protocol(self) -> asyncio.BaseProtocol | None:
        """The protocol; `None` once the transport is closed."""
    def abort(self) -> None:
        """Closes at once, and drops unsent data."""
    def get_write_buffer_size(self) -> int:
        """Returns the number of unsent bytes."""
    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Returns the low and the high mark of flow control, in bytes."""
    def _set_limits(self, high: int, low: int, /) -> None: ...

class Datagram(transports._FlowControlMixin):
    """The methods of a datagram endpoint that run for each message."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def sendto(self, data: ReadableBuffer, addr: Any = None) -> None:
        """Sends a datagram, at once if none waits before it."""
    def _set_peer(self, address: Any, connected: bool, family: int | None, /) -> None:
        """Sets what the endpoint is for."""
    def _retry(self) -> None:
        """Tries again to send what waits."""
    def close(self) -> None:
        """Closes the endpoint once all datagrams are sent."""
    def is_closing(self) -> bool:
        """Whether the transport is closing, or is closed."""
    def get_protocol(self) -> asyncio.BaseProtocol:
        """Returns the protocol."""
    def set_protocol(self, protocol: asyncio.BaseProtocol, /) -> None: ...
    def _force_close(self, error: BaseException | None, /) -> None:
        """Closes the transport at once; `error` is the reason, or `None`."""
    def _start_reading(self) -> None:
        """Registers the file with the loop."""
    def _begin(self, waiter: asyncio.Future[None] | None, /) -> None: ...
    def _call_connection_lost(self, error: BaseException | None, /) -> None: ...
    def _leave(self) -> None:
        """Drops every reference, and closes the file."""
    def __del__(self) -> None: ...
    def _attach(self, loop: LoopCore, file: Any, protocol: asyncio.BaseProtocol, /) -> None: ...
    @property
    def _loop(self) -> Any:
        """The loop; `None` once the transport is closed."""
    @property
    def _protocol_paused(self) -> bool:
        """Whether the protocol's `pause_writing` was called last."""
    @property
    def _sock(self) -> Any:
        """The socket or pipe; `None` once the transport is closed."""
    @property
    def _sock_fd(self) -> int:
        """The descriptor's number."""
    @property
    def _protocol(self) -> asyncio.BaseProtocol | None:
        """The protocol; `None` once the transport is closed."""
    def pause_reading(self) -> None:
        """Stops reading."""
    def resume_reading(self) -> None:
        """Reads again."""
    def is_reading(self) -> bool:
        """Whether the transport reads."""
    def abort(self) -> None:
        """Closes at once, and drops unsent data."""
    def get_write_buffer_size(self) -> int:
        """Returns the number of unsent bytes."""
    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Returns the low and the high mark of flow control, in bytes."""
    def _set_limits(self, high: int, low: int, /) -> None: ...

# --- awaitables --------------------------------------------------------------

@final
class Operation:
    """An operation on a socket: an awaitable that can be awaited once."""

    @property
    def __name__(self) -> str: ...
    @property
    def __qualname__(self) -> str: ...
    def send(self, value: Any, /) -> Any:
        """Resumes the operation."""
    def throw(self, *error: Any) -> Any:
        """Ends the operation by an exception."""
    def close(self) -> None:
        """Abandons the operation."""
    def __await__(self) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...

@final
class Reading:
    """A read of a stream: an awaitable that can be awaited once. It has the methods of `Operation`."""

    @property
    def __name__(self) -> str: ...
    @property
    def __qualname__(self) -> str: ...
    def send(self, value: Any, /) -> Any: ...
    def throw(self, *error: Any) -> Any: ...
    def close(self) -> None: ...
    def __await__(self) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...

class StreamReader(asyncio.StreamReader):
    """The reader of a connection: asyncio's class and state, with compiled methods."""

    def read(self, n: int = -1) -> Awaitable[bytes]:  # type: ignore[override]
        """As `asyncio.StreamReader.read`."""
    def readexactly(self, n: int) -> Awaitable[bytes]:  # type: ignore[override]
        """As `asyncio.StreamReader.readexactly`."""

def _report_slow(callback: str, thread: str, microseconds: int, /) -> None:
    """Publishes `loop.callback.slow` to the listeners of `ropewalk.events`."""

def _set_transport_class(kind: type[Stream], /) -> None:
    """Sets the class of the transports of connected sockets."""
