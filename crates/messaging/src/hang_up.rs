//! The end of a peer's connection, by the will of the ROUTER's owner.

use crate::error::Result;
use crate::socket::Socket;

impl Socket {
    /// ROUTER: ends the connection of the peer that has this routing id. What the peer has sent can still be received,
    /// and ROUTER_NOTIFY reports the end behind it; what waits to be sent to the peer is dropped.
    ///
    /// # Errors
    ///
    /// EHOSTUNREACH if there is no such peer, ENOTSUP for other types; ETERM, ENOTSOCK.
    pub fn hang_up(&self, routing_id: &[u8]) -> Result<()> {
        self.enter()?.hang_up_on(routing_id)
    }
}
