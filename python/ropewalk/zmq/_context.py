"""The context, which makes sockets and ends them together."""

from __future__ import annotations

import atexit
import os
import warnings
from contextlib import suppress
from errno import ENOTSUP
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast, overload
from weakref import WeakSet

from ropewalk.zmq import _compiled
from ropewalk.zmq._enums import ContextOption
from ropewalk.zmq._options import OptionAttributes, names_of, repr_name
from ropewalk.zmq._socket import Socket
from ropewalk.zmq._socket_options import SocketOption
from ropewalk.zmq.error import ZMQError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    _SocketT = DefaultTypeVar("_SocketT", bound=Socket[Any], covariant=True, default=Socket[bytes])
else:
    _SocketT = TypeVar("_SocketT", bound=Socket[Any], covariant=True)


class Context(_compiled.Context, OptionAttributes, Generic[_SocketT]):
    """Makes sockets and ends them; sockets of one context reach each other by ``inproc``.

    Most programs need one context, `Context.instance`. As a context manager it closes its open sockets at its end.

    A socket option that is set on the context (``context.linger = 0``) is the default of sockets made later.

    Args:
        io_threads: Accepted, and returned by ``IO_THREADS``, but unused: the calling threads do the work. Another
            context in its place is shadowed.
        shadow: The context that this object shadows, or that context's ``underlying``.

    Examples:
        >>> import ropewalk.zmq as zmq
        >>> with zmq.Context() as context:
        ...     context.socket(zmq.PUB).close()
    """

    _repr_name = "ropewalk.zmq.Context"

    _option_names = names_of(ContextOption, SocketOption)
    _shadow = False
    _shadow_obj: object = None
    _warn_destroy_close = False
    _socket_class: Callable[..., Any] = Socket

    _instance: ClassVar[Any] = None
    _instance_pid: ClassVar[int | None] = None
    _instance_lock: ClassVar[Lock] = Lock()

    #: The defaults of new sockets' options, by number.
    sockopts: dict[int, Any]
    _sockets: WeakSet[Any]
    #: The ``underlying`` of each open socket that was made in this context.
    _numbers: set[int]
    #: Guards `_sockets`: a socket may be collected, and remove itself, while this thread adds another. There is one
    #: lock for all contexts, because a forked child needs a new one.
    _sockets_lock: ClassVar[RLock] = RLock()

    @overload
    def __init__(self: Context[Socket[bytes]], io_threads: int = 1) -> None: ...
    @overload
    def __init__(self: Context[Socket[bytes]], io_threads: Context[Any], /) -> None: ...
    @overload
    def __init__(self: Context[Socket[bytes]], *, shadow: Context[Any] | int) -> None: ...
    def __init__(self, io_threads: int | Context[Any] = 1, shadow: Context[Any] | int = 0) -> None:
        if isinstance(io_threads, Context):
            shadow, io_threads = io_threads, 1
        if shadow:
            self._shadow = True
            self._shadow_obj = shadow
        number = shadow if isinstance(shadow, int) else shadow.underlying
        super().__init__(io_threads=io_threads, shadow=number)
        self.sockopts = {}
        self._numbers = set()
        self._sockets = WeakSet()

    def __del__(self) -> None:
        # The constructor may have failed before it set `_sockets`.
        if self._shadow or _leaving or "_sockets" not in self.__dict__ or self.closed:
            return
        self._warn_destroy_close = True
        warnings.warn(f"Unclosed context {self}", ResourceWarning, stacklevel=2, source=self)
        # If the collector found the context in a cycle with sockets, it has already cleared the weak references to
        # them. The context must not wait for sockets that no code can close any more.
        for number in list(self._numbers):
            with suppress(ZMQError):
                Socket(shadow=number).close()
        self.destroy()

    def __repr__(self) -> str:
        count = len(self.__dict__.get("_sockets", ()))
        sockets = f"{count} socket{'s' if count > 1 else ''}" if count else ""
        closed = " closed" if self.closed else ""
        return f"<{repr_name(type(self))}({sockets}) at {id(self):#x}{closed}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._warn_destroy_close = True
        self.destroy()

    def __copy__(self, memo: object = None) -> Self:
        return self.shadow(self.underlying)

    __deepcopy__ = __copy__

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r}: a context belongs to its process")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *ContextOption.__members__]

    @classmethod
    def instance(cls, io_threads: int = 1) -> Self:
        """Return the process's shared context; a new one after a fork, and after the last one was closed.

        A subclass that needs its own sets ``_instance = None`` in its body.
        """
        known = cls._instance
        if known is None or known.closed or cls._instance_pid != os.getpid():
            with Context._instance_lock:
                known = cls._instance
                if known is None or known.closed or cls._instance_pid != os.getpid():
                    known = cls._instance = cast("Any", cls)(io_threads=io_threads)
                    cls._instance_pid = os.getpid()
        return cast("Self", known)

    @classmethod
    def shadow(cls, address: int | Context[Any]) -> Self:
        """Return a second object for a context, given the context or its ``underlying``."""
        face: Self = cast("Any", cls)(shadow=address)
        return face

    @classmethod
    def shadow_pyczmq(cls, ctx: Any) -> Self:
        """Refuse: a context of another library cannot be shadowed.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("a context of libzmq cannot be shadowed here: there is no libzmq")

    def destroy(self, linger: int | None = None) -> None:
        """Close the sockets, with `linger` if that is given, and terminate the context."""
        if self.closed:
            return
        with self._sockets_lock:
            sockets = list(self._sockets)
        for socket in sockets:
            if socket.closed:
                continue
            if self._warn_destroy_close:
                warnings.warn(
                    f"Destroying context with unclosed socket {socket}",
                    ResourceWarning,
                    stacklevel=3,
                    source=socket,
                )
            socket.close(linger)
        self.term()

    # --- sockets -----------------------------------------------------------------

    @overload
    def socket(self, socket_type: int, socket_class: None = None, **kwargs: Any) -> _SocketT: ...
    @overload
    def socket(self, socket_type: int, socket_class: Callable[..., _OtherT], **kwargs: Any) -> _OtherT: ...
    def socket(self, socket_type: int, socket_class: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
        """Make a socket.

        Args:
            socket_type: A `SocketType`.
            socket_class: The class to use instead of the context's own socket class.
            **kwargs: Further arguments of that class.

        Raises:
            ZMQError: ``ENOTSUP``: the context was terminated.
        """
        if self.closed:
            raise ZMQError(ENOTSUP)
        socket = (socket_class or self._socket_class)(self, socket_type, **kwargs)
        for option, value in list(self.sockopts.items()):  # Another thread may set one meanwhile.
            with suppress(ZMQError):  # The option may be for other types of sockets, as SUBSCRIBE is.
                socket.setsockopt(option, value)
        self._add_socket(socket)
        return socket

    def _add_socket(self, socket: Any) -> None:
        with self._sockets_lock:
            self._sockets.add(socket)

    def _rm_socket(self, socket: Any) -> None:
        # The context's constructor may have failed.
        if "_sockets" in self.__dict__:
            self._numbers.discard(socket.underlying)
            with self._sockets_lock:
                self._sockets.discard(socket)

    # --- options -----------------------------------------------------------------

    def setsockopt(self, opt: int, value: Any) -> None:
        """Set the default of an option of new sockets."""
        self.sockopts[opt] = value

    def getsockopt(self, opt: int) -> Any:
        """Return the default of an option of new sockets.

        Raises:
            KeyError: The default was never set.
        """
        return self.sockopts[opt]

    def _set_named(self, name: str, option: int, value: Any) -> None:
        if name.upper() in ContextOption.__members__:
            self.set(option, value)
        else:
            self.sockopts[option] = value

    def _get_named(self, name: str, option: int) -> Any:
        if name.upper() in ContextOption.__members__:
            return self.get(option)
        try:
            return self.sockopts[option]
        except KeyError:
            raise AttributeError(name) from None

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            object.__delattr__(self, name)
            return
        try:
            del self.sockopts[SocketOption[name.upper()]]
        except KeyError:
            raise AttributeError(f"No such socket option: {name.upper()!r}") from None


_OtherT = TypeVar("_OtherT")

SyncContext: TypeAlias = Context[Socket[bytes]]

#: Whether the process is exiting: then a context that was never terminated is not waited for.
_leaving = False


def _leave() -> None:
    global _leaving
    _leaving = True


def _forked() -> None:
    # Another thread may have held the locks when the process was forked.
    Context._instance_lock = Lock()
    Context._sockets_lock = RLock()


atexit.register(_leave)
os.register_at_fork(after_in_child=_forked)

__all__ = ["Context", "SyncContext"]
