//! Waiting in slices, between which the caller looks for signals.

use std::time::{Duration, Instant};

/// How long a wait goes on before its caller looks for signals. A signal that comes just before a sleep does not end
/// the sleep, so a thread that runs signal handlers waits in slices. One value serves all slices of a wait.
#[derive(Clone, Copy, Debug)]
pub struct Slices {
    length: Option<Duration>,
    has_waited: bool,
}

impl Slices {
    /// Slices of this length, each of which ends with [`Woken::Interrupted`](crate::Woken::Interrupted). `None` for a
    /// thread that runs no handlers, whose wait is one slice.
    pub fn of(length: Option<Duration>) -> Self {
        Self { length, has_waited: false }
    }

    /// Whether the slice that begins now is the wait's first.
    pub(crate) fn is_first(&mut self) -> bool {
        !std::mem::replace(&mut self.has_waited, true)
    }

    /// The end of a slice that begins now.
    pub(crate) fn end(self) -> Option<Instant> {
        self.length.map(|length| Instant::now() + length)
    }
}
