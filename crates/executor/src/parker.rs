//! One thread's bed: it sleeps until somebody leaves a token.
//!
//! `std::thread::park` would do, but for its token, which belongs to the thread: a job that parks for reasons
//! of its own must not lose a token to us.

use std::sync::Arc;
use std::time::Duration;

#[cfg(not(loom))]
use crate::sync::{AtomicU32, Ordering};

#[cfg(not(loom))]
const EMPTY: u32 = 0;
#[cfg(not(loom))]
const TOKEN: u32 = 1;
#[cfg(not(loom))]
const PARKED: u32 = u32::MAX;

/// Where one thread sleeps, and others leave a token for it.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Parker {
    /// `EMPTY`, `TOKEN`, or `PARKED` while the owner sleeps or is about to. Release with the token, Acquire
    /// with its taking: what was done before a wake-up is seen after it.
    word: AtomicU32,
}

#[cfg(not(loom))]
impl Parker {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU32::new(EMPTY) }
    }

    /// Sleeps until there is a token, and takes it. May return early: callers look again. Only one thread,
    /// the owner, calls it.
    pub(crate) fn park(&self, timeout: Option<Duration>) {
        // TOKEN becomes EMPTY, EMPTY becomes PARKED.
        if self.word.fetch_sub(1, Ordering::Acquire) == TOKEN {
            return;
        }
        let _ = ropewalk_os::futex::wait(&self.word, PARKED, timeout, ropewalk_os::futex::Scope::Private);
        self.word.swap(EMPTY, Ordering::Acquire);
    }

    /// Leaves a token, and wakes the owner if it sleeps.
    pub(crate) fn unpark(&self) {
        if self.word.swap(TOKEN, Ordering::Release) == PARKED {
            ropewalk_os::futex::wake(&self.word, 1, ropewalk_os::futex::Scope::Private);
        }
    }
}

/// The model: a sleep without a token is for ever, which loom reports as a deadlock.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct Parker {
    token: loom::sync::Mutex<bool>,
    left: loom::sync::Condvar,
}

#[cfg(loom)]
#[cfg_attr(mutants, mutants::skip)]
impl Parker {
    pub(crate) fn new() -> Self {
        Self { token: loom::sync::Mutex::new(false), left: loom::sync::Condvar::new() }
    }

    /// Without the timeout, which would hide a lost wake-up.
    pub(crate) fn park(&self, _timeout: Option<Duration>) {
        let mut token = self.token.lock().expect("no panic under the lock");
        while !*token {
            token = self.left.wait(token).expect("no panic under the lock");
        }
        *token = false;
    }

    pub(crate) fn unpark(&self) {
        *self.token.lock().expect("no panic under the lock") = true;
        self.left.notify_one();
    }
}

/// The calling thread's parker.
pub(crate) fn mine() -> Arc<Parker> {
    #[cfg(not(loom))]
    {
        thread_local!(static MINE: Arc<Parker> = Arc::new(Parker::new()));
        // A thread that is being torn down has lost its own; a new one serves as well.
        MINE.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Parker::new()))
    }
    #[cfg(loom)]
    Arc::new(Parker::new())
}
