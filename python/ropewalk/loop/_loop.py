"""`Loop`: asyncio's loop over a compiled queue, timers, readiness and stream transports."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
import warnings
from asyncio import base_events, constants, events, format_helpers
from socket import socket
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVarTuple, Unpack, cast

from ropewalk._load import loop as _core
from ropewalk.loop._children import ChildWatching
from ropewalk.loop._datagrams import DatagramTransport
from ropewalk.loop._pipes import ReadPipeTransport, WritePipeTransport
from ropewalk.loop._polled import Pending, Polled
from ropewalk.loop._servers import Accepting
from ropewalk.loop._tls import RECEIVE, TLSProtocol
from ropewalk.loop._transport import Transports

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from ssl import SSLContext

    class _Base(asyncio.SelectorEventLoop):
        """For type checkers: private methods of asyncio's loop, and methods of ours whose types are narrower."""

        _current_handle: asyncio.Handle | None

        def _check_running(self) -> None: ...
        def _make_socket_transport(
            self,
            sock: socket,
            protocol: asyncio.BaseProtocol,
            waiter: asyncio.Future[None] | None = None,
            *,
            extra: dict[str, Any] | None = None,
            server: Any = None,
        ) -> asyncio.Transport: ...
        def _check_thread(self) -> None: ...
        def _check_callback(self, callback: object, method: str) -> None: ...
        def _set_coroutine_origin_tracking(self, enabled: bool) -> None: ...
        def _asyncgen_firstiter_hook(self, agen: AsyncGenerator[Any, Any]) -> None: ...
        def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None: ...
        def _make_self_pipe(self) -> None: ...
        def _close_self_pipe(self) -> None: ...
        def _ensure_fd_no_transport(self, fd: Any) -> None: ...
        def sock_recv(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, sock: socket, n: int
        ) -> Coroutine[Any, Any, bytes]: ...
        def sock_recv_into(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, sock: socket, buf: Any
        ) -> Coroutine[Any, Any, int]: ...
        def sock_sendall(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, sock: socket, data: Any
        ) -> Coroutine[Any, Any, None]: ...
        def sock_recvfrom(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, sock: socket, bufsize: int
        ) -> Coroutine[Any, Any, tuple[bytes, Any]]: ...
        def sock_recvfrom_into(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, sock: socket, buf: Any, nbytes: int = 0
        ) -> Coroutine[Any, Any, tuple[int, Any]]: ...
        def sock_sendto(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, sock: socket, data: Any, address: Any
        ) -> Coroutine[Any, Any, int]: ...
        def sock_accept(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, sock: socket
        ) -> Coroutine[Any, Any, tuple[socket, Any]]: ...
        def sock_connect(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, sock: socket, address: Any
        ) -> Coroutine[Any, Any, None]: ...
        def sock_sendfile(  # pyright: ignore[reportIncompatibleMethodOverride]
            self,
            sock: socket,
            file: IO[bytes],
            offset: int = 0,
            count: int | None = None,
            *,
            fallback: bool | None = True,
        ) -> Coroutine[Any, Any, int]: ...
        def sendfile(  # pyright: ignore[reportIncompatibleMethodOverride]
            self,
            transport: asyncio.WriteTransport,
            file: IO[bytes],
            offset: int = 0,
            count: int | None = None,
            *,
            fallback: bool = True,
        ) -> Coroutine[Any, Any, int]: ...

else:
    _Base = asyncio.SelectorEventLoop

#: asyncio's modules without types: we use private names, and arguments whose declared types are too narrow.
_base_events: Any = base_events
_Ts = TypeVarTuple("_Ts")


class Loop(_core.LoopCore, ChildWatching, Accepting, _Base):
    """An event loop for one thread.

    A drop-in replacement for asyncio's loop. Ropewalk implements what runs for each callback, timer, read and write;
    asyncio's code does the rest. Handles are instances of `asyncio.Handle`, transports of `asyncio.Transport`.

    Source: PEP 3156, and the documentation of `asyncio.AbstractEventLoop`.
    """

    def __init__(self) -> None:
        # Not BaseSelectorEventLoop.__init__: it would make a selector, and a pair of sockets that only signals need.
        asyncio.BaseEventLoop.__init__(self)
        self._selector: Any = Polled(self)
        # The descriptor of the notifier, through which other threads wake the loop.
        self._internal_fds = 1
        self._ssock: socket | None = None
        self._csock: socket | None = None
        self._transports = Transports()
        self._signal_handlers: dict[int, events.Handle] = {}
        self._unix_server_sockets: dict[Any, int] = {}
        self._pidfds: set[int] = set()
        self._shared_buffer: tuple[bytearray, memoryview] | None = None

    # --- private parts of asyncio's loops that tools read --------------------------------------------------------

    @property
    def _ready(self) -> Pending:
        return Pending(self, False)

    @_ready.setter
    def _ready(self, _: object) -> None:
        """Ignore asyncio's own queue."""

    @property
    def _scheduled(self) -> Pending:
        return Pending(self, True)

    @_scheduled.setter
    def _scheduled(self, _: object) -> None:
        """Ignore asyncio's own heap."""

    @property
    def _nest_patched(self) -> NoReturn:
        # nest_asyncio asks for it before it puts methods of its own into the class, which would never return. Others
        # that go through the loop's attributes find none.
        if not sys._getframe(1).f_globals.get("__name__", "").startswith("nest_asyncio"):
            raise AttributeError("_nest_patched")
        raise RuntimeError(
            "nest_asyncio cannot patch ropewalk.Loop, whose turns are compiled. Give the coroutine to a loop in "
            "another thread: asyncio.run_coroutine_threadsafe(coroutine, that_loop).result()"
        )

    # --- running -------------------------------------------------------------------------------------------------

    # asyncio's own, whatever a program has put into the classes in between: nest_asyncio replaces these in the class of
    # asyncio's loops with functions that turn the loop by its private parts.
    run_until_complete = _base_events.BaseEventLoop.run_until_complete
    _check_running = _base_events.BaseEventLoop._check_running

    def run_forever(self) -> None:
        """Run until `stop()` is called."""
        self._check_closed()
        self._check_running()
        # Another thread may have begun since; only one passes here.
        self._claim()
        hooks = sys.get_asyncgen_hooks()
        try:
            self._set_coroutine_origin_tracking(self._debug)
            sys.set_asyncgen_hooks(
                firstiter=self._asyncgen_firstiter_hook, finalizer=self._asyncgen_finalizer_hook
            )
            events._set_running_loop(self)
            self._run()
        finally:
            self._stopping = False
            self._thread_id = None
            events._set_running_loop(None)
            self._set_coroutine_origin_tracking(False)
            sys.set_asyncgen_hooks(*hooks)

    def close(self) -> None:
        """Close the loop. It drops the scheduled callbacks and accepts no others."""
        if self.is_running():
            raise RuntimeError("Cannot close a running event loop")
        if self.is_closed():
            return
        super().close()
        self._discard()
        self._forget_children()

    def __del__(self, _warn: Any = warnings.warn, _at_exit: Callable[[], bool] = sys.is_finalizing) -> None:
        # A loop whose `__init__` has failed has nothing to close but its memory.
        if self.is_closed() or "_shared_buffer" not in self.__dict__:
            return
        _warn(f"unclosed event loop {self!r}", ResourceWarning, source=self)
        # At the interpreter's exit other finalizers run later and still use the loop: asyncio's subprocess transports
        # do. Its descriptors are closed with its memory.
        if not self.is_running() and not _at_exit():
            self.close()

    def _callback_failed(self, handle: _core.Handle | _core.TimerHandle, error: BaseException) -> None:
        """Report an exception of a callback to the exception handler, as `asyncio.Handle` does."""
        callback = format_helpers._format_callback_source(handle._callback, handle._args or ())
        context: dict[str, Any] = {
            "message": f"Exception in callback {callback}",
            "exception": error,
            "handle": handle,
        }
        if handle._source_traceback:
            context["source_traceback"] = handle._source_traceback
        self.call_exception_handler(context)

    def _run_in_debug(self, handle: events.Handle) -> None:
        """Run a handle, and log it if it takes long."""
        try:
            self._current_handle = handle
            began = self.time()
            handle._run()
            self._tell_slow(handle, self.time() - began)
        finally:
            self._current_handle = None
            # A task may keep an exception whose traceback refers to this frame.
            del handle

    def _tell_slow(self, what: Any, took: float) -> None:
        """Log and report, in debug mode, what took long: a handle, or a transport that has called its protocol."""
        if took >= self.slow_callback_duration:
            name = _name_of(what)
            _base_events.logger.warning("Executing %s took %.3f seconds", name, took)
            # A lone surrogate is no text to other threads.
            thread = threading.current_thread().name
            _core._report_slow(_as_text(name), _as_text(thread), int(took * 1e6))

    def _note_scheduled(self, callback: Callable[..., object], method: str) -> Any:
        """Check a callback in debug mode, and return the stack that scheduled it."""
        if method != "call_soon_threadsafe":
            self._check_thread()
        self._check_callback(callback, method)
        return format_helpers.extract_stack(sys._getframe(1))

    # --- signals -------------------------------------------------------------------------------------------------

    def add_signal_handler(self, sig: int, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts) -> None:
        """Call `callback` in the loop when a signal arrives; only the main thread may add one."""
        if self._csock is None and not self.is_closed():
            self._make_self_pipe()
        super().add_signal_handler(sig, callback, *args)

    def _close_self_pipe(self) -> None:
        if self._csock is not None:
            super()._close_self_pipe()
        self._internal_fds -= 1

    # --- transports ----------------------------------------------------------------------------------------------

    def _ensure_fd_no_transport(self, fd: Any) -> None:
        if type(fd) is socket and fd.fileno() not in self._transports.known:
            return
        try:
            super()._ensure_fd_no_transport(fd)
        except RuntimeError:
            number = fd if isinstance(fd, int) else fd.fileno()
            transport = self._transports[number]
            if transport._sock.fileno() == number:
                raise
            # Other code has closed the transport's socket, and the number belongs to another file by now.
            transport._fatal_error(OSError(errno.EBADF, os.strerror(errno.EBADF)))

    def _make_checked_transport(
        self,
        sock: socket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None,
        extra: dict[str, Any] | None,
        server: Any,
    ) -> asyncio.Transport:
        """Make the transport of a socket of another class, or whose number another transport has."""
        if sock.fileno() in self._transports.known:
            self._ensure_fd_no_transport(sock)
        if type(sock) is not socket and _has_own_methods(sock):
            # The core reads and writes the descriptor; asyncio's own transport calls the socket's methods.
            theirs: Any = super(_core.LoopCore, self)
            made = theirs._make_socket_transport(sock, protocol, waiter, extra=extra, server=server)
            return cast("asyncio.Transport", made)
        return self._open_stream(sock, protocol, waiter, extra, server)

    def _make_datagram_transport(
        self,
        sock: socket,
        protocol: asyncio.BaseProtocol,
        address: Any = None,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> DatagramTransport:
        self._ensure_fd_no_transport(sock)
        return DatagramTransport(self, sock, protocol, address, waiter, extra)

    def _make_read_pipe_transport(
        self,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> ReadPipeTransport:
        return ReadPipeTransport(self, pipe, protocol, waiter, extra)

    def _make_write_pipe_transport(
        self,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> WritePipeTransport:
        return WritePipeTransport(self, pipe, protocol, waiter, extra)

    def _make_ssl_transport(
        self,
        rawsock: socket,
        protocol: asyncio.BaseProtocol,
        sslcontext: SSLContext,
        waiter: asyncio.Future[None] | None = None,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        extra: dict[str, Any] | None = None,
        server: Any = None,
        ssl_handshake_timeout: float | None = constants.SSL_HANDSHAKE_TIMEOUT,
        ssl_shutdown_timeout: float | None = constants.SSL_SHUTDOWN_TIMEOUT,
        **more: Any,
    ) -> asyncio.Transport:
        self._ensure_fd_no_transport(rawsock)
        ssl_protocol = TLSProtocol(
            self,
            protocol,
            sslcontext,
            waiter,
            server_side,
            server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
            **more,
        )
        self._make_socket_transport(rawsock, ssl_protocol, extra=extra, server=server)
        return cast("asyncio.Transport", ssl_protocol._app_transport)

    async def start_tls(
        self,
        transport: asyncio.BaseTransport,
        protocol: asyncio.BaseProtocol,
        sslcontext: SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
    ) -> asyncio.Transport | None:
        """Go on with TLS on a connection, and return the transport that `protocol` uses from now on."""
        if not isinstance(sslcontext, _base_events.ssl.SSLContext):
            raise TypeError(f"sslcontext is expected to be an instance of ssl.SSLContext, got {sslcontext!r}")
        if not getattr(transport, "_start_tls_compatible", False):
            raise TypeError(f"transport {transport!r} is not supported by start_tls()")
        lower: Any = transport
        waiter = self.create_future()
        ssl_protocol = TLSProtocol(
            self,
            protocol,
            sslcontext,
            waiter,
            server_side,
            server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
            call_connection_made=False,
        )
        # Nothing is received before `connection_made`.
        lower.pause_reading()
        lower.set_protocol(ssl_protocol)
        scheduled = (
            self.call_soon(ssl_protocol.connection_made, lower),
            self.call_soon(lower.resume_reading),
        )
        try:
            await waiter
        except BaseException:
            lower.close()
            for handle in scheduled:
                handle.cancel()
            raise
        return cast("asyncio.Transport", ssl_protocol._app_transport)

    def _tls_buffer(self) -> tuple[bytearray, memoryview]:
        """Return the buffer into which the loop's connections with TLS receive."""
        if self._shared_buffer is None:
            memory = bytearray(RECEIVE)
            self._shared_buffer = memory, memoryview(memory)
        return self._shared_buffer


def _as_text(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _name_of(what: Any) -> str:
    if isinstance(what, events.Handle):
        return str(_base_events._format_handle(what))
    if isinstance(what, asyncio.BaseTransport):
        return f"callbacks of {_shown(what.get_protocol())} on {_shown(what)}"
    return _shown(what)


def _shown(what: object) -> str:
    try:
        return repr(what)
    except Exception:
        # A log line is not worth the end of the loop.
        return object.__repr__(what)


def _has_own_methods(sock: object) -> bool:
    """Whether the class of a socket has methods of its own for bytes, which a transport has to call."""
    kind = type(sock)
    return isinstance(sock, socket) and any(
        getattr(kind, name) is not getattr(socket, name) for name in ("recv", "recv_into", "send", "sendmsg")
    )
