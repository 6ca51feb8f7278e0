//! What a socket can be told about itself.
//!
//! An option that is accepted is honoured; one that is not supported is refused with `EINVAL`. Numbers,
//! sizes, ranges and defaults are libzmq 4.3.5's.
//!
//! [`Options`] holds what lasts. What is an act or a state of the socket is the socket's to answer before it
//! asks here, and is refused here: `SUBSCRIBE`, `UNSUBSCRIBE`, `RCVMORE`, `FD`, `EVENTS`, `TYPE`,
//! `LAST_ENDPOINT`, `THREAD_SAFE` and `TOPICS_COUNT`.
//!
//! Source: zmq_setsockopt(3), zmq_getsockopt(3).

mod get;
pub mod option;
mod set;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use ropewalk_os::net::TcpOptions;
use ropewalk_zmtp::SocketType;

use crate::error::Error;

/// A value as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A C `int`.
    Int(i32),
    /// An `int64_t`.
    Int64(i64),
    /// A `uint64_t`.
    Uint64(u64),
    /// Bytes, or a string without its final zero.
    Bytes(Vec<u8>),
}

/// How two ends make sure of each other; the value is the option's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Mechanism {
    /// Not at all, unless an authenticator looks at addresses.
    #[default]
    Null = 0,
    /// By a name and a password, sent in the clear.
    Plain = 1,
    /// By keys, and everything is encrypted.
    Curve = 2,
}

/// All options of one socket, named as libzmq names them.
///
/// `None` for a time means for ever, or off.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// [`option::AFFINITY`].
    pub affinity: u64,
    /// [`option::BACKLOG`].
    pub backlog: i32,
    /// [`option::BINDTODEVICE`]. Empty: none.
    pub bindtodevice: Vec<u8>,
    /// [`option::CONFLATE`].
    pub conflate: bool,
    /// [`option::CONNECT_ROUTING_ID`]. Taken by the next connect.
    pub connect_routing_id: Option<Vec<u8>>,
    /// [`option::CONNECT_TIMEOUT`].
    pub connect_timeout: Option<Duration>,
    /// [`option::CURVE_PUBLICKEY`].
    pub curve_publickey: Option<[u8; 32]>,
    /// [`option::CURVE_SECRETKEY`].
    pub curve_secretkey: Option<[u8; 32]>,
    /// [`option::CURVE_SERVER`].
    pub curve_server: bool,
    /// [`option::CURVE_SERVERKEY`].
    pub curve_serverkey: Option<[u8; 32]>,
    /// [`option::DISCONNECT_MSG`].
    pub disconnect_msg: Option<Vec<u8>>,
    /// [`option::HANDSHAKE_IVL`].
    pub handshake_ivl: Option<Duration>,
    /// [`option::HEARTBEAT_IVL`].
    pub heartbeat_ivl: Option<Duration>,
    /// [`option::HEARTBEAT_TIMEOUT`]. `None`: as long as `heartbeat_ivl`. See
    /// [`heartbeat_patience`](Options::heartbeat_patience).
    pub heartbeat_timeout: Option<Duration>,
    /// [`option::HEARTBEAT_TTL`]. Whole tenths of a second.
    pub heartbeat_ttl: Duration,
    /// [`option::HELLO_MSG`].
    pub hello_msg: Option<Vec<u8>>,
    /// [`option::HICCUP_MSG`].
    pub hiccup_msg: Option<Vec<u8>>,
    /// [`option::IMMEDIATE`].
    pub immediate: bool,
    /// [`option::INVERT_MATCHING`].
    pub invert_matching: bool,
    /// [`option::IPV6`].
    pub ipv6: bool,
    /// [`option::LINGER`].
    pub linger: Option<Duration>,
    /// [`option::MAXMSGSIZE`].
    pub maxmsgsize: Option<u64>,
    /// [`option::MECHANISM`]. Follows from the last security option that was set.
    pub mechanism: Mechanism,
    /// [`option::METADATA`]. Properties that peers are told, each name once.
    pub metadata: Vec<(String, Vec<u8>)>,
    /// [`option::ONLY_FIRST_SUBSCRIBE`].
    pub only_first_subscribe: bool,
    /// [`option::PLAIN_PASSWORD`].
    pub plain_password: Option<Vec<u8>>,
    /// [`option::PLAIN_SERVER`].
    pub plain_server: bool,
    /// [`option::PLAIN_USERNAME`].
    pub plain_username: Option<Vec<u8>>,
    /// [`option::PRIORITY`].
    pub priority: i32,
    /// [`option::PROBE_ROUTER`].
    pub probe_router: bool,
    /// [`option::RCV_HWM_BYTES`]. 0: no limit by bytes.
    pub rcv_hwm_bytes: usize,
    /// [`option::RCVBUF`]. -1: the system's.
    pub rcvbuf: i32,
    /// [`option::RCVHWM`]. 0: no limit by messages.
    pub rcvhwm: usize,
    /// [`option::RCVTIMEO`].
    pub rcvtimeo: Option<Duration>,
    /// [`option::RECONNECT_IVL`].
    pub reconnect_ivl: Option<Duration>,
    /// [`option::RECONNECT_IVL_MAX`]. Zero: the wait does not grow.
    pub reconnect_ivl_max: Duration,
    /// [`option::RECONNECT_STOP`]. Bits: [`option::STOP_CONN_REFUSED`] and its siblings.
    pub reconnect_stop: i32,
    /// [`option::REQ_CORRELATE`].
    pub req_correlate: bool,
    /// [`option::REQ_RELAXED`].
    pub req_relaxed: bool,
    /// [`option::ROUTER_HANDOVER`].
    pub router_handover: bool,
    /// [`option::ROUTER_MANDATORY`].
    pub router_mandatory: bool,
    /// [`option::ROUTER_NOTIFY`]. Bits: [`option::NOTIFY_CONNECT`] and its sibling.
    pub router_notify: i32,
    /// [`option::ROUTER_RAW`].
    pub router_raw: bool,
    /// [`option::ROUTING_ID`].
    pub routing_id: Vec<u8>,
    /// [`option::SND_HWM_BYTES`]. 0: no limit by bytes.
    pub snd_hwm_bytes: usize,
    /// [`option::SNDBUF`]. -1: the system's.
    pub sndbuf: i32,
    /// [`option::SNDHWM`]. 0: no limit by messages.
    pub sndhwm: usize,
    /// [`option::SNDTIMEO`].
    pub sndtimeo: Option<Duration>,
    /// [`option::STREAM_NOTIFY`].
    pub stream_notify: bool,
    /// [`option::TCP_KEEPALIVE`]. -1: the system's; else 0 or 1.
    pub tcp_keepalive: i32,
    /// [`option::TCP_KEEPALIVE_CNT`]. -1: the system's.
    pub tcp_keepalive_cnt: i32,
    /// [`option::TCP_KEEPALIVE_IDLE`]. -1: the system's.
    pub tcp_keepalive_idle: i32,
    /// [`option::TCP_KEEPALIVE_INTVL`]. -1: the system's.
    pub tcp_keepalive_intvl: i32,
    /// [`option::TCP_MAXRT`].
    pub tcp_maxrt: Option<Duration>,
    /// [`option::TOS`].
    pub tos: i32,
    /// [`option::USE_FD`]. -1: a new one.
    pub use_fd: i32,
    /// [`option::XPUB_MANUAL`].
    pub xpub_manual: bool,
    /// [`option::XPUB_MANUAL_LAST_VALUE`].
    pub xpub_manual_last_value: bool,
    /// [`option::XPUB_NODROP`].
    pub xpub_nodrop: bool,
    /// [`option::XPUB_VERBOSE`].
    pub xpub_verbose: bool,
    /// [`option::XPUB_VERBOSER`].
    pub xpub_verboser: bool,
    /// [`option::XPUB_WELCOME_MSG`].
    pub xpub_welcome_msg: Option<Vec<u8>>,
    /// [`option::XSUB_VERBOSE_UNSUBSCRIBE`].
    pub xsub_verbose_unsubscribe: bool,
    /// [`option::ZAP_DOMAIN`].
    pub zap_domain: Vec<u8>,
    /// [`option::ZAP_ENFORCE_DOMAIN`].
    pub zap_enforce_domain: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            affinity: 0,
            backlog: 100,
            bindtodevice: Vec::new(),
            conflate: false,
            connect_routing_id: None,
            connect_timeout: None,
            curve_publickey: None,
            curve_secretkey: None,
            curve_server: false,
            curve_serverkey: None,
            disconnect_msg: None,
            handshake_ivl: Some(Duration::from_secs(30)),
            heartbeat_ivl: None,
            heartbeat_timeout: None,
            heartbeat_ttl: Duration::ZERO,
            hello_msg: None,
            hiccup_msg: None,
            immediate: false,
            invert_matching: false,
            ipv6: false,
            linger: None,
            maxmsgsize: None,
            mechanism: Mechanism::Null,
            metadata: Vec::new(),
            only_first_subscribe: false,
            plain_password: None,
            plain_server: false,
            plain_username: None,
            priority: 0,
            probe_router: false,
            rcv_hwm_bytes: 0,
            rcvbuf: -1,
            rcvhwm: 1000,
            rcvtimeo: None,
            reconnect_ivl: Some(Duration::from_millis(100)),
            reconnect_ivl_max: Duration::ZERO,
            reconnect_stop: 0,
            req_correlate: false,
            req_relaxed: false,
            router_handover: false,
            router_mandatory: false,
            router_notify: 0,
            router_raw: false,
            routing_id: Vec::new(),
            snd_hwm_bytes: 0,
            sndbuf: -1,
            sndhwm: 1000,
            sndtimeo: None,
            stream_notify: true,
            tcp_keepalive: -1,
            tcp_keepalive_cnt: -1,
            tcp_keepalive_idle: -1,
            tcp_keepalive_intvl: -1,
            tcp_maxrt: None,
            tos: 0,
            use_fd: -1,
            xpub_manual: false,
            xpub_manual_last_value: false,
            xpub_nodrop: false,
            xpub_verbose: false,
            xpub_verboser: false,
            xpub_welcome_msg: None,
            xsub_verbose_unsubscribe: false,
            zap_domain: Vec::new(),
            zap_enforce_domain: false,
        }
    }
}

impl fmt::Debug for Options {
    /// Says little: a log is no place for keys and passwords.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Options")
            .field("routing_id", &self.routing_id.escape_ascii().to_string())
            .field("mechanism", &self.mechanism)
            .field("sndhwm", &self.sndhwm)
            .field("rcvhwm", &self.rcvhwm)
            .field("linger", &self.linger)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Whether only the newest message is kept: other types of socket do not heed the option.
    pub fn conflates(&self, kind: SocketType) -> bool {
        use SocketType::{Dealer, Pub, Pull, Push, Sub};
        self.conflate && matches!(kind, Dealer | Pull | Push | Pub | Sub)
    }

    /// Whether this end is the one that checks.
    pub fn is_server(&self) -> bool {
        self.plain_server || self.curve_server
    }

    /// How long to wait for the answer to a heartbeat; `None` is for ever.
    pub fn heartbeat_patience(&self) -> Option<Duration> {
        self.heartbeat_timeout.or(self.heartbeat_ivl).filter(|time| !time.is_zero())
    }

    /// What TCP sockets are made with.
    pub fn tcp(&self) -> TcpOptions {
        let given = |number: i32| u32::try_from(number).ok();
        TcpOptions {
            dual_stack: self.ipv6,
            keepalive: match self.tcp_keepalive {
                -1 => None,
                on => Some(on != 0),
            },
            keepalive_probes: given(self.tcp_keepalive_cnt),
            keepalive_idle: given(self.tcp_keepalive_idle),
            keepalive_interval: given(self.tcp_keepalive_intvl),
            send_buffer: given(self.sndbuf),
            receive_buffer: given(self.rcvbuf),
            tos: given(self.tos).filter(|&tos| tos != 0),
            priority: given(self.priority).filter(|&priority| priority != 0),
            user_timeout: self.tcp_maxrt,
            device: self.bindtodevice.clone(),
        }
    }
}

/// What the refusal of an option says.
#[cold]
fn refusal(kind: SocketType, number: i32, verb: &str) -> Error {
    use option::{
        BLOCKY, EVENTS, FD, LAST_ENDPOINT, RCVMORE, SUBSCRIBE, THREAD_SAFE, TOPICS_COUNT, TYPE, UNSUBSCRIBE,
    };
    let kind = kind.name();
    let Some(name) = option::name(number) else {
        return Error::invalid(format!("there is no option {number}"));
    };
    Error::invalid(match number {
        SUBSCRIBE | UNSUBSCRIBE | RCVMORE | FD | EVENTS | TYPE | LAST_ENDPOINT | THREAD_SAFE
        | TOPICS_COUNT => {
            format!("{name} cannot be {verb} on a {kind} socket")
        }
        BLOCKY => format!("{name} is an option of the context: {verb} it there"),
        _ if set::SUPPORTED.contains(&number) => {
            format!(
                "{name} cannot be {verb} on a {kind} socket, or not like this: look at the type and the range"
            )
        }
        _ => format!("{name} is not supported"),
    })
}
