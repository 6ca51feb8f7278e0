"""pyzmq over our sockets: ``PYZMQ_BACKEND=ropewalk.zmq.backend`` in the environment of a program that imports zmq.

pyzmq imports this module in place of its compiled extension, and derives its own classes from those here. Errors are
pyzmq's, and so are the frames that it receives without a copy. Both packages may be used in one process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ropewalk.zmq import _compiled
from ropewalk.zmq._compiled import (
    IPC_PATH_MAX_LEN,
    PYZMQ_DRAFT_API,
    curve_keypair,
    curve_public,
    device,
    has,
    proxy,
    proxy_steerable,
    strerror,
    zmq_errno,
    zmq_poll,
    zmq_version_info,
)
from ropewalk.zmq._enums import Errno
from ropewalk.zmq._monitored_queue import monitored_queue

if TYPE_CHECKING:
    from threading import Event

# pyzmq imports this module before it defines its own classes, so these are looked up at each use.


def _make_error(errno: int, message: str) -> BaseException:
    from zmq import error

    if errno == Errno.EAGAIN:
        return error.Again(errno)
    if errno == Errno.ETERM:
        return error.ContextTerminated(errno)
    return error.ZMQError(errno, message)


def _make_tracker(event: Event | None) -> Any:
    from zmq.sugar import tracker

    return tracker._FINISHED_TRACKER if event is None else tracker.MessageTracker(event)


def _copy_threshold() -> int | None:
    import zmq

    threshold: int | None = zmq.COPY_THRESHOLD
    return threshold


class Frame(_compiled.Frame):
    """The base class of pyzmq's frame."""

    _make_error = staticmethod(_make_error)
    _make_tracker = staticmethod(_make_tracker)
    _copy_threshold = staticmethod(_copy_threshold)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # The first subclass that pyzmq defines is its own frame, which its sockets return.
        if Socket._frame_class is Frame:
            Socket._frame_class = cls


class Context(_compiled.Context):
    """The base class of pyzmq's context."""

    _make_error = staticmethod(_make_error)


class Socket(_compiled.Socket):
    """The base class of pyzmq's socket."""

    _make_error = staticmethod(_make_error)
    _make_tracker = staticmethod(_make_tracker)
    _copy_threshold = staticmethod(_copy_threshold)
    _frame_class: ClassVar[type[Frame]] = Frame


Message = Frame

__all__ = [
    "IPC_PATH_MAX_LEN",
    "PYZMQ_DRAFT_API",
    "Context",
    "Frame",
    "Message",
    "Socket",
    "curve_keypair",
    "curve_public",
    "device",
    "has",
    "monitored_queue",
    "proxy",
    "proxy_steerable",
    "strerror",
    "zmq_errno",
    "zmq_poll",
    "zmq_version_info",
]
