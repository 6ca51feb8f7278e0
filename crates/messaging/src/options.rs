//! The options of a socket.
//!
//! An option that is accepted is honoured; one that is not supported is refused with `EINVAL`. `options/table.rs` has
//! every option once; `options/form.rs` has the ways in which values are read and written.
//!
//! [`Options`] keeps lasting settings. The socket itself answers an option that is an action or a state
//! ([`Support::Answered`]); this module refuses it.
//!
//! Source: zmq_setsockopt(3), zmq_getsockopt(3).

pub mod context;
mod form;
mod table;
#[cfg(test)]
mod tests;
mod value;

use std::fmt;
use std::time::Duration;

use ropewalk_os::net::TcpOptions;
use ropewalk_zmtp::{SocketType, z85};

pub use self::table::{Access, Definition, NUMBERS, Options, Support, definition, option, value_type};
pub use self::value::{Mechanism, Value, ValueType};
use crate::error::{Error, Result};

impl fmt::Debug for Options {
    /// Shows little: keys and passwords must not get into logs.
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
    /// Sets an option from the bytes of a C value, in the machine's byte order. No bytes stand for libzmq's null.
    ///
    /// # Errors
    ///
    /// `EINVAL` for what is no option of this type of socket, not supported, out of range or of a wrong size,
    /// and for what the socket answers itself (see the [module](self)). Nothing has changed then.
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

    /// The value of an option. A key is its 32 bytes; for text there is [`get_z85`](Self::get_z85).
    ///
    /// # Errors
    ///
    /// `EINVAL` for what is no option, cannot be read or is the socket's to answer (see the [module](self)).
    pub fn get(&self, kind: SocketType, number: i32) -> Result<Value> {
        self.value(kind, number).ok_or_else(|| refusal(kind, number, "read"))
    }

    /// A CURVE key as 40 characters; zeros if there is none.
    ///
    /// # Errors
    ///
    /// `EINVAL` for what is no key.
    pub fn get_z85(&self, kind: SocketType, number: i32) -> Result<String> {
        let is_key =
            matches!(number, option::CURVE_PUBLICKEY | option::CURVE_SECRETKEY | option::CURVE_SERVERKEY);
        match self.value(kind, number) {
            Some(Value::Bytes(key)) if is_key => z85::encode(&key),
            _ => None,
        }
        .ok_or_else(|| refusal(kind, number, "read as a key"))
    }

    /// Whether only the newest message is kept: other types of socket ignore the option.
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

/// What else changes with an option; the table names these.
impl Options {
    fn be_verbose(&mut self) {
        self.xpub_verboser = false;
    }

    fn be_verboser(&mut self) {
        self.xpub_verbose = self.xpub_verboser;
    }

    fn be_manual(&mut self) {
        self.xpub_manual = self.xpub_manual_last_value;
    }

    fn serve_plain(&mut self) {
        self.serve(Mechanism::Plain, self.plain_server);
    }

    fn serve_curve(&mut self) {
        self.serve(Mechanism::Curve, self.curve_server);
    }

    fn name_plain(&mut self) {
        self.be_plain_client(self.plain_username.is_some());
    }

    fn word_plain(&mut self) {
        self.be_plain_client(self.plain_password.is_some());
    }

    fn use_curve(&mut self) {
        self.secure(Mechanism::Curve, self.is_server());
    }

    fn know_curve_server(&mut self) {
        self.secure(Mechanism::Curve, false);
    }

    fn serve(&mut self, mechanism: Mechanism, server: bool) {
        self.secure(if server { mechanism } else { Mechanism::Null }, server);
    }

    fn be_plain_client(&mut self, given: bool) {
        // An empty value only ends the mechanism, as in libzmq: the role stays.
        if given {
            self.secure(Mechanism::Plain, false);
        } else {
            self.mechanism = Mechanism::Null;
        }
    }

    /// The last security option that is set decides the mechanism.
    fn secure(&mut self, mechanism: Mechanism, server: bool) {
        self.mechanism = mechanism;
        self.plain_server = server && mechanism == Mechanism::Plain;
        self.curve_server = server && mechanism == Mechanism::Curve;
    }
}

/// The error for a refused option.
#[cold]
fn refusal(kind: SocketType, number: i32, verb: &str) -> Error {
    let Some(Definition { name, sockets, support, value, .. }) = definition(number) else {
        return Error::invalid(format!("there is no option {number}"));
    };
    let kind_name = kind.name();
    Error::invalid(match support {
        _ if number == option::BLOCKY => format!("{name} is an option of the context: {verb} it there"),
        Support::Refused => format!("{name} is not supported"),
        Support::Kept { values, .. } if verb == "set" && sockets.contains(&kind) => {
            let size = match value {
                ValueType::Int | ValueType::Descriptor => " (an int)",
                ValueType::Int64 => " (an int64)",
                ValueType::Bytes => "",
            };
            format!("{name} cannot be set on a {kind_name} socket like this: it takes {values}{size}")
        }
        Support::Kept { .. } | Support::Answered => {
            format!("{name} cannot be {verb} on a {kind_name} socket")
        }
    })
}
