//! How the tests wait: for conditions, with a deadline that only a failure reaches.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ropewalk_executor::{Config, Executor, FixedExecutor, Submit};
use ropewalk_sync::{Condvar, Mutex};

/// Longer than anything here takes, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Looks until it holds.
pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

pub(crate) fn soon() -> Option<Instant> {
    Some(Instant::now() + LONG)
}

pub(crate) fn fixed(workers: usize) -> FixedExecutor {
    FixedExecutor::new(workers, Config::named("test")).expect("threads")
}

/// A closure that adds one when it runs.
pub(crate) fn counting(count: &Arc<AtomicUsize>) -> impl FnOnce() + Send + use<> {
    let count = Arc::clone(count);
    move || {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// A latch that jobs wait for.
#[derive(Clone, Default)]
pub(crate) struct Latch(Arc<(Mutex<(bool, usize)>, Condvar)>);

impl Latch {
    /// Waits until it is open.
    pub(crate) fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock();
        state.1 += 1;
        while !state.0 {
            state = changed.wait(state);
        }
        state.1 -= 1;
    }

    pub(crate) fn open(&self) {
        self.0.0.lock().0 = true;
        self.0.1.notify_all();
    }

    pub(crate) fn waiting(&self) -> usize {
        self.0.0.lock().1
    }
}

impl Latch {
    /// Makes one worker of the executor wait for it, and returns when it does.
    pub(crate) fn hold(&self, executor: &(impl Executor + ?Sized)) {
        let (latch, before) = (self.clone(), self.waiting());
        executor.submit(move || latch.pass()).expect("accepted").detach();
        eventually("the worker waits", || self.waiting() > before);
    }
}
