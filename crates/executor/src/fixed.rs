//! A pool of a fixed number of workers.

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

/// N workers that steal from each other: for jobs that compute.
///
/// A worker that joins a job runs others meanwhile, on its own stack, up to 64 joins deep. Such a job should not block
/// for long: it would delay the joining worker after the joined job has ended.
/// [`DynamicExecutor`](crate::DynamicExecutor) is for jobs that block.
///
/// Dropping it shuts it down without waiting.
pub struct FixedExecutor(Arc<WorkerPool>);

impl FixedExecutor {
    /// Starts the workers; 0 counts as 1.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread.
    pub fn new(workers: usize, config: Config) -> ropewalk_base::Result<Self> {
        let workers = workers.max(1);
        let size = Size { min: workers, max: workers, keep_alive: Duration::MAX, helps: true };
        WorkerPool::start(config, size).map(Self)
    }
}

impl Executor for FixedExecutor {
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

impl Drop for FixedExecutor {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

impl fmt::Debug for FixedExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FixedExecutor").field(&self.statistics()).finish()
    }
}
