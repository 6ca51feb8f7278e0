//! Every socket option, once: a table.
//!
//! `socket_options!` makes all of it from the rows: the numbers in [`option`], the fields and defaults of
//! [`Options`], the parser, the getter, and the [`Definition`]s. `tests/generated.rs` makes Python's enum and
//! the reference page from those.
//!
//! Numbers, types, ranges and defaults are libzmq 4.3.5's, drafts included. A row says: the name and its old names,
//! the number; the field that keeps it and its default (a row without a type shares the field of another row); the
//! form of its value; whether programs read it, write it or both; the sockets that have it; and what else
//! changes with it.

use std::time::Duration;

use ropewalk_zmtp::SocketType::{
    self, Client, Dealer, Peer, Pub, Radio, Req, Router, Server, Stream, Sub, XPub, XSub,
};

use super::form::{
    Bits, Blob, ByteLimit, Count, Delay, Form, Int, Inverse, Key, MaxSize, Millis, OnOff, Optional, Property,
    Role, Tenths, Text, Truth,
};
use super::value::{Mechanism, Value, ValueType};

/// What programs may do with an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// They read it.
    Read,
    /// They set it.
    Write,
    /// They read and set it.
    ReadWrite,
}

impl Access {
    /// Whether it can be read.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// Whether it can be set.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }
}

/// How an option is supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// [`Options`] keeps it.
    Kept {
        /// The values that it takes, in words.
        values: String,
        /// The value of a new socket.
        default: Value,
    },
    /// It is an action or a state of the socket, which answers it.
    Answered,
    /// It is not supported.
    Refused,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The name, as libzmq has it behind `ZMQ_`.
    pub name: &'static str,
    /// Old names of the same number.
    pub aliases: &'static [&'static str],
    /// The number.
    pub number: i32,
    /// What it is, in one sentence.
    pub about: &'static str,
    /// The type of its value.
    pub value: ValueType,
    /// What programs may do with it.
    pub access: Access,
    /// The types of sockets that have it.
    pub sockets: &'static [SocketType],
    /// How it is supported.
    pub support: Support,
}

/// Every type of socket.
const ANY: &[SocketType] = &SocketType::ALL;
const RW: Access = Access::ReadWrite;
const RO: Access = Access::Read;
const WO: Access = Access::Write;

macro_rules! socket_options {
    (
        kept { $(
            #[doc = $about:literal]
            $name:ident $(/ $alias:ident)* = $number:literal, $field:ident $(: $type:ty = $default:expr)?,
            $form:ty, $access:expr, $sockets:expr $(, then $then:ident)?;
        )* }
        answered { $(
            #[doc = $answered_about:literal]
            $answered:ident = $answered_number:literal, $answered_value:ident, $answered_access:expr,
            $answered_sockets:expr;
        )* }
        refused { $(
            #[doc = $refused_about:literal]
            $refused:ident = $refused_number:literal, $refused_value:ident;
        )* }
    ) => {
        /// The numbers of all socket options, libzmq's drafts included, so that a program may hold one from anywhere.
        /// That a number is here does not say that the option is supported.
        pub mod option {
            pub use crate::options::context;

            /// [`ROUTER_NOTIFY`]: peers that come are reported.
            pub const NOTIFY_CONNECT: i32 = 1;
            /// [`ROUTER_NOTIFY`]: peers that go are reported.
            pub const NOTIFY_DISCONNECT: i32 = 2;
            /// [`RECONNECT_STOP`]: when the connection is refused.
            pub const STOP_CONN_REFUSED: i32 = 1;
            /// [`RECONNECT_STOP`]: when the handshake fails.
            pub const STOP_HANDSHAKE_FAILED: i32 = 2;
            /// [`RECONNECT_STOP`]: after `disconnect`.
            pub const STOP_AFTER_DISCONNECT: i32 = 4;
            $(
                #[doc = $about] pub const $name: i32 = $number;
                $(#[doc = concat!("An old name of [`", stringify!($name), "`].")] pub const $alias: i32 = $number;)*
            )*
            $(#[doc = $answered_about] pub const $answered: i32 = $answered_number;)*
            $(#[doc = $refused_about] pub const $refused: i32 = $refused_number;)*
        }

        /// The options of one socket that last, named as libzmq names them.
        #[derive(Clone, PartialEq, Eq)]
        pub struct Options {
            $($(#[doc = $about] #[doc = ""] #[doc = concat!("[`option::", stringify!($name), "`].")]
            pub $field: $type,)?)*
        }

        impl Default for Options {
            fn default() -> Self {
                Self { $($($field: $default,)?)* }
            }
        }

        impl Options {
            pub(super) fn accept(&mut self, kind: SocketType, number: i32, value: &[u8]) -> Option<()> {
                match number {
                    $(option::$name if $access.writes() && $sockets.contains(&kind) => {
                        <$form as Form>::set(&mut self.$field, value)?;
                        $(self.$then();)?
                        Some(())
                    })*
                    _ => None,
                }
            }

            pub(super) fn value(&self, kind: SocketType, number: i32) -> Option<Value> {
                match number {
                    $(option::$name if $access.reads() && $sockets.contains(&kind) => {
                        Some(<$form as Form>::get(&self.$field))
                    })*
                    _ => None,
                }
            }
        }

        /// The numbers of all options, in no order.
        pub const NUMBERS: &[i32] = &[$($number,)* $($answered_number,)* $($refused_number,)*];

        /// The type of an option's value, if there is an option of this number.
        pub const fn value_type(number: i32) -> Option<ValueType> {
            Some(match number {
                $($number => <$form as Form>::TYPE,)*
                $($answered_number => ValueType::$answered_value,)*
                $($refused_number => ValueType::$refused_value,)*
                _ => return None,
            })
        }

        /// The row of an option, if there is an option of this number.
        pub fn definition(number: i32) -> Option<Definition> {
            let value = value_type(number)?;
            let row = |name, aliases, about: &'static str, access, sockets, support| Definition {
                name, aliases, number, about: about.trim_start(), value, access, sockets, support,
            };
            Some(match number {
                $($number => row(
                    stringify!($name), &[$(stringify!($alias)),*], $about, $access, $sockets,
                    Support::Kept {
                        values: <$form as Form>::values(),
                        default: <$form as Form>::get(&Options::default().$field),
                    },
                ),)*
                $($answered_number => row(
                    stringify!($answered), &[], $answered_about, $answered_access, $answered_sockets,
                    Support::Answered,
                ),)*
                $($refused_number => row(
                    stringify!($refused), &[], $refused_about, RW, ANY, Support::Refused,
                ),)*
                _ => return None,
            })
        }
    };
}

type Time = Option<Duration>;
type Bytes = Option<Vec<u8>>;
/// A message of any length; none if it is empty.
type Message = Blob<{ usize::MAX }>;
/// Up to 255 bytes; none if they are empty.
type Credential = Blob<255>;
/// 1 to 255 bytes.
type Name = Text<1, 255>;
type Natural = Int<0, { i32::MAX }>;
/// -1 leaves it to the system.
type OrSystem = Int<-1, { i32::MAX }>;
/// In ms; -1 is for ever, or never.
type Patience = Millis<-1, -1>;
/// In ms; 0 is none.
type Interval = Millis<0, 0>;

socket_options! {
    kept {
        /// Which of libzmq's I/O threads serve the socket, as bits: without effect, since there are none.
        AFFINITY = 4, affinity: u64 = 0, Bits, RW, ANY;
        /// The name by which a ROUTER knows the socket.
        ROUTING_ID / IDENTITY = 5, routing_id: Vec<u8> = Vec::new(), Name, RW, ANY;
        /// The kernel's buffer for sending, in bytes; -1 is the system's.
        SNDBUF = 11, sndbuf: i32 = -1, OrSystem, RW, ANY;
        /// The kernel's buffer for receiving, in bytes; -1 is the system's.
        RCVBUF = 12, rcvbuf: i32 = -1, OrSystem, RW, ANY;
        /// How long a closed socket keeps unsent messages; -1 is for ever. SUB, XSUB and DISH begin with 0.
        LINGER = 17, linger: Time = None, Patience, RW, ANY;
        /// How long the socket waits before it connects again; -1 never does.
        RECONNECT_IVL = 18, reconnect_ivl: Time = Some(Duration::from_millis(100)), Patience, RW, ANY;
        /// How many connections may wait to be accepted.
        BACKLOG = 19, backlog: i32 = 100, Natural, RW, ANY;
        /// The longest wait before connecting again; with 0 the wait does not grow.
        RECONNECT_IVL_MAX = 21, reconnect_ivl_max: Duration = Duration::ZERO, Delay, RW, ANY;
        /// The largest message that is received, in bytes; -1 is no limit.
        MAXMSGSIZE = 22, maxmsgsize: Option<u64> = None, MaxSize, RW, ANY;
        /// How many messages may wait to be sent to one peer; 0 is no limit.
        SNDHWM = 23, sndhwm: usize = 1000, Count, RW, ANY;
        /// How many messages of one peer may wait to be received; 0 is no limit.
        RCVHWM = 24, rcvhwm: usize = 1000, Count, RW, ANY;
        /// How long a receive waits; -1 is for ever.
        RCVTIMEO = 27, rcvtimeo: Time = None, Patience, RW, ANY;
        /// How long a send waits; -1 is for ever.
        SNDTIMEO = 28, sndtimeo: Time = None, Patience, RW, ANY;
        /// The opposite of IPV6, for old programs.
        IPV4ONLY = 31, ipv6, Inverse, RW, ANY;
        /// Whether a message for an unknown peer is an error.
        ROUTER_MANDATORY / FAIL_UNROUTABLE / ROUTER_BEHAVIOR = 33, router_mandatory: bool = false,
            Truth<0>, WO, &[Router];
        /// Whether TCP sends probes; -1 is the system's choice.
        TCP_KEEPALIVE = 34, tcp_keepalive: i32 = -1, Int<-1, 1>, RW, ANY;
        /// How many TCP probes may go unanswered; -1 is the system's choice.
        TCP_KEEPALIVE_CNT = 35, tcp_keepalive_cnt: i32 = -1, OrSystem, RW, ANY;
        /// Seconds of silence before the first TCP probe; -1 is the system's choice.
        TCP_KEEPALIVE_IDLE = 36, tcp_keepalive_idle: i32 = -1, OrSystem, RW, ANY;
        /// Seconds between TCP probes; -1 is the system's choice.
        TCP_KEEPALIVE_INTVL = 37, tcp_keepalive_intvl: i32 = -1, OrSystem, RW, ANY;
        /// Whether messages are queued for completed connections only.
        IMMEDIATE / DELAY_ATTACH_ON_CONNECT = 39, immediate: bool = false, OnOff, RW, ANY;
        /// Whether repeated subscriptions are received, too.
        XPUB_VERBOSE = 40, xpub_verbose: bool = false, Truth<0>, WO, &[Pub, XPub], then be_verbose;
        /// Whether the peers are plain TCP clients.
        ROUTER_RAW = 41, router_raw: bool = false, Truth<0>, WO, &[Router];
        /// Whether IPv6 is used beside IPv4.
        IPV6 = 42, ipv6: bool = false, OnOff, RW, ANY;
        /// The security mechanism, which follows from the last security option that was set.
        MECHANISM = 43, mechanism: Mechanism = Mechanism::Null, Role, RO, ANY;
        /// PLAIN: whether this end checks the other.
        PLAIN_SERVER = 44, plain_server: bool = false, OnOff, RW, ANY, then serve_plain;
        /// PLAIN: the name of this end.
        PLAIN_USERNAME = 45, plain_username: Bytes = None, Credential, RW, ANY, then name_plain;
        /// PLAIN: the password of this end.
        PLAIN_PASSWORD = 46, plain_password: Bytes = None, Credential, RW, ANY, then word_plain;
        /// CURVE: whether this end checks the other.
        CURVE_SERVER = 47, curve_server: bool = false, OnOff, RW, ANY, then serve_curve;
        /// CURVE: the public key of this end.
        CURVE_PUBLICKEY = 48, curve_publickey: Option<[u8; 32]> = None, Key, RW, ANY, then use_curve;
        /// CURVE: the secret key of this end.
        CURVE_SECRETKEY = 49, curve_secretkey: Option<[u8; 32]> = None, Key, RW, ANY, then use_curve;
        /// CURVE: the server's public key, which makes this end a client.
        CURVE_SERVERKEY = 50, curve_serverkey: Option<[u8; 32]> = None, Key, RW, ANY, then know_curve_server;
        /// Whether an empty message is sent to each new peer.
        PROBE_ROUTER = 51, probe_router: bool = false, Truth<0>, WO, &[Req, Dealer, Router];
        /// Whether requests are numbered, and replies to other requests dropped.
        REQ_CORRELATE = 52, req_correlate: bool = false, Truth<0>, WO, &[Req];
        /// Whether a new request may be sent before the reply to the last one.
        REQ_RELAXED = 53, req_relaxed: bool = false, Truth<0>, WO, &[Req];
        /// Whether only the newest message is kept (DEALER, PULL, PUSH, PUB and SUB heed it).
        CONFLATE = 54, conflate: bool = false, OnOff, RW, ANY;
        /// The domain by which an authenticator knows the socket.
        ZAP_DOMAIN = 55, zap_domain: Vec<u8> = Vec::new(), Name, RW, ANY;
        /// Whether a new peer takes the routing id of an old one.
        ROUTER_HANDOVER = 56, router_handover: bool = false, Truth<0>, WO, &[Router];
        /// The type of service in IP packets.
        TOS = 57, tos: i32 = 0, Natural, RW, ANY;
        /// The routing id of the peer that is connected next.
        CONNECT_ROUTING_ID / CONNECT_RID = 61, connect_routing_id: Bytes = None, Optional<Name>, WO, &[Router, Stream];
        /// How long a handshake may take; 0 is for ever.
        HANDSHAKE_IVL = 66, handshake_ivl: Time = Some(Duration::from_secs(30)), Interval, RW, ANY;
        /// Whether a full peer makes the sender wait instead of losing messages.
        XPUB_NODROP = 69, xpub_nodrop: bool = false, Truth<0>, WO, &[Pub, XPub, Radio];
        /// Whether the program subscribes on behalf of its peers.
        XPUB_MANUAL = 71, xpub_manual: bool = false, Truth<0>, WO, &[XPub];
        /// The message that each new subscriber gets first.
        XPUB_WELCOME_MSG = 72, xpub_welcome_msg: Bytes = None, Message, WO, &[Pub, XPub];
        /// Whether connections and disconnections are received as empty messages.
        STREAM_NOTIFY = 73, stream_notify: bool = true, OnOff, WO, &[Stream];
        /// Whether messages go to the peers that have not subscribed to them.
        INVERT_MATCHING = 74, invert_matching: bool = false, Truth<{ i32::MIN }>, RW, ANY;
        /// How often a silent peer is asked whether it lives; 0 is never.
        HEARTBEAT_IVL = 75, heartbeat_ivl: Time = None, Interval, RW, ANY;
        /// How long the peer should wait for this end's next sign of life; 0 says nothing about it.
        HEARTBEAT_TTL = 76, heartbeat_ttl: Duration = Duration::ZERO, Tenths, RW, ANY;
        /// How long the answer to a heartbeat may take, 0 for ever; HEARTBEAT_IVL until it is set.
        HEARTBEAT_TIMEOUT = 77, heartbeat_timeout: Time = None, Millis<0, -1>, RW, ANY;
        /// Whether repeated subscriptions and cancellations are received, too.
        XPUB_VERBOSER = 78, xpub_verboser: bool = false, Truth<0>, WO, &[Pub, XPub], then be_verboser;
        /// How long connecting may take; 0 is the system's limit.
        CONNECT_TIMEOUT = 79, connect_timeout: Time = None, Interval, RW, ANY;
        /// How long TCP keeps a connection on which sent data stays unacknowledged; 0 is the system's limit.
        TCP_MAXRT = 80, tcp_maxrt: Time = None, Interval, RW, ANY;
        /// A listening descriptor that the next bind takes instead of making one; -1 is none.
        USE_FD = 89, use_fd: i32 = -1, OrSystem, RW, ANY;
        /// The network interface to which descriptors are bound.
        BINDTODEVICE = 92, bindtodevice: Vec<u8> = Vec::new(), Text<0, 16>, RW, ANY;
        /// Whether an authenticator must judge the peers of a socket that has a domain.
        ZAP_ENFORCE_DOMAIN = 93, zap_enforce_domain: bool = false, Truth<{ i32::MIN }>, RW, ANY;
        /// A property that peers receive with the handshake: each set adds one; the first value of a name stays.
        METADATA = 95, metadata: Vec<(String, Vec<u8>)> = Vec::new(), Property, WO, ANY;
        /// Whether peers that come (1) and go (2) are received as empty messages.
        ROUTER_NOTIFY = 97, router_notify: i32 = 0, Int<0, 3>, RW, &[Router];
        /// XPUB_MANUAL, and a message behind a subscription goes to that subscriber alone.
        XPUB_MANUAL_LAST_VALUE = 98, xpub_manual_last_value: bool = false, Truth<0>, WO, &[XPub], then be_manual;
        /// Whether only a message's first part can be a subscription.
        ONLY_FIRST_SUBSCRIBE = 108, only_first_subscribe: bool = false, Truth<0>, WO, &[Pub, XPub, XSub];
        /// What ends the attempts to connect: a refusal (1), a failed handshake (2), `disconnect` (4).
        RECONNECT_STOP = 109, reconnect_stop: i32 = 0, Int<{ i32::MIN }, { i32::MAX }>, RW, ANY;
        /// The message that each new peer gets first.
        HELLO_MSG = 110, hello_msg: Bytes = None, Message, WO, &[Dealer, Router, Server, Client, Peer];
        /// The message that is received when a peer goes.
        DISCONNECT_MSG = 111, disconnect_msg: Bytes = None, Message, WO, &[Router, Server, Peer];
        /// The priority of the socket's packets in the system.
        PRIORITY = 112, priority: i32 = 0, Natural, RW, ANY;
        /// The message that is received when a connection is lost and will be made again.
        HICCUP_MSG = 114, hiccup_msg: Bytes = None, Message, WO, &[Dealer, Client, Peer];
        /// Whether every cancellation goes on to the publishers.
        XSUB_VERBOSE_UNSUBSCRIBE = 115, xsub_verbose_unsubscribe: bool = false, Truth<0>, WO, &[XSub];
        /// Ropewalk's own: how many bytes may wait to be sent to one peer; 0 is no limit.
        SNDHWM_BYTES = 0x57_0001, sndhwm_bytes: usize = 0, ByteLimit, RW, ANY;
        /// Ropewalk's own: how many bytes of one peer may wait to be received besides one message; 0 is no limit.
        RCVHWM_BYTES = 0x57_0002, rcvhwm_bytes: usize = 0, ByteLimit, RW, ANY;
        /// Ropewalk's own: whether each connection gets a routing id that no other has had, whatever id its peer has.
        ROUTER_OWN_IDS = 0x57_0003, router_own_ids: bool = false, Truth<0>, WO, &[Router];
        /// Ropewalk's own: how many connections the endpoints accept at a time, 0 is no limit; further ones are closed.
        MAX_CONNECTIONS = 0x57_0004, max_connections: usize = 0, Count, RW, ANY;
        /// Multicast, which no transport here has: kilobits a second, without effect.
        RATE = 8, rate: i32 = 100, Int<1, { i32::MAX }>, RW, ANY;
        /// Multicast, which no transport here has: how long lost data can be asked for again, without effect.
        RECOVERY_IVL = 9, recovery_ivl: i32 = 10_000, Int<0, { i32::MAX }>, RW, ANY;
        /// Multicast, which no transport here has: routers that a packet may pass, without effect.
        MULTICAST_HOPS = 25, multicast_hops: i32 = 1, Int<1, { i32::MAX }>, RW, ANY;
        /// Multicast, which no transport here has: the largest packet, without effect.
        MULTICAST_MAXTPDU = 84, multicast_maxtpdu: i32 = 1500, Int<1, { i32::MAX }>, RW, ANY;
        /// Windows: a shorter way through its network, without effect.
        LOOPBACK_FASTPATH = 94, loopback_fastpath: bool = false, Truth<{ i32::MIN }>, RW, ANY;
        /// Multicast, which no transport here has: whether the sender receives its own packets, without effect.
        MULTICAST_LOOP = 96, multicast_loop: bool = true, Truth<{ i32::MIN }>, RW, ANY;
    }
    answered {
        /// Adds a subscription; an XPUB needs XPUB_MANUAL.
        SUBSCRIBE = 6, Bytes, WO, &[Sub, XPub];
        /// Takes a subscription back; an XPUB needs XPUB_MANUAL.
        UNSUBSCRIBE = 7, Bytes, WO, &[Sub, XPub];
        /// Whether the message goes on behind the part that was received.
        RCVMORE = 13, Int, RO, ANY;
        /// A descriptor that becomes readable when EVENTS may have changed.
        FD = 14, Descriptor, RO, ANY;
        /// What the socket is ready for: POLLIN, POLLOUT.
        EVENTS = 15, Int, RO, ANY;
        /// The type of the socket.
        TYPE = 16, Int, RO, ANY;
        /// The last endpoint that was bound or connected.
        LAST_ENDPOINT = 32, Bytes, RO, ANY;
        /// Whether many threads may call the socket at once.
        THREAD_SAFE = 81, Int, RO, ANY;
        /// How many topics are subscribed to, here or by peers.
        TOPICS_COUNT = 116, Int, RO, ANY;
    }
    refused {
        /// Both high-water marks at once: `Socket.hwm` sets them.
        HWM = 1, Int;
        /// TCP: addresses that may connect.
        TCP_ACCEPT_FILTER = 38, Bytes;
        /// IPC: processes that may connect.
        IPC_FILTER_PID = 58, Int;
        /// IPC: users that may connect.
        IPC_FILTER_UID = 59, Int;
        /// IPC: groups that may connect.
        IPC_FILTER_GID = 60, Int;
        /// GSSAPI: whether this end checks the other.
        GSSAPI_SERVER = 62, Int;
        /// GSSAPI: the name of this end.
        GSSAPI_PRINCIPAL = 63, Bytes;
        /// GSSAPI: the name of the server.
        GSSAPI_SERVICE_PRINCIPAL = 64, Bytes;
        /// GSSAPI: whether encryption is off.
        GSSAPI_PLAINTEXT = 65, Int;
        /// A proxy for TCP connections.
        SOCKS_PROXY = 68, Bytes;
        /// A context's option: whether its end waits for messages.
        BLOCKY = 70, Int;
        /// VMCI: the size of a buffer.
        VMCI_BUFFER_SIZE = 85, Int64;
        /// VMCI: the least size of a buffer.
        VMCI_BUFFER_MIN_SIZE = 86, Int64;
        /// VMCI: the greatest size of a buffer.
        VMCI_BUFFER_MAX_SIZE = 87, Int64;
        /// VMCI: how long connecting may take.
        VMCI_CONNECT_TIMEOUT = 88, Int;
        /// GSSAPI: the kind of this end's name.
        GSSAPI_PRINCIPAL_NAMETYPE = 90, Int;
        /// GSSAPI: the kind of the server's name.
        GSSAPI_SERVICE_PRINCIPAL_NAMETYPE = 91, Int;
        /// The user at a proxy.
        SOCKS_USERNAME = 99, Bytes;
        /// The password at a proxy.
        SOCKS_PASSWORD = 100, Bytes;
        /// libzmq's engine: how many bytes it reads at once.
        IN_BATCH_SIZE = 101, Int;
        /// libzmq's engine: how many bytes it writes at once.
        OUT_BATCH_SIZE = 102, Int;
        /// WebSocket: a key.
        WSS_KEY_PEM = 103, Bytes;
        /// WebSocket: a certificate.
        WSS_CERT_PEM = 104, Bytes;
        /// WebSocket: the certificates that are trusted.
        WSS_TRUST_PEM = 105, Bytes;
        /// WebSocket: the name that is checked.
        WSS_HOSTNAME = 106, Bytes;
        /// WebSocket: whether the system's certificates are trusted.
        WSS_TRUST_SYSTEM = 107, Int;
        /// Whether the kernel polls the device.
        BUSY_POLL = 113, Int;
        /// NORM: the congestion control.
        NORM_MODE = 117, Int;
        /// NORM: how losses are reported.
        NORM_UNICAST_NACK = 118, Int;
        /// NORM: the buffer.
        NORM_BUFFER_SIZE = 119, Int;
        /// NORM: the size of a packet.
        NORM_SEGMENT_SIZE = 120, Int;
        /// NORM: packets in a block.
        NORM_BLOCK_SIZE = 121, Int;
        /// NORM: spare packets in a block.
        NORM_NUM_PARITY = 122, Int;
        /// NORM: spare packets that are sent unasked.
        NORM_NUM_AUTOPARITY = 123, Int;
        /// NORM: whether the newest data goes first.
        NORM_PUSH = 124, Int;
    }
}
