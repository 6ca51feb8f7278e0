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
    /// Workers that are always there; none is taken for one.
    pub min: usize,
    /// Workers at most; less than `min` is taken for `min`.
    pub max: usize,
    /// A worker beyond `min` that has slept so long ends.
    pub keep_alive: Duration,
}

/// From `min` to `max` workers: for jobs that block.
///
/// A job that finds all workers busy starts another at once, while there are fewer than `max`; so does a worker
/// that takes a job while more are queued and nobody is free for them. One is started at a time: the next when
/// that one has found a job and left others behind. Once there are `max`, jobs queue.
///
/// A worker that joins a job runs that job itself if it has not been started, and else blocks; it runs no
/// others, which might block for longer than the job that is waited for.
///
/// Dropped, it shuts down and does not wait.
pub struct DynamicExecutor(Arc<WorkerPool>);

impl DynamicExecutor {
    /// Starts the least number of workers.
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
