//! Where a socket listens and whom it calls: bind, connect, accept, and connecting again.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ropewalk_os::epoll::Interest;
use ropewalk_os::net::{self, Address, UnixName};
use ropewalk_zmtp::SocketType;

use super::Core;
use super::deadlines::{Due, NOBODY};
use crate::backoff::Backoff;
use crate::conn::{Link, State};
use crate::endpoint::{self, Endpoint, IpcName, Target, Transport, endpoint_of};
use crate::error::{Error, Result, errno};
use crate::inproc::{self, Arrival, Early};
use crate::mailbox::{ConnRef, Mail};
use crate::monitor::event;
use crate::options::option;
use crate::ring::Ring;

/// In a token: it is a listener's, and the rest is its place.
pub(super) const LISTENER: u64 = 1 << 63;
/// Listeners that were refused a descriptor wait so long.
const NO_DESCRIPTORS: Duration = Duration::from_millis(100);
/// So many connections are taken at once.
const MOST_AT_ONCE: usize = 64;
/// So many peers may be at their handshake; the oldest gives way.
const MOST_GREETING: usize = 4096;
/// So many of them through memory, of which each has some already.
const MOST_GREETING_SHM: usize = 256;

/// An endpoint that was bound.
pub(super) struct Bound {
    pub(super) text: String,
    listener: Option<OwnedFd>,
    /// Removes what was made for it.
    _ipc: Option<IpcName>,
    inproc: Option<String>,
    transport: Transport,
}

impl Bound {
    /// Whether those who connect to it may wait a little, since nobody else is heard by the kernel.
    pub(super) fn is_near(&self) -> bool {
        matches!(self.transport, Transport::Inproc | Transport::Shm)
    }
}

/// An endpoint that was connected to.
pub(super) struct Dial {
    pub(super) text: String,
    endpoint: Endpoint,
    /// Its connection, which lasts while the endpoint does.
    pub(super) conn: u32,
    backoff: Backoff,
    /// Addresses that are still to be tried.
    addresses: Vec<SocketAddr>,
    pub(super) routing_id: Option<Vec<u8>>,
    /// Given up, by RECONNECT_STOP or since it is never to be tried again.
    pub(super) is_over: bool,
}

impl Core {
    // --- bind ----------------------------------------------------------------------------------------------

    pub(crate) fn bind(&mut self, text: &str) -> Result<()> {
        self.check_open()?;
        let options = &self.options;
        let endpoint = Endpoint::parse(text)?;
        self.check_transport(&endpoint)?;
        let transport = endpoint.transport();
        let (listener, ipc) = match endpoint {
            Endpoint::Inproc(name) => return self.bind_inproc(text, name),
            Endpoint::Tcp(tcp) => {
                let address = tcp.bind_address(options.ipv6)?;
                (
                    self.listen(text, |core| {
                        net::listen_tcp(address, core.options.backlog, &core.options.tcp())
                    })?,
                    None,
                )
            }
            Endpoint::Ipc(ipc) | Endpoint::Shm(ipc) => {
                let name = ipc.bind_name()?;
                let fd = self.listen(text, |core| net::listen_unix(name.name(), core.options.backlog))?;
                (fd, Some(name))
            }
        };
        let text = match net::local_address(listener.as_fd())? {
            Address::Unix(_) | Address::Unnamed => ipc
                .as_ref()
                .map_or_else(String::new, |ipc| endpoint_of(transport, &Address::Unix(ipc.name().clone()))),
            address @ Address::Inet(_) => endpoint_of(transport, &address),
        };
        let place = self.place_of_bound();
        self.watch(listener.as_fd(), LISTENER | place as u64, Interest::READ)?;
        self.tell(event::LISTENING, raw(&listener), &text);
        self.last_endpoint.clone_from(&text);
        self.bounds[place] =
            Some(Bound { text, listener: Some(listener), _ipc: ipc, inproc: None, transport });
        Ok(())
    }

    fn listen(
        &mut self,
        text: &str,
        make: impl FnOnce(&Self) -> std::io::Result<OwnedFd>,
    ) -> Result<OwnedFd> {
        let listener = match self.options.use_fd {
            -1 => make(self),
            given => net::listener_of(given),
        };
        listener.map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(errno::EINVAL);
            self.tell(event::BIND_FAILED, errno, text);
            Error::new(errno, format!("{text} cannot be bound: {error}"))
        })
    }

    fn place_of_bound(&mut self) -> usize {
        self.bounds.iter().position(Option::is_none).unwrap_or_else(|| {
            self.bounds.push(None);
            self.bounds.len() - 1
        })
    }

    fn bind_inproc(&mut self, text: &str, name: String) -> Result<()> {
        let me = self.me.upgrade().ok_or_else(Error::closed)?;
        let early = self
            .context
            .names
            .lock()
            .bind(&name, &me)
            .ok_or_else(|| Error::new(errno::EADDRINUSE, format!("{text} is bound by another socket")))?;
        let place = self.place_of_bound();
        let (text_of, transport) = (text.to_owned(), Transport::Inproc);
        let bound = Bound { text: text_of, listener: None, _ipc: None, inproc: Some(name), transport };
        self.bounds[place] = Some(bound);
        text.clone_into(&mut self.last_endpoint);
        for early in early {
            self.arrived(early.arrival);
        }
        Ok(())
    }

    pub(crate) fn unbind(&mut self, text: &str) -> Result<()> {
        self.check_open()?;
        let place = self
            .bounds
            .iter()
            .position(|bound| bound.as_ref().is_some_and(|bound| bound.text == text))
            .ok_or_else(|| Error::no_endpoint(format!("{text} is not bound: take it from LAST_ENDPOINT")))?;
        self.close_bound(place);
        // The connections that came by it end, too.
        for index in self.indices() {
            if self.conn(index).is_some_and(|conn| conn.bound == Some(place as u32)) {
                self.end(index);
            }
        }
        Ok(())
    }

    pub(super) fn close_bound(&mut self, place: usize) {
        let Some(bound) = self.bounds.get_mut(place).and_then(Option::take) else { return };
        if let Some(listener) = &bound.listener {
            let fd = raw(listener);
            self.unwatch(listener.as_fd());
            self.tell(event::CLOSED, fd, &bound.text);
        }
        if let Some(name) = &bound.inproc {
            self.context.names.lock().unbind(name, &self.me);
        }
    }

    pub(super) fn close_all_bound(&mut self) {
        for place in 0..self.bounds.len() {
            self.close_bound(place);
        }
    }

    // --- accept --------------------------------------------------------------------------------------------

    pub(super) fn accept_all(&mut self, token: u64) {
        let place = (token & !LISTENER) as usize;
        for _ in 0..MOST_AT_ONCE {
            let Some(bound) = self.bounds.get(place).and_then(Option::as_ref) else { return };
            let Some(listener) = &bound.listener else { return };
            let (text, transport) = (bound.text.clone(), bound.transport);
            match net::accept(listener.as_fd()) {
                Ok(Some(fd)) => self.accepted(place, &text, transport, fd),
                Ok(None) => return,
                Err(error) => {
                    // Out of descriptors, most likely: what waits to be accepted would tell so for ever.
                    self.tell(event::ACCEPT_FAILED, error.raw_os_error().unwrap_or(0), &text);
                    if let Some(listener) =
                        self.bounds[place].as_ref().and_then(|bound| bound.listener.as_ref())
                    {
                        self.unwatch(listener.as_fd());
                    }
                    self.note_after(NO_DESCRIPTORS, NOBODY, Due::Listen);
                    return;
                }
            }
        }
    }

    pub(super) fn listen_again(&mut self) {
        let Some(me) = self.me.upgrade() else { return };
        for (place, bound) in self.bounds.iter().enumerate() {
            if let Some(listener) = bound.as_ref().and_then(|bound| bound.listener.as_ref()) {
                // Refused for those that are watched already.
                let _ = me.set.add(listener.as_fd(), LISTENER | place as u64, Interest::READ);
            }
        }
    }

    fn accepted(&mut self, place: usize, text: &str, transport: Transport, fd: OwnedFd) {
        if transport == Transport::Tcp && self.options.tcp().tune(fd.as_fd()).is_err() {
            return;
        }
        let index = self.add_conn();
        self.tell(event::ACCEPTED, raw(&fd), text);
        let address = peer_address(fd.as_fd());
        if let Some(conn) = self.conn(index) {
            conn.bound = Some(place as u32);
            conn.address = address;
            text.clone_into(&mut conn.endpoint);
        }
        if transport == Transport::Shm {
            let number = raw(&fd);
            match Ring::offer(fd) {
                Ok(ring) => {
                    self.begin(index, Link::Ring(Box::new(ring)));
                    self.limit_greeting_rings();
                }
                Err(_) => {
                    self.tell(event::CLOSED, number, text);
                    self.end(index);
                }
            }
        } else {
            self.begin(index, Link::Stream(fd));
        }
        while self.greeting.len() > MOST_GREETING {
            let Some(oldest) = self.greeting.pop_front() else { break };
            if self.known(oldest).is_some_and(|conn| matches!(conn.state, State::Greeting(_))) {
                self.lost(oldest.index);
            }
        }
    }

    fn limit_greeting_rings(&mut self) {
        let (mut count, mut oldest) = (0, None);
        for place in 0..self.greeting.len() {
            let whom = self.greeting[place];
            let is_ring = |conn: &mut crate::conn::Conn| {
                matches!((&conn.state, &conn.link), (State::Greeting(_), Link::Ring(_)))
            };
            if self.known(whom).is_some_and(is_ring) {
                count += 1;
                oldest = oldest.or(Some(whom.index));
            }
        }
        if let Some(index) = oldest.filter(|_| count > MOST_GREETING_SHM) {
            self.lost(index);
        }
    }

    // --- connect -------------------------------------------------------------------------------------------

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
            self.context.random() ^ u64::from(index),
        );
        let dial = Dial {
            text: text.to_owned(),
            endpoint: endpoint.clone(),
            conn: index,
            backoff,
            addresses: Vec::new(),
            routing_id: routing_id.clone(),
            is_over: false,
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
                    Err(error) => self.refused(index, error.errno()),
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
        let (whom, me) = (conn.me, self.me.clone());
        let started = std::thread::Builder::new().name("ropewalk-zmq-dns".to_owned()).spawn(move || {
            let found = endpoint::resolve(&host, port, ipv6);
            if let Some(socket) = me.upgrade() {
                socket.post(Mail::Resolved(whom, found), true);
            }
        });
        if started.is_err() {
            self.refused(index, errno::EMFILE);
        }
    }

    pub(super) fn resolved(&mut self, whom: ConnRef, found: Result<Vec<SocketAddr>>) {
        if self.known(whom).is_none_or(|conn| !matches!(conn.state, State::Waiting)) {
            return;
        }
        match found {
            Ok(mut addresses) => {
                addresses.reverse();
                let Some(dial) = self.dial_of(whom.index) else { return };
                dial.addresses = addresses;
                match dial.addresses.pop() {
                    Some(address) => self.call(whom.index, address),
                    None => self.refused(whom.index, errno::EHOSTUNREACH),
                }
            }
            Err(error) => self.refused(whom.index, error.errno()),
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
                let whom = conn.me;
                if self.watch(fd.as_fd(), whom.token(), Interest::WRITE).is_err() {
                    return self.refused(index, errno::EMFILE);
                }
                let wait = self.options.connect_timeout;
                if let Some(conn) = self.conn(index) {
                    conn.state = State::Connecting;
                    conn.link = Link::Stream(fd);
                }
                self.set_address(index, address.ip().to_string());
                if let Some(wait) = wait {
                    self.note_after(wait, whom, Due::Connect);
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

    /// A connection that was being made is there, or refused.
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

    /// It could not be connected.
    fn refused(&mut self, index: u32, errno: i32) {
        let stops = self.options.reconnect_stop;
        if let Some(conn) = self.conn(index) {
            conn.state = State::Waiting;
            conn.link = Link::None;
        }
        if errno == errno::ECONNREFUSED && stops & option::STOP_CONN_REFUSED != 0 {
            return self.give_up(index);
        }
        self.connect_again(index);
    }

    /// It is connected again, after a while.
    pub(super) fn connect_again(&mut self, index: u32) {
        let Some(dial) = self.dial_of(index) else { return };
        let (text, wait) = (dial.text.clone(), dial.backoff.next_wait());
        let Some(wait) = wait else { return self.give_up(index) };
        let Some(conn) = self.conn(index) else { return };
        let whom = conn.me;
        self.note_after(wait, whom, Due::Reconnect);
        self.tell(event::CONNECT_RETRIED, wait.as_millis().min(i32::MAX as u128) as i32, &text);
    }

    /// It will not be tried again.
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
            let Some(dial) = &self.dials[place] else { continue };
            if dial.text == text {
                found = true;
                let index = dial.conn;
                self.dials[place] = None;
                if let Some(conn) = self.conn(index) {
                    conn.dial = None;
                }
                // What was given to it goes out first, as far as that is possible without waiting.
                self.part(index);
            }
        }
        // An accepted peer cannot be named; a bound endpoint is unbound by the same call, as libzmq has it.
        if !found {
            return self.unbind(text).map_err(|_| Error::no_endpoint(format!("{text} is not connected")));
        }
        Ok(())
    }

    /// Bytes without frames have no way through memory: nobody but us could speak so.
    fn check_transport(&self, endpoint: &Endpoint) -> Result<()> {
        if endpoint.transport() == Transport::Shm && self.is_raw() {
            return Err(Error::new(
                errno::ENOCOMPATPROTO,
                "a socket of raw bytes has no shm endpoints: use tcp",
            ));
        }
        Ok(())
    }

    // --- inside the process --------------------------------------------------------------------------------

    fn connect_inproc(&mut self, index: u32, name: &str) {
        let (sndhwm, rcvhwm) = (self.options.sndhwm, self.options.rcvhwm);
        let is_named = self.dial_of(index).is_some_and(|dial| dial.routing_id.is_some());
        let Some(conn) = self.conn(index) else { return };
        let whom = conn.me;
        let context = std::sync::Arc::clone(&self.context);
        let mut names = context.names.lock();
        let found = names.find(name);
        let limits = found.as_ref().map_or((sndhwm, rcvhwm), |other| {
            let theirs = other.limits();
            (inproc::joint_limit(sndhwm, theirs.1), inproc::joint_limit(theirs.0, rcvhwm))
        });
        let (mine, theirs) = inproc::pair(limits.0, limits.1);
        mine.settle(&self.me, whom, self.is_eager());
        let arrival = Arrival {
            end: theirs,
            kind: self.kind,
            identity: self.options.routing_id.clone(),
            from: self.me.clone(),
            whom,
        };
        let peer = found.as_ref().map(|other| (other.kind, other.identity()));
        match found {
            Some(other) => {
                drop(names);
                if arrival.kind.accepts(other.kind) {
                    // Who has arrived may be owed a first message, by a program that does not call.
                    other.post(Mail::Arrived(Box::new(arrival)), true);
                }
            }
            None => names.wait(name, Early { arrival, from: self.me.clone() }),
        }
        if let Some(conn) = self.conn(index) {
            conn.link = Link::Inproc(mine);
            conn.state = State::Ready;
            if let Some((kind, identity)) = peer {
                conn.peer = kind;
                if !is_named {
                    conn.identity = identity;
                }
            }
        }
        self.ready(index);
    }

    /// Somebody in the process has connected.
    pub(super) fn arrived(&mut self, arrival: Arrival) {
        let Arrival { end, kind, identity, from, whom } = arrival;
        if !kind.accepts(self.kind) || self.is_closing {
            return;
        }
        let index = self.add_conn();
        let (me, is_urgent) = (self.me.clone(), self.is_eager());
        let own = self.options.routing_id.clone();
        let Some(conn) = self.conn(index) else { return };
        end.settle(&me, conn.me, is_urgent);
        conn.link = Link::Inproc(end);
        conn.state = State::Ready;
        conn.peer = kind;
        conn.identity = identity;
        if let Some(other) = from.upgrade() {
            other.post(Mail::Met(whom, own), false);
        }
        self.adopt(index, None);
        self.ready(index);
        self.lane_changed(index);
    }

    /// The one that was connected to, early, is bound now.
    pub(super) fn met(&mut self, whom: ConnRef, identity: Vec<u8>) {
        let is_free = self.kind == SocketType::Router
            && !identity.is_empty()
            && !self.pattern.ids.contains_key(&identity)
            && self.dial_of(whom.index).is_none_or(|dial| dial.routing_id.is_none());
        if is_free && self.known(whom).is_some() {
            self.rename(whom.index, identity);
        }
    }

    // --- the set -------------------------------------------------------------------------------------------

    pub(super) fn watch(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<()> {
        let me = self.me.upgrade().ok_or_else(Error::closed)?;
        Ok(me.set.add(fd, token, interest)?)
    }

    pub(super) fn unwatch(&self, fd: BorrowedFd<'_>) {
        if let Some(me) = self.me.upgrade() {
            let _ = me.set.remove(fd);
        }
    }
}

fn raw(fd: &OwnedFd) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(fd)
}

/// The other end, as a frame's `Peer-Address` tells it: the host's address for tcp, the process for ipc.
fn peer_address(fd: BorrowedFd<'_>) -> String {
    match net::peer_address(fd) {
        Ok(Address::Inet(address)) => address.ip().to_string(),
        Ok(Address::Unix(UnixName::Path(path))) => path.display().to_string(),
        _ => net::peer_credentials(fd)
            .map_or_else(|_| String::new(), |peer| format!("{}:{}:{}", peer.user, peer.group, peer.process)),
    }
}
