//! A job: something to run once, and how urgent it is.

use std::fmt;

use crate::work::{Plain, Unobserved, Work};

/// How urgent a job is. [`Executor`](crate::Executor) documents what the pools promise for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Starts when nothing else is queued, and now and then before that.
    Low,
    /// The default.
    #[default]
    Normal,
    /// Starts before every queued job of other priorities.
    High,
}

/// Something to run once. A job takes no allocation if its closure captures two words at most, else one; a job with a
/// handle takes one. Handing it in allocates nothing more.
pub struct Job {
    pub(crate) priority: Priority,
    pub(crate) work: Work,
}

impl Job {
    /// A job without a handle.
    pub fn new(run: impl FnOnce() + Send + 'static) -> Self {
        Self { priority: Priority::Normal, work: Work::new(Plain(run)) }
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

    /// Runs the job now, in this thread. A panic ends the job as in an executor: its handle gets the panic; without a
    /// handle the panic is only printed.
    pub fn run(self) {
        let _ = self.work.run(&Unobserved);
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("name", &self.name()).field("priority", &self.priority).finish()
    }
}
