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
    /// [`Submit::submit`](crate::Submit::submit) makes both and hands the job in; this is for who wants to try
    /// again with a refused job and keep the handle.
    pub fn with_handle<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> (Self, JobHandle<T>) {
        let task = Arc::new(Task::new(run));
        let work = Work::new(Tracked(Arc::clone(&task)));
        (Self { priority: Priority::Normal, work }, JobHandle::new(task))
    }
}

/// A job that was handed in. Dropped, it lets the job go: that runs all the same.
#[must_use = "a dropped handle lets the job go; `detach` says so"]
pub struct JobHandle<T> {
    task: Arc<dyn Outcome<T>>,
    /// Where the job waits for its time, if it does.
    pub(crate) delayed: Option<Delayed>,
}

impl<T: Send + 'static> JobHandle<T> {
    pub(crate) fn new(task: Arc<dyn Outcome<T>>) -> Self {
        Self { task, delayed: None }
    }

    /// Waits for the job's end and gives its result.
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
    /// The handle itself, when the job is not over by then.
    pub fn join_until(self, deadline: Option<Instant>) -> Result<Result<T, JobError>, Self> {
        self.wait_until(deadline);
        self.task.take().ok_or(self)
    }

    /// Gives the result if the job is over.
    ///
    /// # Errors
    ///
    /// The handle itself, when it is not.
    pub fn try_join(self) -> Result<Result<T, JobError>, Self> {
        self.task.take().ok_or(self)
    }

    /// Waits for the job's end, at most so long; true if it is over.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    /// Waits for the job's end, at most until the deadline; true if it is over.
    pub fn wait_until(&self, deadline: Option<Instant>) -> bool {
        wait::for_task(&*self.task, deadline)
    }

    /// Whether the job has ended, in whatever way.
    pub fn is_over(&self) -> bool {
        self.task.is_over()
    }

    /// Cancels the job if it has not been started; true if it never will be. What its closure captured is
    /// dropped here; its place in the queue is free when a worker comes to it.
    pub fn cancel(&self) -> bool {
        let cancelled = self.task.cancel();
        if cancelled && let Some(delayed) = &self.delayed {
            drop(delayed.cancel());
        }
        cancelled
    }

    /// Lets the job go: it runs, and its result is dropped.
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
