//! A pool of a fixed number of workers.

use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::of_workers::executor_of_workers;
use crate::pool::{Size, WorkerPool};

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

executor_of_workers!(FixedExecutor);
