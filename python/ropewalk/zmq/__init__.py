"""Messaging between threads, processes and hosts, by ZeroMQ's protocol and with pyzmq's API.

    import ropewalk.zmq as zmq      # in place of: import zmq

Peers may use any implementation of ZMTP 3, such as libzmq in any language. Beyond pyzmq's API there are ``recv_many``
and ``send_many``, which move many messages in one call, and limits in bytes (``SNDHWM_BYTES``). A socket may be closed
while another thread waits on it.
"""

from __future__ import annotations

from ropewalk.zmq import constants, error, utils
from ropewalk.zmq._compiled import (
    IPC_PATH_MAX_LEN,
    curve_keypair,
    curve_public,
    device,
    has,
    proxy,
    proxy_steerable,
    strerror,
    zmq_errno,
    zmq_poll,
)
from ropewalk.zmq._context import Context, SyncContext
from ropewalk.zmq._frame import Frame, Message
from ropewalk.zmq._poll import Poller, select
from ropewalk.zmq._socket import Socket, SyncSocket
from ropewalk.zmq._socket_options import *  # noqa: F403
from ropewalk.zmq._stopwatch import Stopwatch
from ropewalk.zmq._tracker import _FINISHED_TRACKER as _FINISHED_TRACKER, MessageTracker
from ropewalk.zmq._version import (
    __revision__ as __revision__,
    __version__ as __version__,
    get_includes,
    get_library_dirs,
    pyzmq_version,
    pyzmq_version_info,
    zmq_version,
    zmq_version_info,
)
from ropewalk.zmq.constants import *  # noqa: F403
from ropewalk.zmq.error import (
    Again,
    ContextTerminated,
    DraftFDWarning,
    InterruptedSystemCall,
    NotDone,
    ZMQBaseError,
    ZMQBindError,
    ZMQError,
    ZMQVersionError,
)

#: ``send(copy=False)`` copies messages that are smaller than this, in bytes. A program may set it.
COPY_THRESHOLD = 65536
#: Whether the socket types exist that libzmq calls drafts (SERVER, CLIENT, RADIO, DISH and so on).
DRAFT_API = True

__all__ = [
    "COPY_THRESHOLD",
    "DRAFT_API",
    "IPC_PATH_MAX_LEN",
    "Again",
    "Context",
    "ContextTerminated",
    "DraftFDWarning",
    "Frame",
    "InterruptedSystemCall",
    "Message",
    "MessageTracker",
    "NotDone",
    "Poller",
    "Socket",
    "Stopwatch",
    "SyncContext",
    "SyncSocket",
    "ZMQBaseError",
    "ZMQBindError",
    "ZMQError",
    "ZMQVersionError",
    "constants",
    "curve_keypair",
    "curve_public",
    "device",
    "error",
    "get_includes",
    "get_library_dirs",
    "has",
    "proxy",
    "proxy_steerable",
    "pyzmq_version",
    "pyzmq_version_info",
    "select",
    "strerror",
    "utils",
    "zmq_errno",
    "zmq_poll",
    "zmq_version",
    "zmq_version_info",
]
__all__ += constants.__all__
