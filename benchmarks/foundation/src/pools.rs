//! The contenders that run tasks.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

use ropewalk_executor::{Bounds, Config, DynamicExecutor, Executor, FixedExecutor, Job, Submit};

/// What every contender can do.
pub trait Pool: Sync {
    /// Runs a task some time, on a thread of the pool.
    fn spawn(&self, task: impl FnOnce() + Send + 'static);

    /// Runs a task on a thread of the pool and waits for it, by the pool's own means.
    fn call(&self, task: impl FnOnce() -> u64 + Send + 'static) -> u64;
}

/// Threads of each pool: one for each core that this process may use.
pub fn workers() -> usize {
    thread::available_parallelism().map_or(2, NonZero::get)
}

/// `rayon::spawn`, in a pool of its own.
pub struct Rayon(rayon::ThreadPool);

impl Rayon {
    /// A pool with a worker for each core.
    ///
    /// # Panics
    ///
    /// If there can be no threads.
    pub fn new() -> Self {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers()).build();
        Self(pool.expect("a benchmark needs its threads"))
    }
}

impl Default for Rayon {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool for Rayon {
    #[inline]
    fn spawn(&self, task: impl FnOnce() + Send + 'static) {
        self.0.spawn(task);
    }

    #[inline]
    fn call(&self, task: impl FnOnce() -> u64 + Send + 'static) -> u64 {
        self.0.install(task)
    }
}

/// One of Ropewalk's executors.
pub struct Ropewalk<E>(E);

impl Ropewalk<FixedExecutor> {
    /// A worker for each core.
    ///
    /// # Panics
    ///
    /// If there can be no threads.
    pub fn fixed() -> Self {
        Self(FixedExecutor::new(workers(), Config::named("fixed")).expect("a benchmark needs its threads"))
    }
}

impl Ropewalk<DynamicExecutor> {
    /// As many workers as there are cores, and up to four times as many while they are blocked.
    ///
    /// # Panics
    ///
    /// If there can be no threads.
    pub fn dynamic() -> Self {
        let bounds = Bounds { min: workers(), max: 4 * workers(), keep_alive: Duration::from_secs(10) };
        Self(DynamicExecutor::new(bounds, Config::named("dynamic")).expect("a benchmark needs its threads"))
    }
}

impl<E: Executor> Pool for Ropewalk<E> {
    #[inline]
    fn spawn(&self, task: impl FnOnce() + Send + 'static) {
        assert!(self.0.execute(Job::new(task)).is_ok(), "an open pool without a bound refuses nothing");
    }

    #[inline]
    fn call(&self, task: impl FnOnce() -> u64 + Send + 'static) -> u64 {
        let handle = self.0.submit(task).expect("an open pool without a bound refuses nothing");
        handle.join().expect("the task does not panic")
    }
}
