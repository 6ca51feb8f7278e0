//! A pool that grows while all its workers are busy.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::delayed::Delayed;
use crate::executor::Executor;
use crate::job::Job;
use crate::pool::{Size, WorkerPool};
use crate::rejected::Rejected;
use crate::report::ShutdownReport;
use crate::statistics::Statistics;

/// How a [`DynamicExecutor`] grows and shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The least number of workers; 0 counts as 1.
    pub min: usize,
    /// The greatest number of workers; less than `min` counts as `min`.
    pub max: usize,
    /// A worker beyond `min` ends after it has slept this long.
    pub keep_alive: Duration,
}

/// From `min` to `max` workers: for jobs that block.
///
/// A job that finds all workers busy starts another worker at once, while there are fewer than `max`; so does a worker
/// that takes a job while more are queued and no worker is free. Workers are started one at a time: the next when the
/// last one has found a job and left others behind. Once there are `max`, jobs queue.
///
/// A worker that joins a job runs that job itself if it has not been started, and else blocks. It runs no other jobs,
/// which might block for longer than the joined job.
///
/// Dropping it shuts it down without waiting.
pub struct DynamicExecutor(Arc<WorkerPool>);

impl DynamicExecutor {
    /// Starts `min` workers.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread.
    pub fn new(bounds: Bounds, config: Config) -> ropewalk_base::Result<Self> {
        let min = bounds.min.max(1);
        let size = Size { min, max: bounds.max.max(min), keep_alive: bounds.keep_alive, helps: false };
        WorkerPool::start(config, size).map(Self)
    }
}

impl Executor for DynamicExecutor {
    fn execute(&self, job: Job) -> Result<(), Rejected> {
        self.0.execute(job)
    }

    fn execute_after(&self, delay: Duration, job: Job) -> Result<Delayed, Rejected> {
        self.0.execute_after(delay, job)
    }

    fn shutdown(&self) {
        self.0.shutdown();
    }

    fn join(&self, deadline: Option<Instant>) -> ShutdownReport {
        self.0.join(deadline)
    }

    fn statistics(&self) -> Statistics {
        self.0.statistics()
    }

    fn is_current(&self) -> bool {
        self.0.is_current()
    }
}

impl Drop for DynamicExecutor {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

impl fmt::Debug for DynamicExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DynamicExecutor").field(&self.statistics()).finish()
    }
}
