"""The options of sockets, by libzmq's names and numbers: a table.

`make generate` makes this file from `crates/messaging/src/options/table.rs`.
"""

from __future__ import annotations

from ropewalk.zmq._enums import NumberedOption, OptionKind


class SocketOption(NumberedOption):
    """What `Socket.get` and `Socket.set` know by name. A socket refuses what it cannot honour."""

    #: Both high-water marks at once: `Socket.hwm` sets them.
    HWM = 1, OptionKind.INT
    #: Which of libzmq's I/O threads serve the socket, as bits: without effect, since there are none.
    AFFINITY = 4, OptionKind.INT64
    #: The name by which a ROUTER knows the socket.
    ROUTING_ID = 5, OptionKind.BYTES
    IDENTITY = 5, OptionKind.BYTES
    #: Adds a subscription; an XPUB needs XPUB_MANUAL.
    SUBSCRIBE = 6, OptionKind.BYTES
    #: Takes a subscription back; an XPUB needs XPUB_MANUAL.
    UNSUBSCRIBE = 7, OptionKind.BYTES
    #: Multicast, which no transport here has: kilobits a second, without effect.
    RATE = 8, OptionKind.INT
    #: Multicast, which no transport here has: how long lost data can be asked for again, without effect.
    RECOVERY_IVL = 9, OptionKind.INT
    #: The kernel's buffer for sending, in bytes; -1 is the system's.
    SNDBUF = 11, OptionKind.INT
    #: The kernel's buffer for receiving, in bytes; -1 is the system's.
    RCVBUF = 12, OptionKind.INT
    #: Whether the message goes on behind the part that was received.
    RCVMORE = 13, OptionKind.INT
    #: A descriptor that becomes readable when EVENTS may have changed.
    FD = 14, OptionKind.DESCRIPTOR
    #: What the socket is ready for: POLLIN, POLLOUT.
    EVENTS = 15, OptionKind.INT
    #: The type of the socket.
    TYPE = 16, OptionKind.INT
    #: How long a closed socket keeps unsent messages; -1 is for ever. SUB, XSUB and DISH begin with 0.
    LINGER = 17, OptionKind.INT
    #: How long the socket waits before it connects again; -1 never does.
    RECONNECT_IVL = 18, OptionKind.INT
    #: How many connections may wait to be accepted.
    BACKLOG = 19, OptionKind.INT
    #: The longest wait before connecting again; with 0 the wait does not grow.
    RECONNECT_IVL_MAX = 21, OptionKind.INT
    #: The largest message that is received, in bytes; -1 is no limit.
    MAXMSGSIZE = 22, OptionKind.INT64
    #: How many messages may wait to be sent to one peer; 0 is no limit.
    SNDHWM = 23, OptionKind.INT
    #: How many messages of one peer may wait to be received; 0 is no limit.
    RCVHWM = 24, OptionKind.INT
    #: Multicast, which no transport here has: routers that a packet may pass, without effect.
    MULTICAST_HOPS = 25, OptionKind.INT
    #: How long a receive waits; -1 is for ever.
    RCVTIMEO = 27, OptionKind.INT
    #: How long a send waits; -1 is for ever.
    SNDTIMEO = 28, OptionKind.INT
    #: The opposite of IPV6, for old programs.
    IPV4ONLY = 31, OptionKind.INT
    #: The last endpoint that was bound or connected.
    LAST_ENDPOINT = 32, OptionKind.BYTES
    #: Whether a message for an unknown peer is an error.
    ROUTER_MANDATORY = 33, OptionKind.INT
    FAIL_UNROUTABLE = 33, OptionKind.INT
    ROUTER_BEHAVIOR = 33, OptionKind.INT
    #: Whether TCP sends probes; -1 is the system's choice.
    TCP_KEEPALIVE = 34, OptionKind.INT
    #: How many TCP probes may go unanswered; -1 is the system's choice.
    TCP_KEEPALIVE_CNT = 35, OptionKind.INT
    #: Seconds of silence before the first TCP probe; -1 is the system's choice.
    TCP_KEEPALIVE_IDLE = 36, OptionKind.INT
    #: Seconds between TCP probes; -1 is the system's choice.
    TCP_KEEPALIVE_INTVL = 37, OptionKind.INT
    #: TCP: addresses that may connect.
    TCP_ACCEPT_FILTER = 38, OptionKind.BYTES
    #: Whether messages are queued for completed connections only.
    IMMEDIATE = 39, OptionKind.INT
    DELAY_ATTACH_ON_CONNECT = 39, OptionKind.INT
    #: Whether repeated subscriptions are received, too.
    XPUB_VERBOSE = 40, OptionKind.INT
    #: Whether the peers are plain TCP clients.
    ROUTER_RAW = 41, OptionKind.INT
    #: Whether IPv6 is used beside IPv4.
    IPV6 = 42, OptionKind.INT
    #: The security mechanism, which follows from the last security option that was set.
    MECHANISM = 43, OptionKind.INT
    #: PLAIN: whether this end checks the other.
    PLAIN_SERVER = 44, OptionKind.INT
    #: PLAIN: the name of this end.
    PLAIN_USERNAME = 45, OptionKind.BYTES
    #: PLAIN: the password of this end.
    PLAIN_PASSWORD = 46, OptionKind.BYTES
    #: CURVE: whether this end checks the other.
    CURVE_SERVER = 47, OptionKind.INT
    #: CURVE: the public key of this end.
    CURVE_PUBLICKEY = 48, OptionKind.BYTES
    #: CURVE: the secret key of this end.
    CURVE_SECRETKEY = 49, OptionKind.BYTES
    #: CURVE: the server's public key, which makes this end a client.
    CURVE_SERVERKEY = 50, OptionKind.BYTES
    #: Whether an empty message is sent to each new peer.
    PROBE_ROUTER = 51, OptionKind.INT
    #: Whether requests are numbered, and replies to other requests dropped.
    REQ_CORRELATE = 52, OptionKind.INT
    #: Whether a new request may be sent before the reply to the last one.
    REQ_RELAXED = 53, OptionKind.INT
    #: Whether only the newest message is kept (DEALER, PULL, PUSH, PUB and SUB heed it).
    CONFLATE = 54, OptionKind.INT
    #: The domain by which an authenticator knows the socket.
    ZAP_DOMAIN = 55, OptionKind.BYTES
    #: Whether a new peer takes the routing id of an old one.
    ROUTER_HANDOVER = 56, OptionKind.INT
    #: The type of service in IP packets.
    TOS = 57, OptionKind.INT
    #: IPC: processes that may connect.
    IPC_FILTER_PID = 58, OptionKind.INT
    #: IPC: users that may connect.
    IPC_FILTER_UID = 59, OptionKind.INT
    #: IPC: groups that may connect.
    IPC_FILTER_GID = 60, OptionKind.INT
    #: The routing id of the peer that is connected next.
    CONNECT_ROUTING_ID = 61, OptionKind.BYTES
    CONNECT_RID = 61, OptionKind.BYTES
    #: GSSAPI: whether this end checks the other.
    GSSAPI_SERVER = 62, OptionKind.INT
    #: GSSAPI: the name of this end.
    GSSAPI_PRINCIPAL = 63, OptionKind.BYTES
    #: GSSAPI: the name of the server.
    GSSAPI_SERVICE_PRINCIPAL = 64, OptionKind.BYTES
    #: GSSAPI: whether encryption is off.
    GSSAPI_PLAINTEXT = 65, OptionKind.INT
    #: How long a handshake may take; 0 is for ever.
    HANDSHAKE_IVL = 66, OptionKind.INT
    #: A proxy for TCP connections.
    SOCKS_PROXY = 68, OptionKind.BYTES
    #: Whether a full peer makes the sender wait instead of losing messages.
    XPUB_NODROP = 69, OptionKind.INT
    #: A context's option: whether its end waits for messages.
    BLOCKY = 70, OptionKind.INT
    #: Whether the program subscribes on behalf of its peers.
    XPUB_MANUAL = 71, OptionKind.INT
    #: The message that each new subscriber gets first.
    XPUB_WELCOME_MSG = 72, OptionKind.BYTES
    #: Whether connections and disconnections are received as empty messages.
    STREAM_NOTIFY = 73, OptionKind.INT
    #: Whether messages go to the peers that have not subscribed to them.
    INVERT_MATCHING = 74, OptionKind.INT
    #: How often a silent peer is asked whether it lives; 0 is never.
    HEARTBEAT_IVL = 75, OptionKind.INT
    #: How long the peer should wait for this end's next sign of life; 0 says nothing about it.
    HEARTBEAT_TTL = 76, OptionKind.INT
    #: How long the answer to a heartbeat may take, 0 for ever; HEARTBEAT_IVL until it is set.
    HEARTBEAT_TIMEOUT = 77, OptionKind.INT
    #: Whether repeated subscriptions and cancellations are received, too.
    XPUB_VERBOSER = 78, OptionKind.INT
    #: How long connecting may take; 0 is the system's limit.
    CONNECT_TIMEOUT = 79, OptionKind.INT
    #: How long TCP keeps a connection on which sent data stays unacknowledged; 0 is the system's limit.
    TCP_MAXRT = 80, OptionKind.INT
    #: Whether many threads may call the socket at once.
    THREAD_SAFE = 81, OptionKind.INT
    #: Multicast, which no transport here has: the largest packet, without effect.
    MULTICAST_MAXTPDU = 84, OptionKind.INT
    #: VMCI: the size of a buffer.
    VMCI_BUFFER_SIZE = 85, OptionKind.INT64
    #: VMCI: the least size of a buffer.
    VMCI_BUFFER_MIN_SIZE = 86, OptionKind.INT64
    #: VMCI: the greatest size of a buffer.
    VMCI_BUFFER_MAX_SIZE = 87, OptionKind.INT64
    #: VMCI: how long connecting may take.
    VMCI_CONNECT_TIMEOUT = 88, OptionKind.INT
    #: A listening descriptor that the next bind takes instead of making one; -1 is none.
    USE_FD = 89, OptionKind.INT
    #: GSSAPI: the kind of this end's name.
    GSSAPI_PRINCIPAL_NAMETYPE = 90, OptionKind.INT
    #: GSSAPI: the kind of the server's name.
    GSSAPI_SERVICE_PRINCIPAL_NAMETYPE = 91, OptionKind.INT
    #: The network interface to which descriptors are bound.
    BINDTODEVICE = 92, OptionKind.BYTES
    #: Whether an authenticator must judge the peers of a socket that has a domain.
    ZAP_ENFORCE_DOMAIN = 93, OptionKind.INT
    #: Windows: a shorter way through its network, without effect.
    LOOPBACK_FASTPATH = 94, OptionKind.INT
    #: A property that peers receive with the handshake: each set adds one; the first value of a name stays.
    METADATA = 95, OptionKind.BYTES
    #: Multicast, which no transport here has: whether the sender receives its own packets, without effect.
    MULTICAST_LOOP = 96, OptionKind.INT
    #: Whether peers that come (1) and go (2) are received as empty messages.
    ROUTER_NOTIFY = 97, OptionKind.INT
    #: XPUB_MANUAL, and a message behind a subscription goes to that subscriber alone.
    XPUB_MANUAL_LAST_VALUE = 98, OptionKind.INT
    #: The user at a proxy.
    SOCKS_USERNAME = 99, OptionKind.BYTES
    #: The password at a proxy.
    SOCKS_PASSWORD = 100, OptionKind.BYTES
    #: libzmq's engine: how many bytes it reads at once.
    IN_BATCH_SIZE = 101, OptionKind.INT
    #: libzmq's engine: how many bytes it writes at once.
    OUT_BATCH_SIZE = 102, OptionKind.INT
    #: WebSocket: a key.
    WSS_KEY_PEM = 103, OptionKind.BYTES
    #: WebSocket: a certificate.
    WSS_CERT_PEM = 104, OptionKind.BYTES
    #: WebSocket: the certificates that are trusted.
    WSS_TRUST_PEM = 105, OptionKind.BYTES
    #: WebSocket: the name that is checked.
    WSS_HOSTNAME = 106, OptionKind.BYTES
    #: WebSocket: whether the system's certificates are trusted.
    WSS_TRUST_SYSTEM = 107, OptionKind.INT
    #: Whether only a message's first part can be a subscription.
    ONLY_FIRST_SUBSCRIBE = 108, OptionKind.INT
    #: What ends the attempts to connect: a refusal (1), a failed handshake (2), `disconnect` (4).
    RECONNECT_STOP = 109, OptionKind.INT
    #: The message that each new peer gets first.
    HELLO_MSG = 110, OptionKind.BYTES
    #: The message that is received when a peer goes.
    DISCONNECT_MSG = 111, OptionKind.BYTES
    #: The priority of the socket's packets in the system.
    PRIORITY = 112, OptionKind.INT
    #: Whether the kernel polls the device.
    BUSY_POLL = 113, OptionKind.INT
    #: The message that is received when a connection is lost and will be made again.
    HICCUP_MSG = 114, OptionKind.BYTES
    #: Whether every cancellation goes on to the publishers.
    XSUB_VERBOSE_UNSUBSCRIBE = 115, OptionKind.INT
    #: How many topics are subscribed to, here or by peers.
    TOPICS_COUNT = 116, OptionKind.INT
    #: NORM: the congestion control.
    NORM_MODE = 117, OptionKind.INT
    #: NORM: how losses are reported.
    NORM_UNICAST_NACK = 118, OptionKind.INT
    #: NORM: the buffer.
    NORM_BUFFER_SIZE = 119, OptionKind.INT
    #: NORM: the size of a packet.
    NORM_SEGMENT_SIZE = 120, OptionKind.INT
    #: NORM: packets in a block.
    NORM_BLOCK_SIZE = 121, OptionKind.INT
    #: NORM: spare packets in a block.
    NORM_NUM_PARITY = 122, OptionKind.INT
    #: NORM: spare packets that are sent unasked.
    NORM_NUM_AUTOPARITY = 123, OptionKind.INT
    #: NORM: whether the newest data goes first.
    NORM_PUSH = 124, OptionKind.INT
    #: Ropewalk's own: how many bytes may wait to be sent to one peer; 0 is no limit.
    SNDHWM_BYTES = 0x570001, OptionKind.INT64
    #: Ropewalk's own: how many bytes of one peer may wait to be received besides one message; 0 is no limit.
    RCVHWM_BYTES = 0x570002, OptionKind.INT64
    #: Ropewalk's own: whether each connection gets a routing id that no other has had, whatever id its peer has.
    ROUTER_OWN_IDS = 0x570003, OptionKind.INT
    #: Ropewalk's own: how many connections the endpoints accept at a time, 0 is no limit; further ones are closed.
    MAX_CONNECTIONS = 0x570004, OptionKind.INT


HWM = SocketOption.HWM
AFFINITY = SocketOption.AFFINITY
ROUTING_ID = SocketOption.ROUTING_ID
IDENTITY = SocketOption.IDENTITY
SUBSCRIBE = SocketOption.SUBSCRIBE
UNSUBSCRIBE = SocketOption.UNSUBSCRIBE
RATE = SocketOption.RATE
RECOVERY_IVL = SocketOption.RECOVERY_IVL
SNDBUF = SocketOption.SNDBUF
RCVBUF = SocketOption.RCVBUF
RCVMORE = SocketOption.RCVMORE
FD = SocketOption.FD
EVENTS = SocketOption.EVENTS
TYPE = SocketOption.TYPE
LINGER = SocketOption.LINGER
RECONNECT_IVL = SocketOption.RECONNECT_IVL
BACKLOG = SocketOption.BACKLOG
RECONNECT_IVL_MAX = SocketOption.RECONNECT_IVL_MAX
MAXMSGSIZE = SocketOption.MAXMSGSIZE
SNDHWM = SocketOption.SNDHWM
RCVHWM = SocketOption.RCVHWM
MULTICAST_HOPS = SocketOption.MULTICAST_HOPS
RCVTIMEO = SocketOption.RCVTIMEO
SNDTIMEO = SocketOption.SNDTIMEO
IPV4ONLY = SocketOption.IPV4ONLY
LAST_ENDPOINT = SocketOption.LAST_ENDPOINT
ROUTER_MANDATORY = SocketOption.ROUTER_MANDATORY
FAIL_UNROUTABLE = SocketOption.FAIL_UNROUTABLE
ROUTER_BEHAVIOR = SocketOption.ROUTER_BEHAVIOR
TCP_KEEPALIVE = SocketOption.TCP_KEEPALIVE
TCP_KEEPALIVE_CNT = SocketOption.TCP_KEEPALIVE_CNT
TCP_KEEPALIVE_IDLE = SocketOption.TCP_KEEPALIVE_IDLE
TCP_KEEPALIVE_INTVL = SocketOption.TCP_KEEPALIVE_INTVL
TCP_ACCEPT_FILTER = SocketOption.TCP_ACCEPT_FILTER
IMMEDIATE = SocketOption.IMMEDIATE
DELAY_ATTACH_ON_CONNECT = SocketOption.DELAY_ATTACH_ON_CONNECT
XPUB_VERBOSE = SocketOption.XPUB_VERBOSE
ROUTER_RAW = SocketOption.ROUTER_RAW
IPV6 = SocketOption.IPV6
MECHANISM = SocketOption.MECHANISM
PLAIN_SERVER = SocketOption.PLAIN_SERVER
PLAIN_USERNAME = SocketOption.PLAIN_USERNAME
PLAIN_PASSWORD = SocketOption.PLAIN_PASSWORD
CURVE_SERVER = SocketOption.CURVE_SERVER
CURVE_PUBLICKEY = SocketOption.CURVE_PUBLICKEY
CURVE_SECRETKEY = SocketOption.CURVE_SECRETKEY
CURVE_SERVERKEY = SocketOption.CURVE_SERVERKEY
PROBE_ROUTER = SocketOption.PROBE_ROUTER
REQ_CORRELATE = SocketOption.REQ_CORRELATE
REQ_RELAXED = SocketOption.REQ_RELAXED
CONFLATE = SocketOption.CONFLATE
ZAP_DOMAIN = SocketOption.ZAP_DOMAIN
ROUTER_HANDOVER = SocketOption.ROUTER_HANDOVER
TOS = SocketOption.TOS
IPC_FILTER_PID = SocketOption.IPC_FILTER_PID
IPC_FILTER_UID = SocketOption.IPC_FILTER_UID
IPC_FILTER_GID = SocketOption.IPC_FILTER_GID
CONNECT_ROUTING_ID = SocketOption.CONNECT_ROUTING_ID
CONNECT_RID = SocketOption.CONNECT_RID
GSSAPI_SERVER = SocketOption.GSSAPI_SERVER
GSSAPI_PRINCIPAL = SocketOption.GSSAPI_PRINCIPAL
GSSAPI_SERVICE_PRINCIPAL = SocketOption.GSSAPI_SERVICE_PRINCIPAL
GSSAPI_PLAINTEXT = SocketOption.GSSAPI_PLAINTEXT
HANDSHAKE_IVL = SocketOption.HANDSHAKE_IVL
SOCKS_PROXY = SocketOption.SOCKS_PROXY
XPUB_NODROP = SocketOption.XPUB_NODROP
BLOCKY = SocketOption.BLOCKY
XPUB_MANUAL = SocketOption.XPUB_MANUAL
XPUB_WELCOME_MSG = SocketOption.XPUB_WELCOME_MSG
STREAM_NOTIFY = SocketOption.STREAM_NOTIFY
INVERT_MATCHING = SocketOption.INVERT_MATCHING
HEARTBEAT_IVL = SocketOption.HEARTBEAT_IVL
HEARTBEAT_TTL = SocketOption.HEARTBEAT_TTL
HEARTBEAT_TIMEOUT = SocketOption.HEARTBEAT_TIMEOUT
XPUB_VERBOSER = SocketOption.XPUB_VERBOSER
CONNECT_TIMEOUT = SocketOption.CONNECT_TIMEOUT
TCP_MAXRT = SocketOption.TCP_MAXRT
THREAD_SAFE = SocketOption.THREAD_SAFE
MULTICAST_MAXTPDU = SocketOption.MULTICAST_MAXTPDU
VMCI_BUFFER_SIZE = SocketOption.VMCI_BUFFER_SIZE
VMCI_BUFFER_MIN_SIZE = SocketOption.VMCI_BUFFER_MIN_SIZE
VMCI_BUFFER_MAX_SIZE = SocketOption.VMCI_BUFFER_MAX_SIZE
VMCI_CONNECT_TIMEOUT = SocketOption.VMCI_CONNECT_TIMEOUT
USE_FD = SocketOption.USE_FD
GSSAPI_PRINCIPAL_NAMETYPE = SocketOption.GSSAPI_PRINCIPAL_NAMETYPE
GSSAPI_SERVICE_PRINCIPAL_NAMETYPE = SocketOption.GSSAPI_SERVICE_PRINCIPAL_NAMETYPE
BINDTODEVICE = SocketOption.BINDTODEVICE
ZAP_ENFORCE_DOMAIN = SocketOption.ZAP_ENFORCE_DOMAIN
LOOPBACK_FASTPATH = SocketOption.LOOPBACK_FASTPATH
METADATA = SocketOption.METADATA
MULTICAST_LOOP = SocketOption.MULTICAST_LOOP
ROUTER_NOTIFY = SocketOption.ROUTER_NOTIFY
XPUB_MANUAL_LAST_VALUE = SocketOption.XPUB_MANUAL_LAST_VALUE
SOCKS_USERNAME = SocketOption.SOCKS_USERNAME
SOCKS_PASSWORD = SocketOption.SOCKS_PASSWORD
IN_BATCH_SIZE = SocketOption.IN_BATCH_SIZE
OUT_BATCH_SIZE = SocketOption.OUT_BATCH_SIZE
WSS_KEY_PEM = SocketOption.WSS_KEY_PEM
WSS_CERT_PEM = SocketOption.WSS_CERT_PEM
WSS_TRUST_PEM = SocketOption.WSS_TRUST_PEM
WSS_HOSTNAME = SocketOption.WSS_HOSTNAME
WSS_TRUST_SYSTEM = SocketOption.WSS_TRUST_SYSTEM
ONLY_FIRST_SUBSCRIBE = SocketOption.ONLY_FIRST_SUBSCRIBE
RECONNECT_STOP = SocketOption.RECONNECT_STOP
HELLO_MSG = SocketOption.HELLO_MSG
DISCONNECT_MSG = SocketOption.DISCONNECT_MSG
PRIORITY = SocketOption.PRIORITY
BUSY_POLL = SocketOption.BUSY_POLL
HICCUP_MSG = SocketOption.HICCUP_MSG
XSUB_VERBOSE_UNSUBSCRIBE = SocketOption.XSUB_VERBOSE_UNSUBSCRIBE
TOPICS_COUNT = SocketOption.TOPICS_COUNT
NORM_MODE = SocketOption.NORM_MODE
NORM_UNICAST_NACK = SocketOption.NORM_UNICAST_NACK
NORM_BUFFER_SIZE = SocketOption.NORM_BUFFER_SIZE
NORM_SEGMENT_SIZE = SocketOption.NORM_SEGMENT_SIZE
NORM_BLOCK_SIZE = SocketOption.NORM_BLOCK_SIZE
NORM_NUM_PARITY = SocketOption.NORM_NUM_PARITY
NORM_NUM_AUTOPARITY = SocketOption.NORM_NUM_AUTOPARITY
NORM_PUSH = SocketOption.NORM_PUSH
SNDHWM_BYTES = SocketOption.SNDHWM_BYTES
RCVHWM_BYTES = SocketOption.RCVHWM_BYTES
ROUTER_OWN_IDS = SocketOption.ROUTER_OWN_IDS
MAX_CONNECTIONS = SocketOption.MAX_CONNECTIONS

__all__ = [
    "AFFINITY",
    "BACKLOG",
    "BINDTODEVICE",
    "BLOCKY",
    "BUSY_POLL",
    "CONFLATE",
    "CONNECT_RID",
    "CONNECT_ROUTING_ID",
    "CONNECT_TIMEOUT",
    "CURVE_PUBLICKEY",
    "CURVE_SECRETKEY",
    "CURVE_SERVER",
    "CURVE_SERVERKEY",
    "DELAY_ATTACH_ON_CONNECT",
    "DISCONNECT_MSG",
    "EVENTS",
    "FAIL_UNROUTABLE",
    "FD",
    "GSSAPI_PLAINTEXT",
    "GSSAPI_PRINCIPAL",
    "GSSAPI_PRINCIPAL_NAMETYPE",
    "GSSAPI_SERVER",
    "GSSAPI_SERVICE_PRINCIPAL",
    "GSSAPI_SERVICE_PRINCIPAL_NAMETYPE",
    "HANDSHAKE_IVL",
    "HEARTBEAT_IVL",
    "HEARTBEAT_TIMEOUT",
    "HEARTBEAT_TTL",
    "HELLO_MSG",
    "HICCUP_MSG",
    "HWM",
    "IDENTITY",
    "IMMEDIATE",
    "INVERT_MATCHING",
    "IN_BATCH_SIZE",
    "IPC_FILTER_GID",
    "IPC_FILTER_PID",
    "IPC_FILTER_UID",
    "IPV4ONLY",
    "IPV6",
    "LAST_ENDPOINT",
    "LINGER",
    "LOOPBACK_FASTPATH",
    "MAXMSGSIZE",
    "MAX_CONNECTIONS",
    "MECHANISM",
    "METADATA",
    "MULTICAST_HOPS",
    "MULTICAST_LOOP",
    "MULTICAST_MAXTPDU",
    "NORM_BLOCK_SIZE",
    "NORM_BUFFER_SIZE",
    "NORM_MODE",
    "NORM_NUM_AUTOPARITY",
    "NORM_NUM_PARITY",
    "NORM_PUSH",
    "NORM_SEGMENT_SIZE",
    "NORM_UNICAST_NACK",
    "ONLY_FIRST_SUBSCRIBE",
    "OUT_BATCH_SIZE",
    "PLAIN_PASSWORD",
    "PLAIN_SERVER",
    "PLAIN_USERNAME",
    "PRIORITY",
    "PROBE_ROUTER",
    "RATE",
    "RCVBUF",
    "RCVHWM",
    "RCVHWM_BYTES",
    "RCVMORE",
    "RCVTIMEO",
    "RECONNECT_IVL",
    "RECONNECT_IVL_MAX",
    "RECONNECT_STOP",
    "RECOVERY_IVL",
    "REQ_CORRELATE",
    "REQ_RELAXED",
    "ROUTER_BEHAVIOR",
    "ROUTER_HANDOVER",
    "ROUTER_MANDATORY",
    "ROUTER_NOTIFY",
    "ROUTER_OWN_IDS",
    "ROUTER_RAW",
    "ROUTING_ID",
    "SNDBUF",
    "SNDHWM",
    "SNDHWM_BYTES",
    "SNDTIMEO",
    "SOCKS_PASSWORD",
    "SOCKS_PROXY",
    "SOCKS_USERNAME",
    "STREAM_NOTIFY",
    "SUBSCRIBE",
    "TCP_ACCEPT_FILTER",
    "TCP_KEEPALIVE",
    "TCP_KEEPALIVE_CNT",
    "TCP_KEEPALIVE_IDLE",
    "TCP_KEEPALIVE_INTVL",
    "TCP_MAXRT",
    "THREAD_SAFE",
    "TOPICS_COUNT",
    "TOS",
    "TYPE",
    "UNSUBSCRIBE",
    "USE_FD",
    "VMCI_BUFFER_MAX_SIZE",
    "VMCI_BUFFER_MIN_SIZE",
    "VMCI_BUFFER_SIZE",
    "VMCI_CONNECT_TIMEOUT",
    "WSS_CERT_PEM",
    "WSS_HOSTNAME",
    "WSS_KEY_PEM",
    "WSS_TRUST_PEM",
    "WSS_TRUST_SYSTEM",
    "XPUB_MANUAL",
    "XPUB_MANUAL_LAST_VALUE",
    "XPUB_NODROP",
    "XPUB_VERBOSE",
    "XPUB_VERBOSER",
    "XPUB_WELCOME_MSG",
    "XSUB_VERBOSE_UNSUBSCRIBE",
    "ZAP_DOMAIN",
    "ZAP_ENFORCE_DOMAIN",
    "SocketOption",
]
