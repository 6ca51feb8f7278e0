//! The only path from a Python thread to the engine: without the interpreter's lock.
//!
//! A thread that holds the engine's lock never waits for the interpreter. A thread that waits for that lock releases
//! the interpreter, so that the rest of the program goes on.

use std::sync::Arc;

use pyo3::prelude::*;
use ropewalk_pool::{Call, Capabilities, Engine, Opaque, Options, Refused, Session, Task};

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
        match self.0.submit(call, task_flags, options.clone(), false) {
            Err(refused) if matches!(refused.1, Refused::Busy) => {
                self.call(py, |engine| engine.submit(refused.0, task_flags, options, true))
            }
            tried => tried,
        }
    }

    /// The same, if there is room for it: no other task is dropped for it.
    pub(crate) fn submit_in_room(
        &self,
        py: Python<'_>,
        call: Call,
        task_flags: u16,
        options: Options,
    ) -> Result<Arc<Task>, Box<(Call, Refused)>> {
        match self.0.submit_in_room(call, task_flags, options.clone(), false) {
            Err(refused) if matches!(refused.1, Refused::Busy) => {
                self.call(py, |engine| engine.submit_in_room(refused.0, task_flags, options, true))
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

    /// Whether a submission is refused by a full queue.
    pub(crate) fn refuses_when_full(&self) -> bool {
        self.0.refuses_when_full()
    }

    /// Takes an item that a thread of this process has made; the engine's lock is taken only if an event loop waits.
    pub(crate) fn item_made(&self, stream: &Arc<Task>, item: Opaque, cost: u64) -> ropewalk_base::Result<()> {
        self.0.item_made(stream, item, cost)
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

    /// Whether the CPU time of each call is measured, however short it is.
    pub(crate) fn measures_cpu(&self) -> bool {
        self.0.measures_cpu()
    }

    /// True for the first caller: the pool needs one collector.
    pub(crate) fn start_collecting(&self) -> bool {
        self.0.start_collecting()
    }

    /// Closes a session that the program has dropped. It may be a finalizer that drops it, which keeps the interpreter.
    pub(crate) fn close_session(&self, session: &Arc<Session>) {
        self.0.close_session(session);
    }

    /// For what encodes: the arena and the functions' numbers, for which the engine takes no lock.
    pub(crate) fn for_encoding(&self) -> &Engine {
        &self.0
    }
}
