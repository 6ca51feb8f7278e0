//! The name of a connection among those of its socket.

/// A connection of a socket, as it was when this was made: its index may belong to another connection since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnRef {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ConnRef {
    /// As the token of a descriptor. A generation has 31 bits: the highest bit marks listeners.
    pub(crate) fn token(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_token(token: u64) -> Self {
        // Each cast keeps exactly the half that it should.
        Self { index: token as u32, generation: (token >> 32) as u32 }
    }
}
