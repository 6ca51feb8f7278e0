//! Why a job was refused.

use std::fmt;

use crate::job::Job;

/// Why an executor refuses a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The executor was shut down.
    Closed,
    /// The queue is full, and the executor is configured to refuse rather than to wait.
    Full,
    /// The executor was made before a fork, and this is the child: its threads do not exist here.
    Forked,
    /// The timer thread could not be started.
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

/// A refused job, which has not run.
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
