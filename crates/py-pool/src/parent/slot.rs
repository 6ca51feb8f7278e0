//! State of an object that Python threads share.
//!
//! No Python code may run under a lock: a finalizer or a collection could come back to the same state, or let a thread
//! in that waits for it. So [`Slot::with`] takes a function that can be sent to another thread, which excludes one that
//! holds the interpreter's token or a reference bound to it; what it takes out of the state it returns, to be dropped
//! after the lock. [`Slot::shared`] makes new references, and calls nothing.

use std::thread::{self, ThreadId};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::pyclass::PyTraverseError;
use ropewalk_sync::{Condvar, Mutex, MutexGuard};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Slot<T>(Mutex<T>);

/// A value of which there may be a second one with references of its own.
pub(crate) trait Share {
    /// The second one. Runs nothing of the interpreter.
    fn share(&self, py: Python<'_>) -> Self;
}

impl<T> Share for Py<T> {
    fn share(&self, py: Python<'_>) -> Self {
        self.clone_ref(py)
    }
}

impl<T: Share> Share for Option<T> {
    fn share(&self, py: Python<'_>) -> Self {
        self.as_ref().map(|value| value.share(py))
    }
}

impl<T: Share> Share for Vec<T> {
    fn share(&self, py: Python<'_>) -> Self {
        self.iter().map(|value| value.share(py)).collect()
    }
}

impl<A: Share, B: Share> Share for (A, B) {
    fn share(&self, py: Python<'_>) -> Self {
        (self.0.share(py), self.1.share(py))
    }
}

impl<T> Slot<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    /// Looks at the state, or changes it.
    pub(crate) fn with<R: Send>(&self, change: impl FnOnce(&mut T) -> R + Send) -> R {
        change(&mut self.lock())
    }

    /// The state, with references of its own.
    pub(crate) fn shared(&self, py: Python<'_>) -> T
    where
        T: Share,
    {
        self.lock().share(py)
    }

    /// Takes the state out.
    pub(crate) fn take(&self) -> T
    where
        T: Default,
    {
        std::mem::take(&mut *self.lock())
    }

    /// Shows the state to the garbage collector. A state that is locked is not shown, and lives on: the collector runs
    /// in no thread that holds the lock, so that does not happen to garbage.
    pub(crate) fn visit(
        &self,
        show: impl FnOnce(&T) -> Result<(), PyTraverseError>,
    ) -> Result<(), PyTraverseError> {
        self.0.try_lock().map_or(Ok(()), |state| show(&state))
    }
}

/// How long a thread waits for its turn before it lets signals' handlers run.
const SLICE: Duration = Duration::from_millis(50);

/// The right to do something that runs code of the user's in between, which one thread has at a time.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    state: Mutex<TurnState>,
    free: Condvar,
}

#[derive(Debug, Default)]
struct TurnState {
    owner: Option<ThreadId>,
    /// The waiting threads: without one there is no wake-up, which would be a system call for each turn.
    waiting: usize,
}

/// The turn, until it is dropped.
pub(crate) struct Taken<'a>(&'a Turn);

impl Turn {
    fn lock(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock()
    }

    fn try_take(&self, me: ThreadId) -> Option<Option<Taken<'_>>> {
        let mut state = self.lock();
        match state.owner {
            None => {
                state.owner = Some(me);
                Some(Some(Taken(self)))
            }
            Some(other) if other == me => Some(None),
            Some(_) => None,
        }
    }

    /// Waits for the turn, signals' handlers running in between; `None` if this very thread has it already.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Option<Taken<'_>>> {
        let me = thread::current().id();
        loop {
            if let Some(taken) = self.try_take(me) {
                return Ok(taken);
            }
            py.detach(|| {
                let mut state = self.lock();
                if state.owner.is_some() {
                    state.waiting += 1;
                    (state, _) = self.free.wait_timeout(state, SLICE);
                    state.waiting -= 1;
                }
            });
            py.check_signals()?;
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.owner = None;
        let somebody = state.waiting > 0;
        drop(state);
        if somebody {
            self.0.free.notify_one();
        }
    }
}
