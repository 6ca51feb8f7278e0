//! The kinds of deadlines.

use crate::conn_ref::ConnRef;

/// What is due for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// It is connected again.
    Reconnect,
    /// It is given up, if it is not connected.
    Connect,
    /// It is given up, if its handshake is not over.
    Handshake,
    /// Its heartbeat is checked.
    Beat,
    /// Listeners that had no descriptors left try again.
    Listen,
    /// The socket, which is closed, or a connection that was disconnected, gives up what it has not sent.
    Linger,
}

/// Stands for the socket itself.
pub(super) const SOCKET: ConnRef = ConnRef { index: u32::MAX, generation: 0 };
