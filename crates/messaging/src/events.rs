//! The events that can be waited for, and the results of a wait.

use std::ops::{BitAnd, BitOr};

/// A set of conditions; the numbers are those of ZMQ_POLLIN and its siblings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(i16);

impl Events {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// A message can be received; a descriptor can be read.
    pub const READ: Self = Self(1);
    /// A message can be sent; a descriptor can be written.
    pub const WRITE: Self = Self(2);
    /// A descriptor has an error. Sockets have none.
    pub const ERROR: Self = Self(4);
    /// A descriptor has urgent data. Sockets have none.
    pub const PRIORITY: Self = Self(8);

    /// From the numbers; others are left out.
    pub fn from_bits(bits: i16) -> Self {
        Self(bits & 15)
    }

    /// As numbers.
    pub fn bits(self) -> i16 {
        self.0
    }

    /// Whether any of these is among them.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Events {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Events {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// How a wait for one socket ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// An awaited event is there.
    Ready,
    /// The time was up.
    TimedOut,
    /// A signal came, or a slice of the wait is over: signal handlers may have to run.
    Interrupted,
}
