//! How a job's panic is contained and reported.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A panic's payload, as `catch_unwind` returns it.
pub type Payload = Box<dyn Any + Send + 'static>;

/// A panic that a job ended with.
#[derive(Clone, Copy, Debug)]
pub struct PanicReport<'a> {
    /// The executor's name.
    pub executor: &'a str,
    /// The type of the job's closure: its module and function.
    pub job: &'static str,
    /// The panic's message, if it is text.
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

/// The panic's message, if it is text.
pub(crate) fn message_of(payload: &(dyn Any + Send)) -> Option<&str> {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Runs code that must not unwind into a worker; returns whether it did not panic. A payload whose drop panics, too, is
/// leaked.
pub(crate) fn contain(act: impl FnOnce()) -> bool {
    let Err(payload) = catch_unwind(AssertUnwindSafe(act)) else { return true };
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    false
}
