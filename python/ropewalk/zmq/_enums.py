"""The numbers of the protocol's API as enums: one table, by libzmq's names and values.

`ropewalk.zmq.constants` exports every member under the name that programs use.
"""

from __future__ import annotations

import errno
from enum import Enum, IntEnum, IntFlag
from typing import Self

#: Where libzmq starts to count the errors that the system does not have.
_OWN_ERRORS = 156384712


class Errno(IntEnum):
    """What an error's ``errno`` can be, beside the system's other numbers."""

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
    EFSM = _OWN_ERRORS + 51
    ENOCOMPATPROTO = _OWN_ERRORS + 52
    ETERM = _OWN_ERRORS + 53
    EMTHREAD = _OWN_ERRORS + 54


class ContextOption(IntEnum):
    """What `Context.get` and `Context.set` know."""

    IO_THREADS = 1
    MAX_SOCKETS = 2
    SOCKET_LIMIT = 3
    THREAD_PRIORITY = SOCKET_LIMIT
    THREAD_SCHED_POLICY = 4
    MAX_MSGSZ = 5
    MSG_T_SIZE = 6
    THREAD_AFFINITY_CPU_ADD = 7
    THREAD_AFFINITY_CPU_REMOVE = 8
    THREAD_NAME_PREFIX = 9


class SocketType(IntEnum):
    """What kinds of sockets there are. From SERVER on, libzmq calls them drafts."""

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


class SocketOption(IntEnum):
    """What `Socket.get` and `Socket.set` know by name. A socket refuses what it cannot honour."""

    kind: OptionKind

    def __new__(cls, value: int, kind: OptionKind = OptionKind.INT) -> Self:
        """Make a member that knows the type of its value."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.kind = kind
        return member

    HWM = 1
    AFFINITY = 4, OptionKind.INT64
    ROUTING_ID = 5, OptionKind.BYTES
    IDENTITY = 5, OptionKind.BYTES
    SUBSCRIBE = 6, OptionKind.BYTES
    UNSUBSCRIBE = 7, OptionKind.BYTES
    RATE = 8
    RECOVERY_IVL = 9
    SNDBUF = 11
    RCVBUF = 12
    RCVMORE = 13
    FD = 14, OptionKind.DESCRIPTOR
    EVENTS = 15
    TYPE = 16
    LINGER = 17
    RECONNECT_IVL = 18
    BACKLOG = 19
    RECONNECT_IVL_MAX = 21
    MAXMSGSIZE = 22, OptionKind.INT64
    SNDHWM = 23
    RCVHWM = 24
    MULTICAST_HOPS = 25
    RCVTIMEO = 27
    SNDTIMEO = 28
    IPV4ONLY = 31
    LAST_ENDPOINT = 32, OptionKind.BYTES
    ROUTER_MANDATORY = 33
    FAIL_UNROUTABLE = 33
    ROUTER_BEHAVIOR = 33
    TCP_KEEPALIVE = 34
    TCP_KEEPALIVE_CNT = 35
    TCP_KEEPALIVE_IDLE = 36
    TCP_KEEPALIVE_INTVL = 37
    TCP_ACCEPT_FILTER = 38, OptionKind.BYTES
    IMMEDIATE = 39
    DELAY_ATTACH_ON_CONNECT = 39
    XPUB_VERBOSE = 40
    ROUTER_RAW = 41
    IPV6 = 42
    MECHANISM = 43
    PLAIN_SERVER = 44
    PLAIN_USERNAME = 45, OptionKind.BYTES
    PLAIN_PASSWORD = 46, OptionKind.BYTES
    CURVE_SERVER = 47
    CURVE_PUBLICKEY = 48, OptionKind.BYTES
    CURVE_SECRETKEY = 49, OptionKind.BYTES
    CURVE_SERVERKEY = 50, OptionKind.BYTES
    PROBE_ROUTER = 51
    REQ_CORRELATE = 52
    REQ_RELAXED = 53
    CONFLATE = 54
    ZAP_DOMAIN = 55, OptionKind.BYTES
    ROUTER_HANDOVER = 56
    TOS = 57
    IPC_FILTER_PID = 58
    IPC_FILTER_UID = 59
    IPC_FILTER_GID = 60
    CONNECT_ROUTING_ID = 61, OptionKind.BYTES
    CONNECT_RID = 61, OptionKind.BYTES
    GSSAPI_SERVER = 62
    GSSAPI_PRINCIPAL = 63, OptionKind.BYTES
    GSSAPI_SERVICE_PRINCIPAL = 64, OptionKind.BYTES
    GSSAPI_PLAINTEXT = 65
    HANDSHAKE_IVL = 66
    SOCKS_PROXY = 68, OptionKind.BYTES
    XPUB_NODROP = 69
    BLOCKY = 70
    XPUB_MANUAL = 71
    XPUB_WELCOME_MSG = 72, OptionKind.BYTES
    STREAM_NOTIFY = 73
    INVERT_MATCHING = 74
    HEARTBEAT_IVL = 75
    HEARTBEAT_TTL = 76
    HEARTBEAT_TIMEOUT = 77
    XPUB_VERBOSER = 78
    CONNECT_TIMEOUT = 79
    TCP_MAXRT = 80
    THREAD_SAFE = 81
    MULTICAST_MAXTPDU = 84
    VMCI_BUFFER_SIZE = 85, OptionKind.INT64
    VMCI_BUFFER_MIN_SIZE = 86, OptionKind.INT64
    VMCI_BUFFER_MAX_SIZE = 87, OptionKind.INT64
    VMCI_CONNECT_TIMEOUT = 88
    USE_FD = 89
    GSSAPI_PRINCIPAL_NAMETYPE = 90
    GSSAPI_SERVICE_PRINCIPAL_NAMETYPE = 91
    BINDTODEVICE = 92, OptionKind.BYTES
    ZAP_ENFORCE_DOMAIN = 93
    LOOPBACK_FASTPATH = 94
    METADATA = 95, OptionKind.BYTES
    MULTICAST_LOOP = 96
    ROUTER_NOTIFY = 97
    XPUB_MANUAL_LAST_VALUE = 98
    SOCKS_USERNAME = 99, OptionKind.BYTES
    SOCKS_PASSWORD = 100, OptionKind.BYTES
    IN_BATCH_SIZE = 101
    OUT_BATCH_SIZE = 102
    WSS_KEY_PEM = 103, OptionKind.BYTES
    WSS_CERT_PEM = 104, OptionKind.BYTES
    WSS_TRUST_PEM = 105, OptionKind.BYTES
    WSS_HOSTNAME = 106, OptionKind.BYTES
    WSS_TRUST_SYSTEM = 107
    ONLY_FIRST_SUBSCRIBE = 108
    RECONNECT_STOP = 109
    HELLO_MSG = 110, OptionKind.BYTES
    DISCONNECT_MSG = 111, OptionKind.BYTES
    PRIORITY = 112
    BUSY_POLL = 113
    HICCUP_MSG = 114, OptionKind.BYTES
    XSUB_VERBOSE_UNSUBSCRIBE = 115
    TOPICS_COUNT = 116
    NORM_MODE = 117
    NORM_UNICAST_NACK = 118
    NORM_BUFFER_SIZE = 119
    NORM_SEGMENT_SIZE = 120
    NORM_BLOCK_SIZE = 121
    NORM_NUM_PARITY = 122
    NORM_NUM_AUTOPARITY = 123
    NORM_PUSH = 124
    #: Not libzmq's: limits on what waits for each peer, in bytes; 0 for none.
    SNDHWM_BYTES = 0x570001, OptionKind.INT64
    RCVHWM_BYTES = 0x570002, OptionKind.INT64


class MessageOption(IntEnum):
    """What `Frame.get` knows by number."""

    MORE = 1
    SHARED = 3
    SRCFD = 2


class Flag(IntFlag):
    """How to send and receive."""

    DONTWAIT = 1
    SNDMORE = 2
    NOBLOCK = DONTWAIT


class RouterNotify(IntEnum):
    """Of what `SocketOption.ROUTER_NOTIFY` tells."""

    @staticmethod
    def _global_name(name: str) -> str:
        """Return the name under which the module exports a member."""
        return f"NOTIFY_{name}"

    CONNECT = 1
    DISCONNECT = 2


class NormMode(IntEnum):
    """The values of `SocketOption.NORM_MODE`, a transport that is not here."""

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
    """What `SocketOption.MECHANISM` answers."""

    NULL = 0
    PLAIN = 1
    CURVE = 2
    GSSAPI = 3


class ReconnectStop(IntEnum):
    """When to give up a connection: `SocketOption.RECONNECT_STOP`."""

    @staticmethod
    def _global_name(name: str) -> str:
        """Return the name under which the module exports a member."""
        return f"RECONNECT_STOP_{name}"

    CONN_REFUSED = 1
    HANDSHAKE_FAILED = 2
    AFTER_DISCONNECT = 4


class Event(IntFlag):
    """What a monitor reports, and why a handshake failed."""

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
    """What to poll for."""

    POLLIN = 1
    POLLOUT = 2
    POLLERR = 4
    POLLPRI = 8


class DeviceType(IntEnum):
    """What `device` was once told."""

    STREAMER = 1
    FORWARDER = 2
    QUEUE = 3
