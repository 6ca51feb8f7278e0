"""The one seam to the compiled sockets: everything else in this package takes them from here."""

from __future__ import annotations

from ropewalk._load import zmq as _door

AsyncSocket = _door.AsyncSocket
Context = _door.Context
Frame = _door.Frame
Socket = _door.Socket
Watch = _door.Watch

IPC_PATH_MAX_LEN = _door.IPC_PATH_MAX_LEN
PYZMQ_DRAFT_API = _door.PYZMQ_DRAFT_API

curve_keypair = _door.curve_keypair
curve_public = _door.curve_public
device = _door.device
has = _door.has
proxy = _door.proxy
proxy_steerable = _door.proxy_steerable
set_errors = _door.set_errors
set_trackers = _door.set_trackers
strerror = _door.strerror
zmq_errno = _door.zmq_errno
zmq_poll = _door.zmq_poll
zmq_version_info = _door.zmq_version_info

__all__ = [
    "IPC_PATH_MAX_LEN",
    "PYZMQ_DRAFT_API",
    "AsyncSocket",
    "Context",
    "Frame",
    "Socket",
    "Watch",
    "curve_keypair",
    "curve_public",
    "device",
    "has",
    "proxy",
    "proxy_steerable",
    "set_errors",
    "set_trackers",
    "strerror",
    "zmq_errno",
    "zmq_poll",
    "zmq_version_info",
]
