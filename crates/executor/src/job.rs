//! A job: something to run once, and how urgent it is.

use std::fmt;

use crate::work::{Plain, Unobserved, Work};

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
