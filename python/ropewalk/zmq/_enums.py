"""The constants of libzmq's API as enums, by its names and values: a table.

The options of sockets are in `ropewalk.zmq._socket_options`, and `ropewalk.zmq.constants` exports every member under
the name that programs use.
"""

from __future__ import annotations

import errno
from enum import Enum, IntEnum, IntFlag
from typing import Self


class Errno(IntEnum):
    """Values of an error's ``errno``, beside the system's other numbers."""

    EAGAIN = errno.EAGAIN
    EFAULT = errno.EFAULT
    EINVAL = errno.EINVAL
    ENOTSUP = errno.ENOTSUP
    EPROTONOSUPPORT = errno.EPROTONOSUPPORT
    ENOBUFS = errno.ENOBUFS
    ENETDOWN = errno.ENETDOWN
    EADDRINUSE = errno.EADDRINUSE
    EADDRNOTAVAIL = errno.EADDRNOTAVAIL
    ECONNREFUSED = errno.ECONNREFUSED
    EINPROGRESS = errno.EINPROGRESS
    ENOTSOCK = errno.ENOTSOCK
    EMSGSIZE = errno.EMSGSIZE
    EAFNOSUPPORT = errno.EAFNOSUPPORT
    ENETUNREACH = errno.ENETUNREACH
    ECONNABORTED = errno.ECONNABORTED
    ECONNRESET = errno.ECONNRESET
    ENOTCONN = errno.ENOTCONN
    ETIMEDOUT = errno.ETIMEDOUT
    EHOSTUNREACH = errno.EHOSTUNREACH
    ENETRESET = errno.ENETRESET
    # libzmq's own: made by `make generate`
    EFSM = 156384763
    ENOCOMPATPROTO = 156384764
    ETERM = 156384765
    EMTHREAD = 156384766
    # end of libzmq's own


class ContextOption(IntEnum):
    """The options of `Context.get` and `Context.set`."""

    # options of a context: made by `make generate`
    IO_THREADS = 1
    MAX_SOCKETS = 2
    SOCKET_LIMIT = 3
    THREAD_PRIORITY = 3
    THREAD_SCHED_POLICY = 4
    MAX_MSGSZ = 5
    MSG_T_SIZE = 6
    THREAD_AFFINITY_CPU_ADD = 7
    THREAD_AFFINITY_CPU_REMOVE = 8
    THREAD_NAME_PREFIX = 9
    # end of options of a context


class SocketType(IntEnum):
    """The types of sockets. From SERVER on, libzmq calls them drafts."""

    PAIR = 0
    PUB = 1
    SUB = 2
    REQ = 3
    REP = 4
    DEALER = 5
    ROUTER = 6
    PULL = 7
    PUSH = 8
    XPUB = 9
    XSUB = 10
    STREAM = 11
    XREQ = DEALER
    XREP = ROUTER
    SERVER = 12
    CLIENT = 13
    RADIO = 14
    DISH = 15
    GATHER = 16
    SCATTER = 17
    DGRAM = 18
    PEER = 19
    CHANNEL = 20


class OptionKind(Enum):
    """The type of a socket option's value."""

    INT = "int"
    INT64 = "int64"
    BYTES = "bytes"
    DESCRIPTOR = "descriptor"


class NumberedOption(IntEnum):
    """An option with the type of its value; the members are in `ropewalk.zmq._socket_options`."""

    kind: OptionKind

    def __new__(cls, value: int, kind: OptionKind = OptionKind.INT) -> Self:
        """Make a member with the type of its value."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.kind = kind
        return member


class MessageOption(IntEnum):
    """The options of `Frame.get` that have numbers."""

    MORE = 1
    SHARED = 3
    SRCFD = 2


class Flag(IntFlag):
    """The flags of sending and receiving."""

    DONTWAIT = 1
    SNDMORE = 2
    NOBLOCK = DONTWAIT


class RouterNotify(IntEnum):
    """The values of `SocketOption.ROUTER_NOTIFY`."""

    @staticmethod
    def _global_name(name: str) -> str:
        """Return the name under which the module exports a member."""
        return f"NOTIFY_{name}"

    CONNECT = 1
    DISCONNECT = 2


class NormMode(IntEnum):
    """The values of `SocketOption.NORM_MODE`, for a transport that is not supported."""

    @staticmethod
    def _global_name(name: str) -> str:
        """Return the name under which the module exports a member."""
        return f"NORM_{name}"

    FIXED = 0
    CC = 1
    CCL = 2
    CCE = 3
    CCE_ECNONLY = 4


class SecurityMechanism(IntEnum):
    """The values of `SocketOption.MECHANISM`."""

    NULL = 0
    PLAIN = 1
    CURVE = 2
    GSSAPI = 3


class ReconnectStop(IntEnum):
    """The values of `SocketOption.RECONNECT_STOP`: when to stop reconnecting."""

    @staticmethod
    def _global_name(name: str) -> str:
        """Return the name under which the module exports a member."""
        return f"RECONNECT_STOP_{name}"

    CONN_REFUSED = 1
    HANDSHAKE_FAILED = 2
    AFTER_DISCONNECT = 4


class Event(IntFlag):
    """The events of a monitor, and the reasons why a handshake failed."""

    @staticmethod
    def _global_name(name: str) -> str:
        """Return the name under which the module exports a member."""
        return name if name.startswith("PROTOCOL_ERROR_") else f"EVENT_{name}"

    PROTOCOL_ERROR_WS_UNSPECIFIED = 0x30000000
    PROTOCOL_ERROR_ZMTP_UNSPECIFIED = 0x10000000
    PROTOCOL_ERROR_ZMTP_UNEXPECTED_COMMAND = 0x10000001
    PROTOCOL_ERROR_ZMTP_INVALID_SEQUENCE = 0x10000002
    PROTOCOL_ERROR_ZMTP_KEY_EXCHANGE = 0x10000003
    PROTOCOL_ERROR_ZMTP_MALFORMED_COMMAND_UNSPECIFIED = 0x10000011
    PROTOCOL_ERROR_ZMTP_MALFORMED_COMMAND_MESSAGE = 0x10000012
    PROTOCOL_ERROR_ZMTP_MALFORMED_COMMAND_HELLO = 0x10000013
    PROTOCOL_ERROR_ZMTP_MALFORMED_COMMAND_INITIATE = 0x10000014
    PROTOCOL_ERROR_ZMTP_MALFORMED_COMMAND_ERROR = 0x10000015
    PROTOCOL_ERROR_ZMTP_MALFORMED_COMMAND_READY = 0x10000016
    PROTOCOL_ERROR_ZMTP_MALFORMED_COMMAND_WELCOME = 0x10000017
    PROTOCOL_ERROR_ZMTP_INVALID_METADATA = 0x10000018
    PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC = 0x11000001
    PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH = 0x11000002
    PROTOCOL_ERROR_ZAP_UNSPECIFIED = 0x20000000
    PROTOCOL_ERROR_ZAP_MALFORMED_REPLY = 0x20000001
    PROTOCOL_ERROR_ZAP_BAD_REQUEST_ID = 0x20000002
    PROTOCOL_ERROR_ZAP_BAD_VERSION = 0x20000003
    PROTOCOL_ERROR_ZAP_INVALID_STATUS_CODE = 0x20000004
    PROTOCOL_ERROR_ZAP_INVALID_METADATA = 0x20000005
    CONNECTED = 0x1
    CONNECT_DELAYED = 0x2
    CONNECT_RETRIED = 0x4
    LISTENING = 0x8
    BIND_FAILED = 0x10
    ACCEPTED = 0x20
    ACCEPT_FAILED = 0x40
    CLOSED = 0x80
    CLOSE_FAILED = 0x100
    DISCONNECTED = 0x200
    MONITOR_STOPPED = 0x400
    HANDSHAKE_FAILED_NO_DETAIL = 0x800
    HANDSHAKE_SUCCEEDED = 0x1000
    HANDSHAKE_FAILED_PROTOCOL = 0x2000
    HANDSHAKE_FAILED_AUTH = 0x4000
    ALL_V1 = 0xFFFF
    ALL = ALL_V1
    PIPES_STATS = 0x10000
    ALL_V2 = 0x1FFFF


class PollEvent(IntFlag):
    """The flags of polling."""

    POLLIN = 1
    POLLOUT = 2
    POLLERR = 4
    POLLPRI = 8


class DeviceType(IntEnum):
    """The types of `device`, which have no effect any more."""

    STREAMER = 1
    FORWARDER = 2
    QUEUE = 3
