//! The word of a mutex: whether a thread holds the mutex, and whether others sleep until it is free.
//!
//! Source: Drepper, "Futexes Are Tricky", mutex 2; the standard library's `sys/sync/mutex/futex.rs`.

use crate::atomic::Ordering;
use crate::futex::Futex;

const UNLOCKED: u32 = 0;
/// One thread holds the mutex, and no other sleeps.
const LOCKED: u32 = 1;
/// One thread holds the mutex, and others may sleep: the unlock wakes one of them.
const CONTENDED: u32 = 2;

/// How often a thread looks again before it sleeps: most holders unlock sooner than a sleep takes.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 100 };

/// Mutual exclusion without a content.
#[derive(Debug)]
pub struct LockWord(Futex);

impl LockWord {
    /// An unlocked word.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(Futex::new(UNLOCKED))
    }

    /// An unlocked word.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(Futex::new(UNLOCKED))
    }

    /// Locks unless a thread holds the mutex.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.0.compare_exchange(UNLOCKED, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Locks; waits while another thread holds the mutex.
    #[inline]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended();
        }
    }

    /// Unlocks. Only the thread that has locked calls this.
    #[inline]
    pub fn unlock(&self) {
        if self.0.swap(UNLOCKED, Ordering::Release) == CONTENDED {
            // Another thread may lock before the woken one does, which then sleeps again. Handing the mutex over would
            // keep it locked until the woken thread runs.
            self.0.wake_one();
        }
    }

    #[cold]
    fn lock_contended(&self) {
        if self.look() == UNLOCKED && self.try_lock() {
            return;
        }
        loop {
            // A thread that has slept cannot know that it was the only one, so from now on its unlock wakes another.
            if self.0.swap(CONTENDED, Ordering::Acquire) == UNLOCKED {
                return;
            }
            let _ = self.0.wait_while(CONTENDED, None);
            self.look();
        }
    }

    /// Spins for a while, as long as no thread sleeps; returns the last word seen.
    fn look(&self) -> u32 {
        let mut looks = LOOKS;
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if word != LOCKED || looks == 0 {
                return word;
            }
            std::hint::spin_loop();
            looks -= 1;
        }
    }
}

impl Default for LockWord {
    fn default() -> Self {
        Self::new()
    }
}
