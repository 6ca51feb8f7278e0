//! The one seam for atomics and sleeping: swapped for loom's under `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use std::time::Duration;

/// Sleeps while the word is `expected`; may return early.
#[cfg(not(loom))]
pub(crate) fn sleep_on(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let _ = windlass_os::futex::wait(word, expected, timeout, windlass_os::futex::Scope::Shared);
}

/// Wakes one sleeper.
#[cfg(not(loom))]
pub(crate) fn wake(word: &AtomicU32) {
    windlass_os::futex::wake(word, 1, windlass_os::futex::Scope::Shared);
}

/// A futex whose wake-up is the change of the word: a lost one is a loop without end, which loom reports.
#[cfg(loom)]
pub(crate) fn sleep_on(word: &AtomicU32, expected: u32, _timeout: Option<Duration>) {
    while word.load(Ordering::Relaxed) == expected {
        loom::thread::yield_now();
    }
}

#[cfg(loom)]
pub(crate) fn wake(_word: &AtomicU32) {}
