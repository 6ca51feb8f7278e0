//! The configuration of a bus.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A handler, or a filter, has panicked.
pub struct PanicReport<'a> {
    /// The topic that was published to.
    pub topic: &'a str,
    /// The panic's payload.
    pub payload: &'a (dyn Any + Send),
}

impl PanicReport<'_> {
    /// The panic's message, if it has one.
    pub fn message(&self) -> Option<&str> {
        let text = self.payload.downcast_ref::<&str>().copied();
        text.or_else(|| self.payload.downcast_ref::<String>().map(String::as_str))
    }
}

type Hook = Arc<dyn Fn(&PanicReport<'_>) + Send + Sync>;

/// A bus's configuration.
#[derive(Clone)]
pub struct Config {
    /// How deep handlers may publish to handlers, 1 to 64; more counts as 64.
    pub max_depth: usize,
    /// Topics that publishing by name finds without a lock, the first ones of the bus. Later topics are looked up under
    /// a lock; a `Topic` never needs one.
    pub most_listed: usize,
    /// Called for each panic of a handler or a filter, in the publisher's thread. The standard library's own hook has
    /// printed the panic by then.
    pub on_panic: Option<Hook>,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_depth: 64, most_listed: 4096, on_panic: None }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("max_depth", &self.max_depth).finish_non_exhaustive()
    }
}

impl Config {
    /// Calls the hook; a panic of the hook itself is not reported to it.
    pub(crate) fn report(&self, report: &PanicReport<'_>) {
        if let Some(hook) = &self.on_panic
            && let Err(payload) = catch_unwind(AssertUnwindSafe(|| hook(report)))
        {
            std::mem::forget(payload);
        }
    }
}
