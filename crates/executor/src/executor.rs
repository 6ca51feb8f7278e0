//! The trait of every executor.

use std::time::{Duration, Instant};

use crate::delayed::Delayed;
use crate::handle::JobHandle;
use crate::job::{Job, Priority};
use crate::rejected::Rejected;
use crate::report::ShutdownReport;
use crate::statistics::Statistics;

/// Something that runs jobs. [`Submit`] adds the generic methods.
///
/// # Which job is next
///
/// An idle worker looks for its next job in this order, and takes the first that it finds:
///
/// 1. the oldest `Low` job, if the worker has started 60 jobs of other priorities since it last started one;
/// 2. the oldest `High` job of the pool;
/// 3. the oldest `Normal` job that its own jobs have handed in, or that it fetched from outside;
/// 4. the oldest `Normal` jobs that were handed in from outside;
/// 5. `Normal` jobs of other workers, from the oldest end of their deques;
/// 6. the oldest `Low` job.
///
/// So no `Normal` job starts while a `High` one is queued that was accepted before the worker looked; a queued `Low`
/// job at the head of its queue waits for at most 60 starts on each worker; and `Normal` jobs starve for as long as
/// `High` jobs arrive faster than they are run, which is what `High` means. On every 61st look a worker fetches from
/// outside even if its own deque is not empty, so that jobs that hand in jobs for ever do not starve others. With one
/// worker, the jobs of one priority that come from outside start in the order in which they were accepted.
///
/// # Panics
///
/// A panic of a job ends that job only: it is counted, the executor's hook is called, and the job's handle, if it has
/// one, gets the payload.
pub trait Executor: Send + Sync {
    /// Hands a job in.
    ///
    /// # Errors
    ///
    /// The job, and why it was refused. An accepted job is run exactly once, unless the process ends.
    fn execute(&self, job: Job) -> Result<(), Rejected>;

    /// Hands in a job that starts when `delay` has passed, or later; never earlier. In a bounded queue it counts as
    /// queued from now on.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute).
    fn execute_after(&self, delay: Duration, job: Job) -> Result<Delayed, Rejected>;

    /// Refuses all jobs from now on, also those of its own jobs. Accepted jobs run, delayed ones at their time; then
    /// the threads end. Does not wait.
    fn shutdown(&self);

    /// Shuts down, and waits until all accepted jobs have ended, at most until the deadline; without one, for ever. The
    /// report names what is left. A worker that calls this on its own executor gets the report at once.
    fn join(&self, deadline: Option<Instant>) -> ShutdownReport;

    /// The executor's counters.
    fn statistics(&self) -> Statistics;

    /// Whether the calling thread is running one of this executor's jobs.
    fn is_current(&self) -> bool;
}

/// The generic half of [`Executor`].
pub trait Submit: Executor {
    /// Hands in a closure and returns a handle to its result.
    ///
    /// # Errors
    ///
    /// The job, and why it was refused.
    ///
    /// # Examples
    ///
    /// ```
    /// use ropewalk_executor::{Config, Executor, FixedExecutor, Submit};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = FixedExecutor::new(2, Config::named("sums"))?;
    /// let sum = pool.submit(|| (1..=100).sum::<u64>())?;
    /// assert_eq!(sum.join()?, 5050);
    /// assert!(pool.join(None).is_complete());
    /// # Ok(())
    /// # }
    /// ```
    fn submit<T: Send + 'static>(
        &self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JobHandle<T>, Rejected> {
        self.submit_with(Priority::Normal, run)
    }

    /// As [`submit`](Self::submit), with a priority.
    ///
    /// # Errors
    ///
    /// The job, and why it was refused.
    fn submit_with<T: Send + 'static>(
        &self,
        priority: Priority,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JobHandle<T>, Rejected> {
        let (job, handle) = Job::with_handle(run);
        self.execute(job.priority(priority)).map(|()| handle)
    }

    /// Hands in a closure that starts when `delay` has passed; its handle cancels it before that.
    ///
    /// # Errors
    ///
    /// The job, and why it was refused.
    fn submit_after<T: Send + 'static>(
        &self,
        delay: Duration,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JobHandle<T>, Rejected> {
        let (job, mut handle) = Job::with_handle(run);
        handle.delayed = Some(self.execute_after(delay, job)?);
        Ok(handle)
    }
}

impl<E: Executor + ?Sized> Submit for E {}
