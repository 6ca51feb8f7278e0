"""The event loop: the compiled part."""

# Where arguments have names in asyncio and a place only here.
# pyright: reportIncompatibleMethodOverride=false

import asyncio
import sys
from asyncio import transports
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextvars import Context
from socket import socket
from traceback import StackSummary
from typing import Any, Self, TypeVar, TypeVarTuple, Unpack, final

from _typeshed import FileDescriptorLike, ReadableBuffer, WriteableBuffer

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

# --- what is scheduled -------------------------------------------------------

@final
class Handle(asyncio.Handle):
    """A call that was scheduled on a loop: an `asyncio.Handle`."""

    @property
    def _callback(self) -> Callable[..., object] | None:
        """What is called; `None` after."""
    @property
    def _args(self) -> tuple[Any, ...] | None:  # type: ignore[override]
        """Its arguments; `None` after."""
    @property
    def _context(self) -> Context | None:
        """The context it runs in; from here on its own, if it shared one."""
    @property
    def _loop(self) -> LoopCore | None:
        """The loop it belongs to."""
    @property
    def _repr(self) -> str | None:
        """What it was when it was cancelled, in debug mode."""
    @property
    def _cancelled(self) -> bool:  # type: ignore[override]
        """Whether it was cancelled."""
    @property
    def _source_traceback(self) -> StackSummary | None:
        """Where it was scheduled, in debug mode."""
    def cancel(self) -> None:
        """It is not to be called any more."""
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
    def get_context(self) -> Context:
        """The context it runs in; from here on its own, if it shared one."""

@final
class TimerHandle(asyncio.TimerHandle):
    """A call that was scheduled for a time: an `asyncio.TimerHandle`. It has what a `Handle` has."""

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
        """Its time, in seconds of the loop's clock."""
    @property
    def _scheduled(self) -> bool:
        """Whether it waits for its time."""
    def cancel(self) -> None: ...
    def cancelled(self) -> bool: ...
    def get_context(self) -> Context: ...
    def when(self) -> float:
        """Its time, in seconds of the loop's clock."""

if sys.version_info >= (3, 14):
    @final
    class ThreadSafeHandle(asyncio.Handle):
        """A call of `call_soon_threadsafe`: `cancel` waits while another thread runs it. It has what a `Handle` has."""

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
        """Calls it in the next turn."""
    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """The same, from any thread."""
    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        """Calls it after so many seconds."""
    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        """Calls it at a time of the loop's clock."""
    def time(self) -> float:
        """Seconds of the loop's clock, as `time.monotonic`."""
    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
    def create_task(
        self,
        coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
        *,
        name: object = None,
        context: Context | None = None,
        **kwargs: Any,
    ) -> asyncio.Task[_T]:
        """A task of this loop."""
    def get_debug(self) -> bool:
        """Whether debug mode is on."""
    def is_closed(self) -> bool:
        """Whether it was closed."""
    def is_running(self) -> bool:
        """Whether it runs."""
    def stop(self) -> None:
        """Ends `run_forever` after this turn."""
    def sock_recv(self, sock: socket, n: int) -> Coroutine[Any, Any, bytes]:
        """At most so many bytes."""
    def sock_recv_into(self, sock: socket, buf: WriteableBuffer) -> Coroutine[Any, Any, int]:
        """How many bytes were received into the buffer."""
    def sock_sendall(self, sock: socket, data: ReadableBuffer) -> Coroutine[Any, Any, None]:
        """Sends all of it."""

    _debug: bool
    _closed: bool
    _stopping: bool
    _thread_id: int | None
    _task_factory: Any

    def _run(self) -> None:
        """Turns until `stop` was called."""
    def _discard(self) -> None:
        """Drops all that was scheduled, and closes its descriptors."""
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
    def _is_polled(self, fd: FileDescriptorLike, /) -> tuple[bool, bool]:
        """Whether there is a callback for reading, and for writing."""

# --- connections -------------------------------------------------------------

class Stream(transports._FlowControlMixin):
    """The transport of a connected socket, as far as it is called for each message."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def write(self, data: ReadableBuffer, /) -> None:
        """Sent after the callback of the read that it answers, or in the next turn."""
    def writelines(self, list_of_data: Iterable[ReadableBuffer], /) -> None:
        """Sent together."""
    def write_eof(self) -> None:
        """Ends this side after what was written."""
    def close(self) -> None:
        """Ends it after what was written."""
    def abort(self) -> None:
        """Ends it at once."""
    def pause_reading(self) -> None:
        """No data from here on."""
    def resume_reading(self) -> None:
        """Data again."""
    def is_reading(self) -> bool:
        """Whether it receives."""
    def is_closing(self) -> bool:
        """Whether it ends, or has ended."""
    def get_protocol(self) -> asyncio.BaseProtocol:
        """Its protocol."""
    def set_protocol(self, protocol: asyncio.BaseProtocol, /) -> None: ...
    def get_write_buffer_size(self) -> int:
        """Bytes that have not left."""
    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The low mark and the high one, in bytes."""
    def _force_close(self, error: BaseException | None, /) -> None:
        """Ends it at once."""
    def _start_reading(self) -> None:
        """Waits for the socket."""
    def _detach(self) -> Any:
        """Lets everything go; its server."""
    def _attach(
        self, loop: LoopCore, sock: socket, protocol: asyncio.BaseProtocol, server: Any, /
    ) -> None: ...
    def _set_limits(self, high: int, low: int, /) -> None: ...
    @property
    def _loop(self) -> Any:
        """Its loop; `None` after its end."""
    @property
    def _protocol_paused(self) -> bool:
        """Whether its protocol was told to pause writing."""
    @property
    def _sock(self) -> socket | None:
        """Its socket; `None` after its end."""
    @property
    def _sock_fd(self) -> int:
        """The number of its socket."""
    @property
    def _protocol(self) -> asyncio.BaseProtocol | None:
        """Its protocol; `None` after its end."""
    @property
    def _server(self) -> Any:
        """The server that accepted it, or `None`."""

    _empty_waiter: asyncio.Future[None] | None

# --- what is awaited ---------------------------------------------------------

@final
class Operation:
    """An operation on a socket, to be awaited once."""

    def send(self, value: Any, /) -> Any:
        """Goes on."""
    def throw(self, *error: Any) -> Any:
        """Ends it by an exception."""
    def close(self) -> None:
        """Gives it up."""
    def __await__(self) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...

@final
class Reading:
    """A read of a stream, to be awaited once. It has the methods of `Operation`."""

    def send(self, value: Any, /) -> Any: ...
    def throw(self, *error: Any) -> Any: ...
    def close(self) -> None: ...
    def __await__(self) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...

def _read(reader: asyncio.StreamReader, n: int, exactly: bool, /) -> Awaitable[bytes]: ...
def _set_reader_class(kind: type[asyncio.StreamReader], /) -> None:
    """Says which readers are fed without their methods."""
