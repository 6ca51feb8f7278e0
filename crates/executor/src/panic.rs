//! What becomes of a job's panic.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What `panic!` was given, as it comes out of `catch_unwind`.
pub type Payload = Box<dyn Any + Send + 'static>;

/// A panic that a job ended with.
#[derive(Clone, Copy, Debug)]
pub struct PanicReport<'a> {
    /// The executor's name.
    pub executor: &'a str,
    /// The type of the job's closure: its module and function.
    pub job: &'static str,
    /// What `panic!` was given, if it was text.
    pub message: Option<&'a str>,
}

impl fmt::Display for PanicReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a job of {} panicked ({})", self.executor, self.job)?;
        self.message.map_or(Ok(()), |message| write!(f, ": {message}"))
    }
}

/// Called by the thread that ran the job, for every panic. A panic of the hook itself is contained and counted.
pub type PanicHook = Arc<dyn Fn(&PanicReport<'_>) + Send + Sync>;

/// The text that `panic!` was given.
pub(crate) fn message_of(payload: &(dyn Any + Send)) -> Option<&str> {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Runs what must not unwind into a worker: true if it did not panic. A payload whose drop panics, too, is
/// leaked: there is nothing else that could be done with it.
pub(crate) fn contain(act: impl FnOnce()) -> bool {
    let Err(payload) = catch_unwind(AssertUnwindSafe(act)) else { return true };
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    false
}
