//! The only path from a Python thread to the engine: without the interpreter's lock.
//!
//! A thread that holds the engine's lock never waits for the interpreter. A thread that waits for that lock releases
//! the interpreter, so that the rest of the program goes on.

use std::sync::Arc;

use pyo3::prelude::*;
use ropewalk_pool::{Call, Capabilities, Engine, Options, Refused, Task};

/// See the module.
pub(crate) struct EngineHandle(Engine);

impl EngineHandle {
    pub(crate) fn new(engine: Engine) -> Self {
        Self(engine)
    }

    /// Calls the engine with the interpreter released.
    pub(crate) fn call<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&Engine) -> T + Send) -> T {
        py.detach(|| call(&self.0))
    }

    /// Submits with the interpreter held if the engine's lock is free, which costs the least, else with it released.
    pub(crate) fn submit(
        &self,
        py: Python<'_>,
        call: Call,
        task_flags: u16,
        options: Options,
    ) -> Result<Arc<Task>, Box<(Call, Refused)>> {
        match self.0.submit(call, task_flags, options, false) {
            Err(refused) if matches!(refused.1, Refused::Busy) => {
                self.call(py, |engine| engine.submit(refused.0, task_flags, options, true))
            }
            tried => tried,
        }
    }

    /// Submits a part of an accepted task again, regardless of the queue's limit.
    pub(crate) fn submit_again(
        &self,
        py: Python<'_>,
        call: Call,
        task_flags: u16,
        options: Options,
    ) -> Result<Arc<Task>, Box<(Call, Refused)>> {
        self.call(py, |engine| engine.submit_again(call, task_flags, options))
    }

    /// Whether a submission waits for room in a full queue.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.0.waits_for_room()
    }

    /// Reads the available results, unless another thread does.
    pub(crate) fn catch_up(&self) {
        self.0.catch_up();
    }

    /// The capabilities of the pool's workers.
    pub(crate) fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    /// Whether this is a forked child of the process that made it.
    pub(crate) fn is_forked(&self) -> bool {
        self.0.is_forked()
    }

    /// Whether the engine has started nothing yet.
    pub(crate) fn is_asleep(&self) -> bool {
        self.0.is_asleep()
    }

    /// True for the first caller: the pool needs one collector.
    pub(crate) fn start_collecting(&self) -> bool {
        self.0.start_collecting()
    }

    /// For what encodes: the arena and the functions' numbers, for which the engine takes no lock.
    pub(crate) fn for_encoding(&self) -> &Engine {
        &self.0
    }
}
