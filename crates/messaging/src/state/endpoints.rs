//! The endpoints of a socket: what it has bound, and what it connects to.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::backoff::Backoff;
use crate::endpoint::{Endpoint, IpcName, Transport};

/// The bit of a listener's token; the rest is its index.
pub(super) const LISTENER: u64 = 1 << 63;
/// An endpoint that was bound.
pub(super) struct Bound {
    pub(super) text: String,
    pub(super) listener: Option<OwnedFd>,
    /// Removes what was made for it.
    pub(super) _ipc: Option<IpcName>,
    pub(super) inproc: Option<String>,
    pub(super) transport: Transport,
}

impl Bound {
    /// Whether its connections carry messages without the kernel. The kernel is then polled rarely, and accepting a
    /// connection may wait a little.
    pub(super) fn is_near(&self) -> bool {
        matches!(self.transport, Transport::Inproc | Transport::Shm)
    }
}

/// An endpoint that was connected to.
pub(super) struct Dial {
    pub(super) text: String,
    pub(super) endpoint: Endpoint,
    /// Its connection, which lasts while the endpoint does.
    pub(super) conn: u32,
    pub(super) backoff: Backoff,
    /// Addresses that are still to be tried.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) routing_id: Option<Vec<u8>>,
    /// Given up, by RECONNECT_STOP or because no retry is configured.
    pub(super) is_over: bool,
    /// The program has disconnected: it lasts until its queued messages are sent, and is found by its name no more.
    pub(super) is_left: bool,
}

/// The number of a descriptor, for a monitor.
pub(super) fn raw(fd: &OwnedFd) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(fd)
}
