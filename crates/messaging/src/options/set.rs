//! Setting: sizes, ranges, and which types of socket take which option.

use std::time::Duration;

use ropewalk_zmtp::{SocketType, z85};

use super::{Mechanism, Options, option, refusal};
use crate::error::Result;

/// Room for an interface's name.
const INTERFACE: usize = 16;
/// The longest name that fits in one byte of a length.
const SHORT: usize = 255;

impl Options {
    /// Sets an option from the bytes of a C value, in the machine's byte order. No bytes stand for libzmq's
    /// null.
    ///
    /// # Errors
    ///
    /// `EINVAL` for what is no option of this type of socket, not supported, out of range or of a wrong size,
    /// and for what the socket answers itself (see the [module](super)). Nothing has changed then.
    pub fn set(&mut self, kind: SocketType, number: i32, value: &[u8]) -> Result<()> {
        self.accept(kind, number, value).ok_or_else(|| refusal(kind, number, "set"))
    }

    /// As [`set`](Self::set), of an `int`.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    pub fn set_int(&mut self, kind: SocketType, number: i32, value: i32) -> Result<()> {
        self.set(kind, number, &value.to_ne_bytes())
    }

    fn accept(&mut self, kind: SocketType, number: i32, value: &[u8]) -> Option<()> {
        match number {
            option::AFFINITY => self.affinity = u64::from_ne_bytes(value.try_into().ok()?),
            option::BACKLOG => self.backlog = natural(value)?,
            option::BINDTODEVICE => self.bindtodevice = text(value, INTERFACE)?,
            option::CONFLATE => self.conflate = strict(value)?,
            option::CONNECT_TIMEOUT => self.connect_timeout = zero_is_none(value)?,
            option::HANDSHAKE_IVL => self.handshake_ivl = zero_is_none(value)?,
            option::HEARTBEAT_IVL => self.heartbeat_ivl = zero_is_none(value)?,
            option::HEARTBEAT_TIMEOUT => self.heartbeat_timeout = Some(millis(natural(value)?)),
            option::HEARTBEAT_TTL => self.heartbeat_ttl = tenths(value)?,
            option::IMMEDIATE => self.immediate = strict(value)?,
            option::INVERT_MATCHING => self.invert_matching = relaxed(value)?,
            option::IPV4ONLY => self.ipv6 = !strict(value)?,
            option::IPV6 => self.ipv6 = strict(value)?,
            option::LINGER => self.linger = minus_one_is_none(value)?,
            option::MAXMSGSIZE => {
                self.maxmsgsize = u64::try_from(i64::from_ne_bytes(value.try_into().ok()?)).ok();
            }
            option::METADATA => self.add_property(value)?,
            option::PRIORITY => self.priority = natural(value)?,
            option::RCVBUF => self.rcvbuf = or_minus_one(value)?,
            option::RCVHWM => self.rcvhwm = natural(value)? as usize,
            option::RCVTIMEO => self.rcvtimeo = minus_one_is_none(value)?,
            option::RCV_HWM_BYTES => self.rcv_hwm_bytes = bytes(value)?,
            option::RECONNECT_IVL => self.reconnect_ivl = minus_one_is_none(value)?,
            option::RECONNECT_IVL_MAX => self.reconnect_ivl_max = millis(natural(value)?),
            option::RECONNECT_STOP => self.reconnect_stop = int(value)?,
            option::ROUTING_ID => self.routing_id = name(value)?,
            option::SNDBUF => self.sndbuf = or_minus_one(value)?,
            option::SNDHWM => self.sndhwm = natural(value)? as usize,
            option::SNDTIMEO => self.sndtimeo = minus_one_is_none(value)?,
            option::SND_HWM_BYTES => self.snd_hwm_bytes = bytes(value)?,
            option::TCP_KEEPALIVE => self.tcp_keepalive = or_minus_one(value).filter(|&on| on <= 1)?,
            option::TCP_KEEPALIVE_CNT => self.tcp_keepalive_cnt = or_minus_one(value)?,
            option::TCP_KEEPALIVE_IDLE => self.tcp_keepalive_idle = or_minus_one(value)?,
            option::TCP_KEEPALIVE_INTVL => self.tcp_keepalive_intvl = or_minus_one(value)?,
            option::TCP_MAXRT => self.tcp_maxrt = zero_is_none(value)?,
            option::TOS => self.tos = natural(value)?,
            option::USE_FD => self.use_fd = or_minus_one(value)?,
            _ => {
                return self
                    .accept_security(number, value)
                    .or_else(|| self.accept_pattern(kind, number, value));
            }
        }
        Some(())
    }

    /// The options of one pattern each; a type that cannot honour one does not take it.
    fn accept_pattern(&mut self, kind: SocketType, number: i32, value: &[u8]) -> Option<()> {
        use SocketType::{Client, Dealer, Peer, Pub, Radio, Req, Router, Server, Stream, XPub, XSub};
        match (number, kind) {
            (option::CONNECT_ROUTING_ID, Router | Stream) => self.connect_routing_id = Some(name(value)?),
            (option::DISCONNECT_MSG, Router | Server | Peer) => self.disconnect_msg = message(value),
            (option::HELLO_MSG, Dealer | Router | Server | Client | Peer) => self.hello_msg = message(value),
            (option::HICCUP_MSG, Dealer | Client | Peer) => self.hiccup_msg = message(value),
            (option::ONLY_FIRST_SUBSCRIBE, XPub | Pub | XSub) => self.only_first_subscribe = positive(value)?,
            (option::PROBE_ROUTER, Router | Dealer | Req) => self.probe_router = positive(value)?,
            (option::REQ_CORRELATE, Req) => self.req_correlate = positive(value)?,
            (option::REQ_RELAXED, Req) => self.req_relaxed = positive(value)?,
            (option::ROUTER_HANDOVER, Router) => self.router_handover = positive(value)?,
            (option::ROUTER_MANDATORY, Router) => self.router_mandatory = positive(value)?,
            (option::ROUTER_NOTIFY, Router) => {
                let both = option::NOTIFY_CONNECT | option::NOTIFY_DISCONNECT;
                self.router_notify = natural(value).filter(|&bits| bits <= both)?;
            }
            (option::ROUTER_RAW, Router) => self.router_raw = positive(value)?,
            (option::STREAM_NOTIFY, Stream) => self.stream_notify = strict(value)?,
            (option::XPUB_MANUAL, XPub) => self.xpub_manual = positive(value)?,
            (option::XPUB_MANUAL_LAST_VALUE, XPub) => {
                self.xpub_manual = positive(value)?;
                self.xpub_manual_last_value = self.xpub_manual;
            }
            (option::XPUB_NODROP, XPub | Pub | Radio) => self.xpub_nodrop = positive(value)?,
            (option::XPUB_VERBOSE, XPub | Pub) => {
                self.xpub_verbose = positive(value)?;
                self.xpub_verboser = false;
            }
            (option::XPUB_VERBOSER, XPub | Pub) => {
                self.xpub_verboser = positive(value)?;
                self.xpub_verbose = self.xpub_verboser;
            }
            (option::XPUB_WELCOME_MSG, XPub | Pub) => self.xpub_welcome_msg = message(value),
            (option::XSUB_VERBOSE_UNSUBSCRIBE, XSub) => self.xsub_verbose_unsubscribe = positive(value)?,
            _ => return None,
        }
        Some(())
    }

    /// The options of security, of which the last one that is set decides the mechanism.
    fn accept_security(&mut self, number: i32, value: &[u8]) -> Option<()> {
        match number {
            option::PLAIN_SERVER => self.serve(Mechanism::Plain, strict(value)?),
            option::PLAIN_USERNAME => {
                self.plain_username = message(&text(value, SHORT)?);
                self.be_plain_client(!value.is_empty());
            }
            option::PLAIN_PASSWORD => {
                self.plain_password = message(&text(value, SHORT)?);
                self.be_plain_client(!value.is_empty());
            }
            option::CURVE_SERVER => self.serve(Mechanism::Curve, strict(value)?),
            option::CURVE_PUBLICKEY => {
                self.curve_publickey = Some(key(value)?);
                self.secure(Mechanism::Curve, self.is_server());
            }
            option::CURVE_SECRETKEY => {
                self.curve_secretkey = Some(key(value)?);
                self.secure(Mechanism::Curve, self.is_server());
            }
            option::CURVE_SERVERKEY => {
                self.curve_serverkey = Some(key(value)?);
                self.secure(Mechanism::Curve, false);
            }
            option::ZAP_DOMAIN => self.zap_domain = name(value)?,
            option::ZAP_ENFORCE_DOMAIN => self.zap_enforce_domain = relaxed(value)?,
            _ => return None,
        }
        Some(())
    }

    fn serve(&mut self, mechanism: Mechanism, server: bool) {
        self.secure(if server { mechanism } else { Mechanism::Null }, server);
    }

    fn be_plain_client(&mut self, given: bool) {
        // Nothing given only ends the mechanism, as libzmq has it: the role stays.
        if given {
            self.secure(Mechanism::Plain, false);
        } else {
            self.mechanism = Mechanism::Null;
        }
    }

    fn secure(&mut self, mechanism: Mechanism, server: bool) {
        self.mechanism = mechanism;
        self.plain_server = server && mechanism == Mechanism::Plain;
        self.curve_server = server && mechanism == Mechanism::Curve;
    }

    /// `X-name:value`; the first value of a name stays.
    fn add_property(&mut self, value: &[u8]) -> Option<()> {
        let colon = value.iter().position(|&byte| byte == b':')?;
        let (name, value) = (std::str::from_utf8(&value[..colon]).ok()?, &value[colon + 1..]);
        if !name.starts_with("X-") || name.len() > SHORT || value.is_empty() {
            return None;
        }
        if self.metadata.iter().all(|(known, _)| known != name) {
            self.metadata.push((name.to_owned(), value.to_vec()));
        }
        Some(())
    }
}

fn int(value: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(value.try_into().ok()?))
}

fn natural(value: &[u8]) -> Option<i32> {
    int(value).filter(|&number| number >= 0)
}

fn or_minus_one(value: &[u8]) -> Option<i32> {
    int(value).filter(|&number| number >= -1)
}

/// 0 or 1.
fn strict(value: &[u8]) -> Option<bool> {
    natural(value).filter(|&number| number <= 1).map(|number| number == 1)
}

/// Any number; all but 0 are true.
fn relaxed(value: &[u8]) -> Option<bool> {
    int(value).map(|number| number != 0)
}

/// Any number that is not negative; all but 0 are true.
fn positive(value: &[u8]) -> Option<bool> {
    natural(value).map(|number| number != 0)
}

fn millis(number: i32) -> Duration {
    Duration::from_millis(u64::try_from(number).unwrap_or(0))
}

fn zero_is_none(value: &[u8]) -> Option<Option<Duration>> {
    natural(value).map(|number| (number != 0).then(|| millis(number)))
}

fn minus_one_is_none(value: &[u8]) -> Option<Option<Duration>> {
    or_minus_one(value).map(|number| (number >= 0).then(|| millis(number)))
}

/// Whole tenths of a second, in 16 bits on the wire.
fn tenths(value: &[u8]) -> Option<Duration> {
    let tenths = u16::try_from(natural(value)? / 100).ok()?;
    Some(Duration::from_millis(u64::from(tenths) * 100))
}

/// A number of bytes, as an `int64_t` or an `int`.
fn bytes(value: &[u8]) -> Option<usize> {
    match value.try_into() {
        Ok(wide) => usize::try_from(i64::from_ne_bytes(wide)).ok(),
        Err(_) => natural(value).map(|number| number as usize),
    }
}

/// At most so many bytes.
fn text(value: &[u8], most: usize) -> Option<Vec<u8>> {
    (value.len() <= most).then(|| value.to_vec())
}

/// 1 to 255 bytes.
fn name(value: &[u8]) -> Option<Vec<u8>> {
    text(value, SHORT).filter(|name| !name.is_empty())
}

/// Nothing, or a message.
fn message(value: &[u8]) -> Option<Vec<u8>> {
    (!value.is_empty()).then(|| value.to_vec())
}

/// 32 bytes, or 40 characters of Z85, or these with a final zero.
fn key(value: &[u8]) -> Option<[u8; 32]> {
    let encoded = match value.len() {
        32 => return value.try_into().ok(),
        40 => value,
        41 if value[40] == 0 => &value[..40],
        _ => return None,
    };
    z85::decode(std::str::from_utf8(encoded).ok()?)?.try_into().ok()
}

/// Every option that some type of socket takes or tells here.
pub(super) const SUPPORTED: &[i32] = &[
    option::AFFINITY,
    option::BACKLOG,
    option::BINDTODEVICE,
    option::CONFLATE,
    option::CONNECT_ROUTING_ID,
    option::CONNECT_TIMEOUT,
    option::CURVE_PUBLICKEY,
    option::CURVE_SECRETKEY,
    option::CURVE_SERVER,
    option::CURVE_SERVERKEY,
    option::DISCONNECT_MSG,
    option::HANDSHAKE_IVL,
    option::HEARTBEAT_IVL,
    option::HEARTBEAT_TIMEOUT,
    option::HEARTBEAT_TTL,
    option::HELLO_MSG,
    option::HICCUP_MSG,
    option::IMMEDIATE,
    option::INVERT_MATCHING,
    option::IPV4ONLY,
    option::IPV6,
    option::LINGER,
    option::MAXMSGSIZE,
    option::MECHANISM,
    option::METADATA,
    option::ONLY_FIRST_SUBSCRIBE,
    option::PLAIN_PASSWORD,
    option::PLAIN_SERVER,
    option::PLAIN_USERNAME,
    option::PRIORITY,
    option::PROBE_ROUTER,
    option::RCVBUF,
    option::RCVHWM,
    option::RCVTIMEO,
    option::RCV_HWM_BYTES,
    option::RECONNECT_IVL,
    option::RECONNECT_IVL_MAX,
    option::RECONNECT_STOP,
    option::REQ_CORRELATE,
    option::REQ_RELAXED,
    option::ROUTER_HANDOVER,
    option::ROUTER_MANDATORY,
    option::ROUTER_NOTIFY,
    option::ROUTER_RAW,
    option::ROUTING_ID,
    option::SNDBUF,
    option::SNDHWM,
    option::SNDTIMEO,
    option::SND_HWM_BYTES,
    option::STREAM_NOTIFY,
    option::TCP_KEEPALIVE,
    option::TCP_KEEPALIVE_CNT,
    option::TCP_KEEPALIVE_IDLE,
    option::TCP_KEEPALIVE_INTVL,
    option::TCP_MAXRT,
    option::TOS,
    option::USE_FD,
    option::XPUB_MANUAL,
    option::XPUB_MANUAL_LAST_VALUE,
    option::XPUB_NODROP,
    option::XPUB_VERBOSE,
    option::XPUB_VERBOSER,
    option::XPUB_WELCOME_MSG,
    option::XSUB_VERBOSE_UNSUBSCRIBE,
    option::ZAP_DOMAIN,
    option::ZAP_ENFORCE_DOMAIN,
];
