//! Listening: bind, unbind and accept.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ropewalk_os::epoll::Interest;
use ropewalk_os::net::{self, Address, UnixName};

use super::SocketState;
use super::due::{Due, SOCKET};
use super::endpoints::{Bound, LISTENER, raw};
use crate::conn::{Link, Phase};
use crate::endpoint::{Endpoint, Transport, endpoint_of};
use crate::error::{Error, Result, errno};
use crate::monitor::event;
use crate::shm_link::ShmLink;

/// Listeners that were refused a descriptor wait this long.
const NO_DESCRIPTORS: Duration = Duration::from_millis(100);
/// The most connections that are accepted at once.
const MOST_AT_ONCE: usize = 64;
/// The most peers that may be in their handshake; the oldest gives way.
const MOST_GREETING: usize = 4096;
/// The most of them through shared memory, of which each holds some already.
const MOST_GREETING_SHM: usize = 256;

impl SocketState {
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
                    self.listen(text, |state| {
                        net::listen_tcp(address, state.options.backlog, &state.options.tcp())
                    })?,
                    None,
                )
            }
            Endpoint::Ipc(ipc) | Endpoint::Shm(ipc) => {
                let name = ipc.bind_name(options.use_fd != -1)?;
                let fd = self.listen(text, |state| net::listen_unix(name.name(), state.options.backlog))?;
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
            self.tell(event::CLOSED, -1, text);
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
        let early = self
            .registry
            .names
            .lock()
            .bind(&name, &self.me)
            .ok_or_else(|| Error::new(errno::EADDRINUSE, format!("{text} is bound by another socket")))?;
        let place = self.place_of_bound();
        let (text_of, transport) = (text.to_owned(), Transport::Inproc);
        let bound = Bound { text: text_of, listener: None, _ipc: None, inproc: Some(name), transport };
        self.bounds[place] = Some(bound);
        text.clone_into(&mut self.last_endpoint);
        for arrival in early {
            self.arrived(arrival);
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
            self.registry.names.lock().unbind(name, &self.me);
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
                    // Out of descriptors, most likely: the waiting connection would report readiness for ever.
                    self.tell(event::ACCEPT_FAILED, error.raw_os_error().unwrap_or(0), &text);
                    if let Some(listener) =
                        self.bounds[place].as_ref().and_then(|bound| bound.listener.as_ref())
                    {
                        self.unwatch(listener.as_fd());
                    }
                    self.note_after(NO_DESCRIPTORS, SOCKET, Due::Listen);
                    return;
                }
            }
        }
    }

    pub(super) fn listen_again(&mut self) {
        for (place, bound) in self.bounds.iter().enumerate() {
            if let Some(listener) = bound.as_ref().and_then(|bound| bound.listener.as_ref()) {
                // Refused for those that are watched already.
                let _ = self.me.set.add(listener.as_fd(), LISTENER | place as u64, Interest::READ);
            }
        }
    }

    fn accepted(&mut self, place: usize, text: &str, transport: Transport, fd: OwnedFd) {
        let most = self.options.max_connections;
        if most != 0 && self.accepted >= most {
            return self.tell(event::ACCEPT_FAILED, errno::EMFILE, text);
        }
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
            self.accepted += 1;
        }
        if transport == Transport::Shm {
            let number = raw(&fd);
            match ShmLink::offer(fd) {
                Ok(link) => {
                    self.begin(index, Link::Shm(Box::new(link)));
                    self.limit_greeting_shm();
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
            if self.known(oldest).is_some_and(|conn| matches!(conn.phase, Phase::Greeting(_))) {
                self.lost(oldest.index);
            }
        }
    }

    fn limit_greeting_shm(&mut self) {
        let (mut count, mut oldest) = (0, None);
        for place in 0..self.greeting.len() {
            let conn_ref = self.greeting[place];
            let is_shm = |conn: &mut crate::conn::Conn| {
                matches!((&conn.phase, &conn.link), (Phase::Greeting(_), Link::Shm(_)))
            };
            if self.known(conn_ref).is_some_and(is_shm) {
                count += 1;
                oldest = oldest.or(Some(conn_ref.index));
            }
        }
        if let Some(index) = oldest.filter(|_| count > MOST_GREETING_SHM) {
            self.lost(index);
        }
    }

    pub(super) fn watch(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<()> {
        Ok(self.me.set.add(fd, token, interest)?)
    }

    pub(super) fn unwatch(&self, fd: BorrowedFd<'_>) {
        let _ = self.me.set.remove(fd);
    }
}

/// The other end, for a frame's `Peer-Address`: the host's address for tcp, the process for ipc.
fn peer_address(fd: BorrowedFd<'_>) -> String {
    match net::peer_address(fd) {
        Ok(Address::Inet(address)) => address.ip().to_string(),
        Ok(Address::Unix(UnixName::Path(path))) => path.display().to_string(),
        _ => net::peer_credentials(fd)
            .map_or_else(|_| String::new(), |peer| format!("{}:{}:{}", peer.user, peer.group, peer.process)),
    }
}
