//! The numbers of all socket options: a table.
//!
//! They are libzmq 4.3.5's, drafts included, so that a program may hold one from anywhere. That a number is
//! here does not say that the option is supported.

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        $($(#[$doc])* pub const $name: i32 = $number;)*

        /// The name of an option, if there is one with this number.
        pub fn name(number: i32) -> Option<&'static str> {
            match number {
                $($number => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

numbers! {
    /// Which of the context's threads serve the socket: bits.
    AFFINITY = 4;
    /// The name under which a ROUTER knows the socket.
    ROUTING_ID = 5;
    /// Adds a subscription.
    SUBSCRIBE = 6;
    /// Takes a subscription back.
    UNSUBSCRIBE = 7;
    /// Multicast: kilobits a second.
    RATE = 8;
    /// Multicast: how long lost data can be asked for again.
    RECOVERY_IVL = 9;
    /// The kernel's buffer for sending, in bytes.
    SNDBUF = 11;
    /// The kernel's buffer for receiving, in bytes.
    RCVBUF = 12;
    /// Whether the message goes on after the part that was received.
    RCVMORE = 13;
    /// A descriptor that becomes readable when events may have changed.
    FD = 14;
    /// What the socket is ready for.
    EVENTS = 15;
    /// The socket's type.
    TYPE = 16;
    /// How long closing waits for messages to leave, in ms.
    LINGER = 17;
    /// How long to wait before connecting again, in ms.
    RECONNECT_IVL = 18;
    /// Connections that may wait to be accepted.
    BACKLOG = 19;
    /// The longest wait before connecting again, in ms.
    RECONNECT_IVL_MAX = 21;
    /// The largest message that is received, in bytes.
    MAXMSGSIZE = 22;
    /// Messages that may wait to be sent to a peer.
    SNDHWM = 23;
    /// Messages from a peer that may wait to be received.
    RCVHWM = 24;
    /// Multicast: routers a packet may pass.
    MULTICAST_HOPS = 25;
    /// How long a receive waits, in ms.
    RCVTIMEO = 27;
    /// How long a send waits, in ms.
    SNDTIMEO = 28;
    /// The opposite of [`IPV6`], kept for old programs.
    IPV4ONLY = 31;
    /// The last endpoint that was bound or connected.
    LAST_ENDPOINT = 32;
    /// ROUTER: a message for nobody is an error.
    ROUTER_MANDATORY = 33;
    /// TCP: whether probes are sent.
    TCP_KEEPALIVE = 34;
    /// TCP: how many probes go unanswered.
    TCP_KEEPALIVE_CNT = 35;
    /// TCP: seconds of silence before the first probe.
    TCP_KEEPALIVE_IDLE = 36;
    /// TCP: seconds between probes.
    TCP_KEEPALIVE_INTVL = 37;
    /// TCP: who may connect.
    TCP_ACCEPT_FILTER = 38;
    /// Messages are queued for completed connections only.
    IMMEDIATE = 39;
    /// XPUB: repeated subscriptions are told.
    XPUB_VERBOSE = 40;
    /// ROUTER: peers are plain TCP clients.
    ROUTER_RAW = 41;
    /// IPv6 is used, besides IPv4.
    IPV6 = 42;
    /// The security mechanism.
    MECHANISM = 43;
    /// PLAIN: this end checks.
    PLAIN_SERVER = 44;
    /// PLAIN: who this end is.
    PLAIN_USERNAME = 45;
    /// PLAIN: the proof of it.
    PLAIN_PASSWORD = 46;
    /// CURVE: this end checks.
    CURVE_SERVER = 47;
    /// CURVE: this end's public key.
    CURVE_PUBLICKEY = 48;
    /// CURVE: this end's secret key.
    CURVE_SECRETKEY = 49;
    /// CURVE: the server's public key.
    CURVE_SERVERKEY = 50;
    /// An empty message is sent to each new peer.
    PROBE_ROUTER = 51;
    /// REQ: replies carry the request's number.
    REQ_CORRELATE = 52;
    /// REQ: a new request may be sent before the reply.
    REQ_RELAXED = 53;
    /// Only the newest message is kept.
    CONFLATE = 54;
    /// The domain in which an authenticator looks up peers.
    ZAP_DOMAIN = 55;
    /// ROUTER: a new peer takes the routing id of an old one.
    ROUTER_HANDOVER = 56;
    /// IP: the type of service.
    TOS = 57;
    /// IPC: processes that may connect.
    IPC_FILTER_PID = 58;
    /// IPC: users who may connect.
    IPC_FILTER_UID = 59;
    /// IPC: groups that may connect.
    IPC_FILTER_GID = 60;
    /// The routing id of the peer that is connected next.
    CONNECT_ROUTING_ID = 61;
    /// GSSAPI: this end checks.
    GSSAPI_SERVER = 62;
    /// GSSAPI: who this end is.
    GSSAPI_PRINCIPAL = 63;
    /// GSSAPI: who the server is.
    GSSAPI_SERVICE_PRINCIPAL = 64;
    /// GSSAPI: no encryption.
    GSSAPI_PLAINTEXT = 65;
    /// How long a handshake may take, in ms.
    HANDSHAKE_IVL = 66;
    /// A proxy for TCP connections.
    SOCKS_PROXY = 68;
    /// XPUB, PUB: a full peer makes the sender wait, and loses nothing.
    XPUB_NODROP = 69;
    /// A context's option: whether its end waits for messages.
    BLOCKY = 70;
    /// XPUB: the program subscribes on behalf of its peers.
    XPUB_MANUAL = 71;
    /// XPUB: what a new subscriber gets first.
    XPUB_WELCOME_MSG = 72;
    /// STREAM: connections and disconnections are told.
    STREAM_NOTIFY = 73;
    /// Messages go to those who have not subscribed to them.
    INVERT_MATCHING = 74;
    /// How often a silent peer is asked whether it lives, in ms.
    HEARTBEAT_IVL = 75;
    /// How long the peer should wait for us, in ms.
    HEARTBEAT_TTL = 76;
    /// How long an answer may take, in ms.
    HEARTBEAT_TIMEOUT = 77;
    /// XPUB: repeated subscriptions and cancellations are told.
    XPUB_VERBOSER = 78;
    /// How long connecting may take, in ms.
    CONNECT_TIMEOUT = 79;
    /// TCP: how long sent data may stay unacknowledged, in ms.
    TCP_MAXRT = 80;
    /// Whether threads may share the socket.
    THREAD_SAFE = 81;
    /// Multicast: the largest packet.
    MULTICAST_MAXTPDU = 84;
    /// VMCI: a buffer's size.
    VMCI_BUFFER_SIZE = 85;
    /// VMCI: a buffer's least size.
    VMCI_BUFFER_MIN_SIZE = 86;
    /// VMCI: a buffer's greatest size.
    VMCI_BUFFER_MAX_SIZE = 87;
    /// VMCI: how long connecting may take.
    VMCI_CONNECT_TIMEOUT = 88;
    /// A listening descriptor to use instead of making one.
    USE_FD = 89;
    /// GSSAPI: the kind of name.
    GSSAPI_PRINCIPAL_NAMETYPE = 90;
    /// GSSAPI: the kind of the server's name.
    GSSAPI_SERVICE_PRINCIPAL_NAMETYPE = 91;
    /// The interface to which descriptors are bound.
    BINDTODEVICE = 92;
    /// No authenticator is asked without a domain.
    ZAP_ENFORCE_DOMAIN = 93;
    /// Windows: a shorter way through its network.
    LOOPBACK_FASTPATH = 94;
    /// A property of ours that peers are told.
    METADATA = 95;
    /// Multicast: what is sent comes back.
    MULTICAST_LOOP = 96;
    /// ROUTER: peers that come and go are told.
    ROUTER_NOTIFY = 97;
    /// XPUB: manual, and a message after a subscription goes to that subscriber only.
    XPUB_MANUAL_LAST_VALUE = 98;
    /// A proxy's user.
    SOCKS_USERNAME = 99;
    /// A proxy's password.
    SOCKS_PASSWORD = 100;
    /// libzmq's engine: bytes it reads at once.
    IN_BATCH_SIZE = 101;
    /// libzmq's engine: bytes it writes at once.
    OUT_BATCH_SIZE = 102;
    /// WebSocket: a key.
    WSS_KEY_PEM = 103;
    /// WebSocket: a certificate.
    WSS_CERT_PEM = 104;
    /// WebSocket: who is trusted.
    WSS_TRUST_PEM = 105;
    /// WebSocket: the name to check.
    WSS_HOSTNAME = 106;
    /// WebSocket: the system's certificates are trusted.
    WSS_TRUST_SYSTEM = 107;
    /// Only a message's first part can be a subscription.
    ONLY_FIRST_SUBSCRIBE = 108;
    /// What ends the attempts to connect: bits.
    RECONNECT_STOP = 109;
    /// What a new peer gets first.
    HELLO_MSG = 110;
    /// What is received when a peer goes.
    DISCONNECT_MSG = 111;
    /// The priority of packets.
    PRIORITY = 112;
    /// The kernel polls the device.
    BUSY_POLL = 113;
    /// What is received when a connection is lost and will be made again.
    HICCUP_MSG = 114;
    /// XSUB: every cancellation goes on to the publishers.
    XSUB_VERBOSE_UNSUBSCRIBE = 115;
    /// How many topics are subscribed to.
    TOPICS_COUNT = 116;
    /// NORM: its congestion control.
    NORM_MODE = 117;
    /// NORM: how losses are told.
    NORM_UNICAST_NACK = 118;
    /// NORM: its buffer.
    NORM_BUFFER_SIZE = 119;
    /// NORM: its packets.
    NORM_SEGMENT_SIZE = 120;
    /// NORM: packets in a block.
    NORM_BLOCK_SIZE = 121;
    /// NORM: spare packets in a block.
    NORM_NUM_PARITY = 122;
    /// NORM: spare packets that are sent unasked.
    NORM_NUM_AUTOPARITY = 123;
    /// NORM: the newest data goes first.
    NORM_PUSH = 124;
    /// Ours: bytes that may wait to be sent to a peer; 0 is no limit.
    SND_HWM_BYTES = 0x57_0001;
    /// Ours: bytes from a peer that may wait to be received; 0 is no limit.
    RCV_HWM_BYTES = 0x57_0002;
}

/// An old name.
pub const IDENTITY: i32 = ROUTING_ID;
/// An old name.
pub const CONNECT_RID: i32 = CONNECT_ROUTING_ID;
/// An old name.
pub const DELAY_ATTACH_ON_CONNECT: i32 = IMMEDIATE;
/// An old name.
pub const FAIL_UNROUTABLE: i32 = ROUTER_MANDATORY;
/// An old name.
pub const ROUTER_BEHAVIOR: i32 = ROUTER_MANDATORY;

/// [`ROUTER_NOTIFY`]: a peer that comes is told.
pub const NOTIFY_CONNECT: i32 = 1;
/// [`ROUTER_NOTIFY`]: a peer that goes is told.
pub const NOTIFY_DISCONNECT: i32 = 2;
/// [`RECONNECT_STOP`]: when nobody listens.
pub const STOP_CONN_REFUSED: i32 = 1;
/// [`RECONNECT_STOP`]: when the handshake fails.
pub const STOP_HANDSHAKE_FAILED: i32 = 2;
/// [`RECONNECT_STOP`]: after `disconnect`.
pub const STOP_AFTER_DISCONNECT: i32 = 4;

/// The numbers of a context's options.
pub mod context {
    /// Threads for input and output.
    pub const IO_THREADS: i32 = 1;
    /// The most sockets at once.
    pub const MAX_SOCKETS: i32 = 2;
    /// The most that [`MAX_SOCKETS`] can be.
    pub const SOCKET_LIMIT: i32 = 3;
    /// The priority of threads; the same number as [`SOCKET_LIMIT`], for setting.
    pub const THREAD_PRIORITY: i32 = 3;
    /// The scheduling policy of threads.
    pub const THREAD_SCHED_POLICY: i32 = 4;
    /// The largest message that is sent, in bytes.
    pub const MAX_MSGSZ: i32 = 5;
    /// The size of libzmq's message structure.
    pub const MSG_T_SIZE: i32 = 6;
    /// A processor for the threads.
    pub const THREAD_AFFINITY_CPU_ADD: i32 = 7;
    /// A processor no more for the threads.
    pub const THREAD_AFFINITY_CPU_REMOVE: i32 = 8;
    /// How the threads' names begin.
    pub const THREAD_NAME_PREFIX: i32 = 9;
    /// Messages are received without a copy.
    pub const ZERO_COPY_RECV: i32 = 10;
    /// Whether sockets use IPv6 from the start; the same number as the socket's option.
    pub const IPV6: i32 = super::IPV6;
    /// Whether the context's end waits for messages.
    pub const BLOCKY: i32 = super::BLOCKY;
}
