"""The only import of the compiled sockets; the other modules of this package import them from here."""

from __future__ import annotations

from ropewalk._load import zmq as _zmq

AsyncSocket = _zmq.AsyncSocket
Context = _zmq.Context
Frame = _zmq.Frame
Socket = _zmq.Socket
Watch = _zmq.Watch

IPC_PATH_MAX_LEN = _zmq.IPC_PATH_MAX_LEN
PYZMQ_DRAFT_API = _zmq.PYZMQ_DRAFT_API

curve_keypair = _zmq.curve_keypair
curve_public = _zmq.curve_public
device = _zmq.device
has = _zmq.has
proxy = _zmq.proxy
proxy_steerable = _zmq.proxy_steerable
set_errors = _zmq.set_errors
set_trackers = _zmq.set_trackers
strerror = _zmq.strerror
zmq_errno = _zmq.zmq_errno
zmq_poll = _zmq.zmq_poll
zmq_version_info = _zmq.zmq_version_info

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
