//! The ways in which an accepted job can end without a result.

use std::fmt;

use crate::panic::{Payload, message_of};

/// Why a job has no result.
#[non_exhaustive]
pub enum JobError {
    /// The job panicked with this payload.
    Panicked(Payload),
    /// The job was cancelled before it started.
    Cancelled,
    /// The job was dropped without running: refused, and then not handed in again.
    Dropped,
}

impl JobError {
    /// The panic's message, if it is text.
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Panicked(payload) => message_of(&**payload),
            Self::Cancelled | Self::Dropped => None,
        }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.message()) {
            (Self::Panicked(_), Some(message)) => write!(f, "the job panicked: {message}"),
            (Self::Panicked(_), None) => f.write_str("the job panicked"),
            (Self::Cancelled, _) => f.write_str("the job was cancelled before it started"),
            (Self::Dropped, _) => f.write_str("the job was dropped before it started"),
        }
    }
}

impl fmt::Debug for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(_) => f.debug_tuple("Panicked").field(&self.message()).finish(),
            Self::Cancelled => f.write_str("Cancelled"),
            Self::Dropped => f.write_str("Dropped"),
        }
    }
}

impl std::error::Error for JobError {}
