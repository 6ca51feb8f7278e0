//! The beginning of a connection: the handshake, and the authenticator that judges the peer.

use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Instant;

use ropewalk_os::epoll::Interest;
use ropewalk_os::net;
use ropewalk_zmtp::{
    Config, ErrorKind, Handshake, HandshakeError, Mechanism, Peer, Session, SocketType, Status, ZapConfig,
};

use super::SocketState;
use super::due::Due;
use crate::conn::{Greeting, Link, Phase};
use crate::conn_ref::ConnRef;
use crate::error::errno;
use crate::frame::Frame;
use crate::lane::{self, Arrival, End};
use crate::mail::Mail;
use crate::monitor::event;
use crate::options;
use crate::shm_link::ShmLink;

/// The authenticator's endpoint (RFC 27).
const HANDLER: &str = "zeromq.zap.01";
/// The most bytes that a handshake reads at once.
const READ: usize = 4096;

impl SocketState {
    /// A connection is up: its handshake begins, if it has one.
    pub(super) fn begin(&mut self, index: u32, link: Link) {
        let Some(conn) = self.conn(index) else { return };
        conn.link = link;
        let conn_ref = conn.me;
        let (address, endpoint) = (conn.address.clone(), conn.endpoint.clone());
        let fd = self.conns.get(index as usize).and_then(|conn| conn.as_deref()?.fd());
        if fd.is_none_or(|fd| self.me.set.add(fd, conn_ref.token(), Interest::READ).is_err()) {
            self.tell(event::CLOSED, errno::EMFILE, &endpoint);
            return self.lost(index);
        }
        if self.is_raw() {
            let Some(conn) = self.conn(index) else { return };
            conn.phase = Phase::Ready;
            conn.incoming.is_raw = true;
            conn.peer = SocketType::Stream;
            self.calm_backoff(index);
            return self.ready(index);
        }
        let handshake = Handshake::new(self.config(&address));
        let until = self.options.handshake_ivl.and_then(|wait| Instant::now().checked_add(wait));
        let Some(conn) = self.conn(index) else { return };
        let mut greeting =
            Box::new(Greeting { handshake, read: Vec::new(), zap: None, was_asked: false, until });
        conn.session = Session::Clear;
        conn.urgent.clear();
        conn.urgent_at = 0;
        greeting.handshake.start(&mut conn.urgent);
        conn.phase = Phase::Greeting(greeting);
        self.greeting.push_back(conn_ref);
        if let Some(until) = until {
            self.note(until, conn_ref, Due::Handshake);
        }
        self.heat(index);
        self.flush(index);
    }

    /// The accepting peer is to give us the memory; false if it has not yet, or never will.
    fn take_offer(&mut self, index: u32) -> bool {
        let Some(conn) = self.conn(index) else { return false };
        let Link::Offered(fd) = &conn.link else { return true };
        match ShmLink::take_offer(fd.as_fd()) {
            Ok(Some(end)) => {
                if let Link::Offered(fd) = std::mem::replace(&mut conn.link, Link::None) {
                    conn.link = Link::Shm(Box::new(ShmLink::new(fd, end)));
                }
                self.heat(index);
                self.flush(index);
                true
            }
            Ok(None) => false,
            Err(_) => {
                self.greeting_failed(index, None);
                false
            }
        }
    }

    fn config(&self, address: &str) -> Config {
        let options = &self.options;
        let server = options.is_server();
        let mechanism = match options.mechanism {
            options::Mechanism::Null => Mechanism::Null,
            options::Mechanism::Plain if server => Mechanism::PlainServer,
            options::Mechanism::Plain => Mechanism::PlainClient {
                username: options.plain_username.clone().unwrap_or_default(),
                password: options.plain_password.clone().unwrap_or_default(),
            },
            options::Mechanism::Curve => {
                let secret = options.curve_secretkey.unwrap_or_default();
                let public = options.curve_publickey.unwrap_or_else(|| ropewalk_zmtp::curve_public(&secret));
                if server {
                    Mechanism::CurveServer { public, secret }
                } else {
                    Mechanism::CurveClient {
                        server: options.curve_serverkey.unwrap_or_default(),
                        public,
                        secret,
                    }
                }
            }
        };
        let is_asked = match &mechanism {
            Mechanism::Null => {
                !options.zap_domain.is_empty() && (self.has_handler() || options.zap_enforce_domain)
            }
            Mechanism::PlainServer => true,
            Mechanism::CurveServer { .. } => self.has_handler() || options.zap_enforce_domain,
            Mechanism::PlainClient { .. } | Mechanism::CurveClient { .. } => false,
        };
        let zap = is_asked.then(|| ZapConfig {
            domain: options.zap_domain.clone(),
            address: address.as_bytes().to_vec(),
            request_id: b"1".to_vec(),
            identity: options.routing_id.clone(),
        });
        Config {
            socket_type: self.kind,
            mechanism,
            identity: options.routing_id.clone(),
            metadata: options.metadata.clone(),
            zap,
        }
    }

    fn has_handler(&self) -> bool {
        self.registry.names.lock().find(HANDLER).is_some()
    }

    /// The peer has written something, or can take something.
    pub(super) fn greet(&mut self, index: u32, is_readable: bool, is_writable: bool) {
        if is_writable {
            self.flush(index);
        }
        if !is_readable || !self.take_offer(index) {
            return;
        }
        let mut buffer = [0; READ];
        loop {
            let Some(conn) = self.conn(index) else { return };
            let Phase::Greeting(greeting) = &mut conn.phase else { return };
            if greeting.zap.is_some() {
                // Nothing more is read before the authenticator has answered.
                let is_at_end = match &conn.link {
                    Link::Shm(link) => link.is_over(),
                    Link::Stream(fd) => net::is_at_end(fd.as_fd()),
                    Link::None | Link::Offered(_) | Link::Inproc(_) => false,
                };
                if is_at_end {
                    return self.lost(index);
                }
                return self.pause(index);
            }
            let Some(mut wire) = conn.link.wire() else { return };
            let got = match wire.recv(&mut &mut buffer[..], READ) {
                Ok(0) => return self.greeting_failed(index, None),
                Ok(got) => got,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => return self.greeting_failed(index, None),
            };
            greeting.read.extend_from_slice(&buffer[..got]);
            self.advance(index);
            if got < READ {
                return;
            }
            if self.conn(index).is_none_or(|conn| !matches!(conn.phase, Phase::Greeting(_))) {
                return;
            }
        }
    }

    /// Goes on with what was read.
    fn advance(&mut self, index: u32) {
        let Some(conn) = self.conn(index) else { return };
        let Phase::Greeting(greeting) = &mut conn.phase else { return };
        let read = std::mem::take(&mut greeting.read);
        let input = greeting.handshake.input(&read, &mut conn.urgent);
        match input {
            Ok(consumed) => greeting.read = read[consumed..].to_vec(),
            Err(error) => return self.greeting_failed(index, Some(&error)),
        }
        let status = greeting.handshake.status();
        let was_asked = greeting.was_asked;
        self.flush(index);
        if self.conn(index).is_none_or(|conn| !matches!(conn.phase, Phase::Greeting(_))) {
            return; // The peer has ended in the middle of its handshake.
        }
        match status {
            Status::Going => {}
            Status::WantsZap if !was_asked => self.ask_handler(index),
            Status::WantsZap => {}
            Status::Done => self.greeted(index),
        }
    }

    // --- the authenticator ---------------------------------------------------------------------------------

    fn ask_handler(&mut self, index: u32) {
        let handler = self.registry.names.lock().find(HANDLER);
        let (me, from) = (Arc::clone(&self.me), Arc::downgrade(&self.me) as Weak<_>);
        let Some(conn) = self.conn(index) else { return };
        let conn_ref = conn.me;
        let Phase::Greeting(greeting) = &mut conn.phase else { return };
        greeting.was_asked = true;
        let request = greeting.handshake.zap_request();
        let (Some(handler), Some(request)) = (handler, request) else {
            return self.greeting_failed(index, None);
        };
        let (mine, theirs) = lane::pair(0, 0);
        mine.settle(&me, conn_ref, true);
        let count = request.len();
        mine.send(
            request.into_iter().enumerate().map(|(place, part)| {
                let mut frame = Frame::copy_of(&part);
                frame.set_more(place + 1 < count);
                frame
            }),
            false,
        );
        greeting.zap = Some(mine);
        let arrival = Arrival {
            end: theirs,
            kind: SocketType::Dealer,
            identity: Vec::new(),
            marks: None,
            from,
            conn_ref,
        };
        handler.post(Mail::Arrived(Box::new(arrival)), handler.is_watched());
    }

    /// The authenticator has answered, or is gone.
    pub(super) fn handler_spoke(&mut self, index: u32) {
        let Some(conn) = self.conn(index) else { return };
        let Phase::Greeting(greeting) = &mut conn.phase else { return };
        let Some(end) = greeting.zap.as_mut() else { return };
        let Some(reply) = reply(end) else {
            if end.is_over() {
                self.greeting_failed(index, None);
            }
            return;
        };
        greeting.zap = None;
        let answered = greeting.handshake.answer_zap(&reply, &mut conn.urgent);
        match answered {
            Ok(()) => {
                self.flush(index);
                self.resume(index);
                self.advance(index);
            }
            Err(error) => self.greeting_failed(index, Some(&error)),
        }
    }

    // --- its end -------------------------------------------------------------------------------------------

    fn greeting_failed(&mut self, index: u32, error: Option<&HandshakeError>) {
        let Some(conn) = self.conn(index) else { return };
        let address = conn.endpoint.clone();
        // The handshake's last words to the peer go out, if the kernel takes them.
        if let Some(mut wire) = conn.link.wire()
            && conn.urgent_at < conn.urgent.len()
        {
            let _ = wire.send(&conn.urgent[conn.urgent_at..]);
            wire.finish();
        }
        match error.map(HandshakeError::kind) {
            Some(ErrorKind::Protocol(code)) => self.tell(event::HANDSHAKE_FAILED_PROTOCOL, code, &address),
            Some(ErrorKind::Auth(status)) => {
                self.tell(event::HANDSHAKE_FAILED_AUTH, i32::from(status), &address)
            }
            Some(ErrorKind::NoDetail) => {
                self.tell(event::HANDSHAKE_FAILED_NO_DETAIL, errno::EPROTO, &address)
            }
            None => self.tell(event::HANDSHAKE_FAILED_NO_DETAIL, errno::EPIPE, &address),
        }
        if error.is_some() && self.options.reconnect_stop & options::option::STOP_HANDSHAKE_FAILED != 0 {
            return self.give_up(index);
        }
        self.lost(index);
    }

    /// A handshake is over, or given up: removes its record.
    pub(super) fn forget_greeting(&mut self, conn_ref: ConnRef, until: Option<Instant>) {
        self.greeting.retain(|other| *other != conn_ref);
        if let Some(until) = until {
            self.due.remove(&(until, conn_ref, Due::Handshake));
        }
    }

    fn greeted(&mut self, index: u32) {
        let is_named = self.dial_of(index).is_some_and(|dial| dial.routing_id.is_some());
        let Some(conn) = self.conn(index) else { return };
        let conn_ref = conn.me;
        let Phase::Greeting(greeting) = std::mem::replace(&mut conn.phase, Phase::Ready) else { return };
        let Greeting { handshake, read, until, .. } = *greeting;
        let Peer { session, minor, socket_type, identity, properties, user_id: _ } = handshake.finish();
        // The peer cannot choose its own address.
        let mut known = vec![("Peer-Address".to_owned(), conn.address.clone())];
        known.extend(
            properties
                .into_iter()
                .filter(|(name, _)| !name.eq_ignore_ascii_case("Peer-Address"))
                .map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned())),
        );
        if !known.iter().any(|(name, _)| name == "Socket-Type") {
            known.push(("Socket-Type".to_owned(), socket_type.name().to_owned()));
        }
        conn.properties = Some(Arc::new(known));
        conn.session = session;
        conn.minor = minor;
        conn.peer = socket_type;
        if !is_named {
            conn.identity = identity;
        }
        let is_encrypted = conn.is_encrypted();
        let address = conn.endpoint.clone();
        if !read.is_empty() {
            conn.incoming.feed(&read, is_encrypted);
        }
        self.forget_greeting(conn_ref, until);
        self.calm_backoff(index);
        self.tell(event::HANDSHAKE_SUCCEEDED, 0, &address);
        self.ready(index);
        if self.known(conn_ref).is_some_and(|conn| conn.is_ready()) {
            self.count(index);
            // The kernel may have more behind what came with the handshake.
            self.read_if_eager(index);
        }
    }
}

/// A whole reply, if there is one.
fn reply(end: &mut End) -> Option<Vec<Vec<u8>>> {
    end.first()?;
    let mut parts = Vec::new();
    loop {
        let frame = end.take()?;
        parts.push(frame.bytes().to_vec());
        if !frame.more() {
            return Some(parts);
        }
    }
}
