//! Delayed jobs.

use std::fmt;
use std::sync::Weak;
use std::time::{Duration, Instant};

use crate::job::Job;

/// When a job is due, and a number that keeps jobs of one moment in order.
pub(crate) type Key = (Instant, u64);

/// An executor that keeps delayed jobs.
pub(crate) trait Keeper: Send + Sync {
    /// Removes a job that is not yet due.
    fn withdraw(&self, key: Key) -> Option<Job>;
}

/// A job that was handed in and is not due yet. Dropping this keeps the job: it runs at its time.
#[must_use = "a dropped token lets the job go; `detach` says so"]
pub struct Delayed {
    keeper: Weak<dyn Keeper>,
    key: Key,
}

impl Delayed {
    pub(crate) fn new(keeper: Weak<dyn Keeper>, key: Key) -> Self {
        Self { keeper, key }
    }

    /// Takes the job back; `None` if it was due, or was taken back before.
    pub fn cancel(&self) -> Option<Job> {
        self.keeper.upgrade()?.withdraw(self.key)
    }

    /// Drops this token and keeps the job: it runs at its time.
    pub fn detach(self) {}
}

impl fmt::Debug for Delayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delayed").field("due", &self.key.0).finish_non_exhaustive()
    }
}

/// Longer than any process runs, and short enough to be added to an `Instant`.
const EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The moment that is `delay` after `now`.
pub(crate) fn due(now: Instant, delay: Duration) -> Instant {
    now.checked_add(delay).unwrap_or_else(|| now + EVER)
}
