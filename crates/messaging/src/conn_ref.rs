//! The name of a connection among those of its socket.

/// A connection of a socket, as it was when this was made: its place may have been given to another since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnRef {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ConnRef {
    /// As the token of a descriptor. A generation has 31 bits: the highest one tells listeners.
    pub(crate) fn token(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_token(token: u64) -> Self {
        // Both casts take the half that they are meant to take.
        Self { index: token as u32, generation: (token >> 32) as u32 }
    }
}
