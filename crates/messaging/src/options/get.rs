//! Reading. What libzmq does not let be read is not read here either.

use std::time::Duration;

use ropewalk_zmtp::{SocketType, z85};

use super::{Options, Value, option, refusal};
use crate::error::Result;

impl Options {
    /// The value of an option. A key is its 32 bytes; for text there is [`get_z85`](Self::get_z85).
    ///
    /// # Errors
    ///
    /// `EINVAL` for what is no option, cannot be read or is the socket's to answer (see the [module](super)).
    pub fn get(&self, kind: SocketType, number: i32) -> Result<Value> {
        self.tell(kind, number).ok_or_else(|| refusal(kind, number, "read"))
    }

    /// A CURVE key as 40 characters; zeros if there is none.
    ///
    /// # Errors
    ///
    /// `EINVAL` for what is no key.
    pub fn get_z85(&self, kind: SocketType, number: i32) -> Result<String> {
        let key = match number {
            option::CURVE_PUBLICKEY => &self.curve_publickey,
            option::CURVE_SECRETKEY => &self.curve_secretkey,
            option::CURVE_SERVERKEY => &self.curve_serverkey,
            _ => return Err(refusal(kind, number, "read as a key")),
        };
        z85::encode(&key.unwrap_or_default()).ok_or_else(|| refusal(kind, number, "read as a key"))
    }

    fn tell(&self, kind: SocketType, number: i32) -> Option<Value> {
        let key = |key: &Option<[u8; 32]>| Value::Bytes(key.unwrap_or_default().to_vec());
        let given = |text: &Option<Vec<u8>>| Value::Bytes(text.clone().unwrap_or_default());
        Some(match number {
            option::AFFINITY => Value::Uint64(self.affinity),
            option::BACKLOG => Value::Int(self.backlog),
            option::BINDTODEVICE => Value::Bytes(self.bindtodevice.clone()),
            option::CONFLATE => truth(self.conflate),
            option::CONNECT_TIMEOUT => time(self.connect_timeout, 0),
            option::CURVE_PUBLICKEY => key(&self.curve_publickey),
            option::CURVE_SECRETKEY => key(&self.curve_secretkey),
            option::CURVE_SERVER => truth(self.curve_server),
            option::CURVE_SERVERKEY => key(&self.curve_serverkey),
            option::HANDSHAKE_IVL => time(self.handshake_ivl, 0),
            option::HEARTBEAT_IVL => time(self.heartbeat_ivl, 0),
            option::HEARTBEAT_TIMEOUT => time(self.heartbeat_timeout, -1),
            option::HEARTBEAT_TTL => time(Some(self.heartbeat_ttl), 0),
            option::IMMEDIATE => truth(self.immediate),
            option::INVERT_MATCHING => truth(self.invert_matching),
            option::IPV4ONLY => truth(!self.ipv6),
            option::IPV6 => truth(self.ipv6),
            option::LINGER => time(self.linger, -1),
            option::MAXMSGSIZE => {
                Value::Int64(self.maxmsgsize.map_or(-1, |most| i64::try_from(most).unwrap_or(i64::MAX)))
            }
            option::MECHANISM => Value::Int(self.mechanism as i32),
            option::PLAIN_PASSWORD => given(&self.plain_password),
            option::PLAIN_SERVER => truth(self.plain_server),
            option::PLAIN_USERNAME => given(&self.plain_username),
            option::PRIORITY => Value::Int(self.priority),
            option::RCVBUF => Value::Int(self.rcvbuf),
            option::RCVHWM => Value::Int(limit(self.rcvhwm)),
            option::RCVTIMEO => time(self.rcvtimeo, -1),
            option::RCV_HWM_BYTES => Value::Int64(i64::try_from(self.rcv_hwm_bytes).unwrap_or(i64::MAX)),
            option::RECONNECT_IVL => time(self.reconnect_ivl, -1),
            option::RECONNECT_IVL_MAX => time(Some(self.reconnect_ivl_max), 0),
            option::RECONNECT_STOP => Value::Int(self.reconnect_stop),
            option::ROUTER_NOTIFY if kind == SocketType::Router => Value::Int(self.router_notify),
            option::ROUTING_ID => Value::Bytes(self.routing_id.clone()),
            option::SNDBUF => Value::Int(self.sndbuf),
            option::SNDHWM => Value::Int(limit(self.sndhwm)),
            option::SNDTIMEO => time(self.sndtimeo, -1),
            option::SND_HWM_BYTES => Value::Int64(i64::try_from(self.snd_hwm_bytes).unwrap_or(i64::MAX)),
            option::TCP_KEEPALIVE => Value::Int(self.tcp_keepalive),
            option::TCP_KEEPALIVE_CNT => Value::Int(self.tcp_keepalive_cnt),
            option::TCP_KEEPALIVE_IDLE => Value::Int(self.tcp_keepalive_idle),
            option::TCP_KEEPALIVE_INTVL => Value::Int(self.tcp_keepalive_intvl),
            option::TCP_MAXRT => time(self.tcp_maxrt, 0),
            option::TOS => Value::Int(self.tos),
            option::USE_FD => Value::Int(self.use_fd),
            option::ZAP_DOMAIN => Value::Bytes(self.zap_domain.clone()),
            option::ZAP_ENFORCE_DOMAIN => truth(self.zap_enforce_domain),
            _ => return None,
        })
    }
}

fn truth(on: bool) -> Value {
    Value::Int(i32::from(on))
}

/// Milliseconds, and the most that an `int` holds for what Rust code has set beyond that.
fn time(time: Option<Duration>, none: i32) -> Value {
    Value::Int(time.map_or(none, |time| i32::try_from(time.as_millis()).unwrap_or(i32::MAX)))
}

fn limit(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
