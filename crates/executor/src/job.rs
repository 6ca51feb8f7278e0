//! A job: something to run once, and how urgent it is.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::handle::JobHandle;
use crate::task::{Task, Tracked};
use crate::work::{Plain, Work};

/// How urgent a job is. What the pools promise for each stands in [`Executor`](crate::Executor).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Starts when nothing else is queued, and now and then before that.
    Low,
    /// The rule.
    #[default]
    Normal,
    /// Starts before every queued job of the others.
    High,
}

/// Something to run once. Making one takes no allocation if the closure captures two words at most, else one;
/// one, too, if it has a handle. Handing it in takes no other.
pub struct Job {
    pub(crate) priority: Priority,
    pub(crate) work: Work,
}

impl Job {
    /// A job whose result nobody waits for.
    pub fn new(run: impl FnOnce() + Send + 'static) -> Self {
        Self { priority: Priority::Normal, work: Work::new(Plain(run)) }
    }

    /// A job and the handle to its result, in one allocation.
    ///
    /// [`Submit::submit`](crate::Submit::submit) makes both and hands the job in; this is for who wants to try
    /// again with a refused job and keep the handle.
    pub fn with_handle<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> (Self, JobHandle<T>) {
        let task = Arc::new(Task::new(run));
        let work = Work::new(Tracked(Arc::clone(&task)));
        (Self { priority: Priority::Normal, work }, JobHandle::new(task))
    }

    /// The same job with this priority.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// The type of the closure: its module and function.
    pub fn name(&self) -> &'static str {
        (self.work.label())()
    }

    /// Runs it here and now. A panic ends the job as it would in an executor: a handle gets it; without one it
    /// has been printed, and that is all.
    pub fn run(self) {
        let _ = self.work.run(&Unobserved);
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("name", &self.name()).field("priority", &self.priority).finish()
    }
}

/// How a job went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Ran {
    /// To its end.
    Done,
    /// Into a panic, which the context has been told.
    Panicked,
    /// Not at all: it was cancelled, or a thread that joined it has run it.
    Skipped,
}

/// The thread that runs a job, as the job's wrapping sees it.
pub(crate) trait Context {
    /// Reports a panic. Does not panic itself.
    fn panicked(&self, job: &'static str, payload: &(dyn Any + Send));
}

/// For a job that no executor runs.
pub(crate) struct Unobserved;

impl Context for Unobserved {
    fn panicked(&self, _job: &'static str, _payload: &(dyn Any + Send)) {}
}
