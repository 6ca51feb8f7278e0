//! A pool that grows while all its workers are busy.

use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::of_workers::executor_of_workers;
use crate::pool::{Size, WorkerPool};

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

executor_of_workers!(DynamicExecutor);
