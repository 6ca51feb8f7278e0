//! Why a job was refused, and what may come of one that was not.

use std::fmt;

use crate::job::Job;
use crate::panic::{Payload, message_of};

/// Why an executor takes a job no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// It was shut down.
    Closed,
    /// Its queue is full, and it was made to refuse rather than to wait.
    Full,
    /// It was made before a fork, and this is the child: its threads do not exist here.
    Forked,
    /// The thread that keeps the time could not be started.
    NoThread,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the executor is shut down",
            Self::Full => "the executor's queue is full",
            Self::Forked => "the executor belongs to the process that this one was forked from",
            Self::NoThread => "the executor's timer thread could not be started",
        })
    }
}

/// A job that was refused: it is here, unrun.
pub struct Rejected {
    /// Why.
    pub reason: Reason,
    /// The job.
    pub job: Job,
}

impl fmt::Debug for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("reason", &self.reason).field("job", &self.job).finish()
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for Rejected {}

/// Why a job has no result.
#[non_exhaustive]
pub enum JobError {
    /// It panicked, with this.
    Panicked(Payload),
    /// It was cancelled before it started.
    Cancelled,
    /// It was dropped unrun: refused, and then not handed in again.
    Dropped,
}

impl JobError {
    /// What `panic!` was given, if the job panicked with text.
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
