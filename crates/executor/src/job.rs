//! A job: something to run once, and how urgent it is.

use std::any::{Any, type_name};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::handle::JobHandle;
use crate::panic::contain;
use crate::task::{Runnable, Task};

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

/// Something to run once. Making one takes one allocation, none if the closure captures nothing; handing it
/// in takes no other.
pub struct Job {
    pub(crate) priority: Priority,
    pub(crate) work: Work,
}

impl Job {
    /// A job whose result nobody waits for.
    pub fn new(run: impl FnOnce() + Send + 'static) -> Self {
        Self { priority: Priority::Normal, work: Work::Plain(Box::new(run)) }
    }

    /// A job and the handle to its result, in one allocation.
    ///
    /// [`Submit::submit`](crate::Submit::submit) makes both and hands the job in; this is for who wants to try
    /// again with a refused job and keep the handle.
    pub fn with_handle<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> (Self, JobHandle<T>) {
        let task = Arc::new(Task::new(run));
        let work = Work::Tracked(Tracked(Arc::clone(&task) as _));
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

    /// Runs it here and now.
    ///
    /// # Panics
    ///
    /// When the job does and has no handle; with one, the handle gets the panic.
    pub fn run(self) {
        match self.work {
            Work::Plain(job) => job.run(),
            Work::Tracked(job) => drop(job.0.run(&Unobserved)),
            Work::Turn(turn) => drop(turn.run(&Unobserved)),
        }
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

/// For a job that is run by hand.
struct Unobserved;

impl Context for Unobserved {
    fn panicked(&self, _job: &'static str, _payload: &(dyn Any + Send)) {}
}

/// A job's name, as a function: one word, which a worker can show to others by one store.
pub(crate) type Label = fn() -> &'static str;

/// A closure whose result nobody waits for.
pub(crate) trait Plain: Send {
    fn run(self: Box<Self>);
    fn label(&self) -> Label;
}

impl<F: FnOnce() + Send> Plain for F {
    fn run(self: Box<Self>) {
        (*self)();
    }

    fn label(&self) -> Label {
        type_name::<F>
    }
}

/// The queue's half of a job that has a handle: dropped unrun, it tells the handle.
pub(crate) struct Tracked(Arc<dyn Runnable>);

impl Drop for Tracked {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// A serial queue's turn on an executor; it reports its jobs' panics to that executor.
pub(crate) trait Turn: Send + Sync {
    fn run(self: Arc<Self>, context: &dyn Context) -> Ran;
}

/// What lies in the queues: three words.
pub(crate) enum Work {
    Plain(Box<dyn Plain>),
    Tracked(Tracked),
    Turn(Arc<dyn Turn>),
}

impl Work {
    /// Runs it; panics go to the context.
    pub(crate) fn run(self, context: &dyn Context) -> Ran {
        match self {
            Self::Plain(job) => {
                let label = job.label();
                match catch_unwind(AssertUnwindSafe(|| job.run())) {
                    Ok(()) => Ran::Done,
                    Err(payload) => {
                        context.panicked(label(), &*payload);
                        contain(|| drop(payload));
                        Ran::Panicked
                    }
                }
            }
            Self::Tracked(job) => job.0.run(context),
            Self::Turn(turn) => turn.run(context),
        }
    }

    pub(crate) fn label(&self) -> Label {
        match self {
            Self::Plain(job) => job.label(),
            Self::Tracked(job) => job.0.label(),
            Self::Turn(_) => || "windlass_executor::serial::Turn",
        }
    }

    /// Says that it is about to be queued on the pool with this identity, and may from now on be run by a
    /// worker of that pool that joins it.
    pub(crate) fn bind(&self, home: usize) {
        if let Self::Tracked(job) = self {
            job.0.bind(home);
        }
    }
}
