//! The settings of a pool.

use std::fmt;

use crate::panic::PanicHook;

/// What happens to a job that finds the queue full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The submitting thread waits for room. A worker of the same pool runs queued jobs meanwhile, so that a pool never
    /// waits for itself.
    #[default]
    Block,
    /// The job is refused.
    Reject,
}

/// The settings that all pools share.
#[derive(Clone)]
pub struct Config {
    /// The pool's name; its threads are called `name-0`, `name-1` and so on, and `name-timer`.
    pub name: String,
    /// How many jobs may wait, delayed and cancelled ones included; `None` for no bound.
    pub max_queue: Option<usize>,
    /// What happens to a job that finds the queue full.
    pub when_full: WhenFull,
    /// Called for every job's panic. The process's own hook has printed the panic before.
    pub on_panic: Option<PanicHook>,
    /// Bytes of stack for each worker; `None` for the standard library's default. A worker that joins jobs
    /// runs others on the same stack.
    pub stack_size: Option<usize>,
}

impl Config {
    /// The defaults, and this name: an unbounded queue, no hook.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            max_queue: None,
            when_full: WhenFull::default(),
            on_panic: None,
            stack_size: None,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("name", &self.name)
            .field("max_queue", &self.max_queue)
            .field("when_full", &self.when_full)
            .field("on_panic", &self.on_panic.is_some())
            .field("stack_size", &self.stack_size)
            .finish()
    }
}
