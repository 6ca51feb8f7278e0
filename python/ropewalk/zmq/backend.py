"""pyzmq over our sockets: ``PYZMQ_BACKEND=ropewalk.zmq.backend`` in the environment of a program that imports zmq.

pyzmq takes from here what it otherwise has from its compiled extension, and builds its own classes on it. What fails
raises pyzmq's errors, and what it receives without a copy are pyzmq's frames. Both packages may be used in one
process.
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

# pyzmq imports this module before it has classes of its own, so they are looked up when they are needed.


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


class Frame(_compiled.Frame):
    """What pyzmq's frame is built on."""

    _make_error = staticmethod(_make_error)
    _make_tracker = staticmethod(_make_tracker)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # pyzmq's own frame is the first class that it makes of this one; its sockets receive it.
        if Socket._frame_class is Frame:
            Socket._frame_class = cls


class Context(_compiled.Context):
    """What pyzmq's context is built on."""

    _make_error = staticmethod(_make_error)


class Socket(_compiled.Socket):
    """What pyzmq's socket is built on."""

    _make_error = staticmethod(_make_error)
    _make_tracker = staticmethod(_make_tracker)
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
