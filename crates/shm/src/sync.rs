//! The one seam for atomics and sleeping: swapped for loom's under `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use std::time::Duration;

/// A word that one thread, of any process that maps it, sleeps on. For the ends of a ring it is 1 while one sleeps
/// or is about to, else 0.
///
/// A peer that writes something else costs a wake-up too many or too few, which callers survive by their
/// timeouts.
#[repr(transparent)]
#[cfg(not(loom))]
pub(crate) struct Futex(AtomicU32);

#[cfg(not(loom))]
impl Futex {
    #[inline]
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Sleeps while the word is this; may return early. True when a signal handler has to run first.
    pub(crate) fn sleep_while(&self, value: u32, timeout: Option<Duration>) -> bool {
        let waited = ropewalk_os::futex::wait(&self.0, value, timeout, ropewalk_os::futex::Scope::Shared);
        matches!(waited, ropewalk_os::futex::Wait::Interrupted)
    }

    /// Wakes who sleeps here, if anybody does.
    #[cold]
    pub(crate) fn wake(&self) {
        ropewalk_os::futex::wake(&self.0, 1, ropewalk_os::futex::Scope::Shared);
    }
}

/// The model of a futex: the kernel compares and goes to sleep under a lock that a wake-up takes, too. A
/// thread that sleeps for ever is a deadlock, which loom reports.
#[cfg(loom)]
pub(crate) struct Futex {
    word: AtomicU32,
    kernel: loom::sync::Mutex<()>,
    sleepers: loom::sync::Condvar,
}

#[cfg(loom)]
#[cfg_attr(mutants, mutants::skip)]
impl Futex {
    pub(crate) fn model() -> Self {
        Self {
            word: AtomicU32::new(0),
            kernel: loom::sync::Mutex::new(()),
            sleepers: loom::sync::Condvar::new(),
        }
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// Without the timeout, which would hide a lost wake-up.
    pub(crate) fn sleep_while(&self, value: u32, _timeout: Option<Duration>) -> bool {
        let Ok(kernel) = self.kernel.lock() else { return false };
        if self.word.load(Ordering::Relaxed) == value {
            drop(self.sleepers.wait(kernel));
        }
        false
    }

    pub(crate) fn wake(&self) {
        let Ok(_kernel) = self.kernel.lock() else { return };
        self.sleepers.notify_one();
    }
}

impl Futex {
    /// Sleeps while the word is 1; may return early.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        let _ = self.sleep_while(1, timeout);
    }

    /// Says that the caller is about to sleep; it then looks once more for what it waits for.
    ///
    /// By a swap, which comes after a waker's last one in the word's modification order: a plain store would
    /// do as well, but loom does not know that nothing comes between a swap and the store that it read.
    pub(crate) fn announce(&self) {
        self.word().swap(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that the caller is awake.
    pub(crate) fn withdraw(&self) {
        self.word().store(0, Ordering::Relaxed);
    }

    /// Wakes who sleeps here, if the word says so; one load when it does not. The caller has issued a SeqCst
    /// fence since it wrote what the sleeper waits for.
    #[inline]
    pub(crate) fn wake_if_asleep(&self) -> bool {
        if self.word().load(Ordering::Relaxed) == 0 || self.word().swap(0, Ordering::AcqRel) == 0 {
            return false;
        }
        self.wake();
        true
    }
}
