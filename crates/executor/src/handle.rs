//! A job's handle: to wait for its result, to cancel it, or to let it go.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::delayed::Delayed;
use crate::error::JobError;
use crate::job::{Job, Priority};
use crate::task::{Outcome, Task, Tracked};
use crate::wait;
use crate::work::Work;

impl Job {
    /// A job and the handle to its result, in one allocation.
    ///
    /// [`Submit::submit`](crate::Submit::submit) makes both and hands the job in; this is for callers that try again
    /// with a refused job and keep the handle.
    pub fn with_handle<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> (Self, JobHandle<T>) {
        let task = Arc::new(Task::new(run));
        let work = Work::new(Tracked(Arc::clone(&task)));
        (Self { priority: Priority::Normal, work }, JobHandle::new(task))
    }
}

/// The handle of a job that was handed in. Dropping it keeps the job: it still runs.
#[must_use = "a dropped handle lets the job go; `detach` says so"]
pub struct JobHandle<T> {
    task: Arc<dyn Outcome<T>>,
    /// The token of a delayed job.
    pub(crate) delayed: Option<Delayed>,
}

impl<T: Send + 'static> JobHandle<T> {
    pub(crate) fn new(task: Arc<dyn Outcome<T>>) -> Self {
        Self { task, delayed: None }
    }

    /// Waits for the job's end and returns its result.
    ///
    /// A worker that waits for a job of its own pool runs that job, if it has not been started, and, in a
    /// [`FixedExecutor`](crate::FixedExecutor), other jobs meanwhile. Everywhere else the thread blocks.
    ///
    /// # Errors
    ///
    /// When the job panicked, was cancelled, or was dropped unrun.
    pub fn join(self) -> Result<T, JobError> {
        self.join_until(None).unwrap_or(Err(JobError::Dropped))
    }

    /// Waits at most until the deadline; without one, for ever.
    ///
    /// # Errors
    ///
    /// The handle itself, if the job has not ended by then.
    pub fn join_until(self, deadline: Option<Instant>) -> Result<Result<T, JobError>, Self> {
        self.wait_until(deadline);
        self.task.take().ok_or(self)
    }

    /// Returns the result if the job has ended.
    ///
    /// # Errors
    ///
    /// The handle itself, if it has not.
    pub fn try_join(self) -> Result<Result<T, JobError>, Self> {
        self.task.take().ok_or(self)
    }

    /// Waits for the job's end, at most this long; returns whether it has ended.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    /// Waits for the job's end, at most until the deadline; returns whether it has ended.
    pub fn wait_until(&self, deadline: Option<Instant>) -> bool {
        wait::for_task(&*self.task, deadline)
    }

    /// Whether the job has ended in any way.
    pub fn is_over(&self) -> bool {
        self.task.is_over()
    }

    /// Cancels the job if it has not started; returns whether it never will. The closure's captures are dropped here;
    /// its place in the queue becomes free when a worker comes to it.
    pub fn cancel(&self) -> bool {
        let cancelled = self.task.cancel();
        if cancelled && let Some(delayed) = &self.delayed {
            drop(delayed.cancel());
        }
        cancelled
    }

    /// Drops the handle and keeps the job: it runs, and its result is dropped.
    pub fn detach(self) {}
}

impl<T> fmt::Debug for JobHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandle")
            .field("job", &(self.task.label())())
            .field("over", &self.task.is_over())
            .finish()
    }
}
