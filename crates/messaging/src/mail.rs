//! Mail: notifications from other sockets and threads to a socket.

use std::net::SocketAddr;

use crate::conn_ref::ConnRef;
use crate::error::Result;
use crate::lane::{Arrival, Change};

/// One piece of mail.
pub(crate) enum Mail {
    /// A lane of this connection has changed.
    Lane(ConnRef, Change),
    /// A socket of the process has connected.
    Arrived(Box<Arrival>),
    /// The socket to which this one connected early is bound now: its identity.
    Met(ConnRef, Vec<u8>),
    /// A name was looked up.
    Resolved(ConnRef, Result<Vec<SocketAddr>>),
    /// The context ends.
    Terminated,
}
