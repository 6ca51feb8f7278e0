//! Outgoing connections: connect, disconnect, and reconnect.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use ropewalk_os::epoll::Interest;
use ropewalk_os::net;
use ropewalk_zmtp::SocketType::{Dealer, Pub, Req, Sub};

use super::SocketState;
use super::due::Due;
use super::endpoints::{Dial, raw};
use crate::backoff::Backoff;
use crate::conn::{Link, Phase};
use crate::conn_ref::ConnRef;
use crate::endpoint::{self, Endpoint, Target, Transport};
use crate::error::{Error, Result, errno};
use crate::mail::Mail;
use crate::monitor::event;
use crate::options::option;

impl SocketState {
    pub(crate) fn connect(&mut self, text: &str) -> Result<u32> {
        self.check_open()?;
        let endpoint = Endpoint::parse(text)?;
        self.check_transport(&endpoint)?;
        match &endpoint {
            Endpoint::Tcp(tcp) => {
                tcp.connect_target(self.options.ipv6)?;
                tcp.source_address(self.options.ipv6)?;
            }
            Endpoint::Ipc(ipc) | Endpoint::Shm(ipc) => drop(ipc.connect_name()?),
            Endpoint::Inproc(_) => {}
        }
        // Twice the same peer would double what a subscriber receives, and send a dealer's answers to either half of
        // it. libzmq ignores the second call for these types.
        if matches!(self.kind, Dealer | Sub | Pub | Req)
            && endpoint.transport() != Transport::Inproc
            && let Some(dial) = self.dials.iter().flatten().find(|dial| dial.text == text && !dial.is_left)
        {
            return Ok(dial.conn);
        }
        let routing_id = self.options.connect_routing_id.take();
        if let Some(id) = &routing_id
            && self.pattern.ids.contains_key(id)
        {
            return Err(Error::invalid("another connection has this CONNECT_ROUTING_ID already"));
        }
        let index = self.add_conn();
        let place = self.dials.iter().position(Option::is_none).unwrap_or_else(|| {
            self.dials.push(None);
            self.dials.len() - 1
        });
        let backoff = Backoff::new(
            self.options.reconnect_ivl,
            self.options.reconnect_ivl_max,
            self.registry.random() ^ u64::from(index),
        );
        let dial = Dial {
            text: text.to_owned(),
            endpoint: endpoint.clone(),
            conn: index,
            backoff,
            addresses: Vec::new(),
            routing_id: routing_id.clone(),
            is_over: false,
            is_left: false,
        };
        self.dials[place] = Some(dial);
        text.clone_into(&mut self.last_endpoint);
        if let Some(conn) = self.conn(index) {
            conn.dial = Some(place as u32);
            text.clone_into(&mut conn.address);
            text.clone_into(&mut conn.endpoint);
        }
        self.adopt(index, routing_id);
        match endpoint {
            Endpoint::Inproc(name) => self.connect_inproc(index, &name),
            _ => self.dial(index),
        }
        Ok(index)
    }

    /// Begins to connect.
    pub(super) fn dial(&mut self, index: u32) {
        let ipv6 = self.options.ipv6;
        let Some(dial) = self.dial_of(index) else { return };
        let text = dial.text.clone();
        let transport = dial.endpoint.transport();
        match dial.endpoint.clone() {
            Endpoint::Ipc(ipc) | Endpoint::Shm(ipc) => {
                let made = ipc.connect_name().and_then(|name| Ok(net::connect_unix(&name)?));
                match made {
                    Ok(fd) => {
                        self.tell(event::CONNECTED, raw(&fd), &text);
                        let is_shm = transport == Transport::Shm;
                        self.begin(index, if is_shm { Link::Offered(fd) } else { Link::Stream(fd) });
                    }
                    Err(error) => {
                        self.tell(event::CLOSED, -1, &text);
                        self.refused(index, error.errno());
                    }
                }
            }
            Endpoint::Tcp(tcp) => {
                if let Some(address) = dial.addresses.pop() {
                    return self.call(index, address);
                }
                match tcp.connect_target(ipv6) {
                    Ok(Target::Address(address)) => self.call(index, address),
                    Ok(Target::Name { host, port }) => self.look_up(index, host, port),
                    Err(error) => self.refused(index, error.errno()),
                }
            }
            Endpoint::Inproc(_) => {}
        }
    }

    /// Looking a name up blocks, so a thread does it.
    fn look_up(&mut self, index: u32, host: String, port: u16) {
        let ipv6 = self.options.ipv6;
        let Some(conn) = self.conn(index) else { return };
        let (conn_ref, me) = (conn.me, Arc::downgrade(&self.me));
        let started = std::thread::Builder::new().name("ropewalk-zmq-dns".to_owned()).spawn(move || {
            let found = endpoint::resolve(&host, port, ipv6);
            if let Some(socket) = me.upgrade() {
                socket.post(Mail::Resolved(conn_ref, found), true);
            }
        });
        if started.is_err() {
            self.refused(index, errno::EMFILE);
        }
    }

    pub(super) fn resolved(&mut self, conn_ref: ConnRef, found: Result<Vec<SocketAddr>>) {
        if self.known(conn_ref).is_none_or(|conn| !matches!(conn.phase, Phase::Waiting)) {
            return;
        }
        match found {
            Ok(mut addresses) => {
                addresses.reverse();
                let Some(dial) = self.dial_of(conn_ref.index) else { return };
                dial.addresses = addresses;
                match dial.addresses.pop() {
                    Some(address) => self.call(conn_ref.index, address),
                    None => self.refused(conn_ref.index, errno::EHOSTUNREACH),
                }
            }
            Err(error) => self.refused(conn_ref.index, error.errno()),
        }
    }

    fn call(&mut self, index: u32, address: SocketAddr) {
        let Some(dial) = self.dial_of(index) else { return };
        let Endpoint::Tcp(tcp) = dial.endpoint.clone() else { return };
        let text = dial.text.clone();
        let source = tcp.source_address(self.options.ipv6).unwrap_or_default();
        match net::connect_tcp(address, source, &self.options.tcp()) {
            Ok((fd, is_connected)) => {
                if is_connected {
                    self.tell(event::CONNECTED, raw(&fd), &text);
                    self.set_address(index, address.ip().to_string());
                    return self.begin(index, Link::Stream(fd));
                }
                self.tell(event::CONNECT_DELAYED, errno::EINPROGRESS, &text);
                let Some(conn) = self.conn(index) else { return };
                let conn_ref = conn.me;
                if self.watch(fd.as_fd(), conn_ref.token(), Interest::WRITE).is_err() {
                    return self.refused(index, errno::EMFILE);
                }
                let wait = self.options.connect_timeout;
                if let Some(conn) = self.conn(index) {
                    conn.phase = Phase::Connecting;
                    conn.link = Link::Stream(fd);
                }
                self.set_address(index, address.ip().to_string());
                if let Some(wait) = wait {
                    self.note_after(wait, conn_ref, Due::Connect);
                }
            }
            Err(error) => self.refused(index, error.raw_os_error().unwrap_or(errno::EINVAL)),
        }
    }

    fn set_address(&mut self, index: u32, address: String) {
        if let Some(conn) = self.conn(index) {
            conn.address = address;
        }
    }

    /// A connection attempt has succeeded, or was refused.
    pub(super) fn connected(&mut self, index: u32) {
        let Some(conn) = self.conn(index) else { return };
        let Link::Stream(fd) = std::mem::replace(&mut conn.link, Link::None) else { return };
        self.unwatch(fd.as_fd());
        match net::take_error(fd.as_fd()) {
            Ok(()) => {
                let text = self.dial_of(index).map_or_else(String::new, |dial| dial.text.clone());
                self.tell(event::CONNECTED, raw(&fd), &text);
                self.begin(index, Link::Stream(fd));
            }
            Err(error) => {
                let text = self.dial_of(index).map_or_else(String::new, |dial| dial.text.clone());
                self.tell(event::CLOSED, raw(&fd), &text);
                drop(fd);
                if let Some(address) = self.dial_of(index).and_then(|dial| dial.addresses.pop()) {
                    return self.call(index, address);
                }
                self.refused(index, error.raw_os_error().unwrap_or(errno::ECONNREFUSED));
            }
        }
    }

    /// The attempt has failed.
    fn refused(&mut self, index: u32, errno: i32) {
        let stops = self.options.reconnect_stop;
        if let Some(conn) = self.conn(index) {
            conn.phase = Phase::Waiting;
            conn.link = Link::None;
        }
        if errno == errno::ECONNREFUSED && stops & option::STOP_CONN_REFUSED != 0 {
            return self.give_up(index);
        }
        self.connect_again(index);
    }

    /// Schedules a reconnection.
    pub(super) fn connect_again(&mut self, index: u32) {
        if self.conn(index).is_some_and(|conn| conn.is_parting && conn.outgoing.is_empty()) {
            return self.end(index);
        }
        let Some(dial) = self.dial_of(index) else { return };
        let (text, wait) = (dial.text.clone(), dial.backoff.next_wait());
        let Some(wait) = wait else { return self.give_up(index) };
        let Some(conn) = self.conn(index) else { return };
        let conn_ref = conn.me;
        self.note_after(wait, conn_ref, Due::Reconnect);
        self.tell(event::CONNECT_RETRIED, wait.as_millis().min(i32::MAX as u128) as i32, &text);
    }

    /// Ends the attempts.
    pub(super) fn give_up(&mut self, index: u32) {
        if let Some(dial) = self.dial_of(index) {
            dial.is_over = true;
        }
        self.end(index);
    }

    pub(super) fn dial_of(&mut self, index: u32) -> Option<&mut Dial> {
        let place = self.conn(index)?.dial?;
        self.dials.get_mut(place as usize)?.as_mut()
    }

    /// A handshake has succeeded: the next failure waits as briefly as the first.
    pub(super) fn calm_backoff(&mut self, index: u32) {
        if let Some(dial) = self.dial_of(index) {
            dial.backoff.reset();
            dial.addresses.clear();
        }
    }

    pub(crate) fn disconnect(&mut self, text: &str) -> Result<()> {
        self.check_open()?;
        let mut found = false;
        for place in 0..self.dials.len() {
            let Some(dial) = &mut self.dials[place] else { continue };
            if dial.text == text && !dial.is_left {
                found = true;
                dial.is_left = true;
                // What is up is not made again, if that was configured.
                dial.is_over = self.options.reconnect_stop & option::STOP_AFTER_DISCONNECT != 0;
                let index = dial.conn;
                self.part(index);
            }
        }
        // An accepted peer cannot be named; the same call unbinds a bound endpoint, as in libzmq.
        if !found {
            return self.unbind(text).map_err(|_| Error::no_endpoint(format!("{text} is not connected")));
        }
        Ok(())
    }

    /// Raw bytes have no transport through shared memory, because only Ropewalk peers speak it.
    pub(super) fn check_transport(&self, endpoint: &Endpoint) -> Result<()> {
        if endpoint.transport() == Transport::Shm && self.is_raw() {
            return Err(Error::new(
                errno::ENOCOMPATPROTO,
                "a socket of raw bytes has no shm endpoints: use tcp",
            ));
        }
        Ok(())
    }
}
