//! How the owner of several result rings wants to be woken, as one word that all their producers read.
//!
//! The owner writes the word before it stops polling; a producer reads it after each push. A thread that acts on it
//! swaps it back to [`AWAKE`], so that one sleep costs one wake-up. Between the owner's write and its last check of the
//! rings, and between a producer's push and its read of the word, stands a full fence: one of the two sees the other.
//!
//! A hostile producer can write anything into the word. It can make the owner sleep too long, which the owner bounds by
//! the time limit of its sleep, or wake it needlessly; no record depends on the word.

use std::time::Duration;

use ropewalk_sync::atomic::{Ordering, fence};
use ropewalk_sync::futex::{Futex, Shared, Wait};

#[cfg(not(loom))]
use crate::memory::Atomics;

/// The owner polls the rings.
pub const AWAKE: u32 = 0;
/// A thread of the owner sleeps on the word; any record wakes it.
pub const SLEEPING: u32 = 1;
/// The owner sleeps on its event descriptor; a producer that has nothing left to do wakes it.
pub const HUNGRY: u32 = 2;
/// The owner sleeps on its event descriptor; any record wakes it.
pub const ANY: u32 = 4;
/// The owner sleeps on its event descriptor, and only a ring that fills up wakes it.
pub const QUIET: u32 = 8;

/// See the module. Written by the owner (relaxed, before a fence) and swapped to `AWAKE` by the thread that wakes it.
#[repr(transparent)]
pub struct Attention(Futex<Shared>);

#[cfg(not(loom))]
// SAFETY: an atomic integer, and no more.
unsafe impl Atomics for Attention {}

/// What a producer must do to wake the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Wake {
    /// Nothing: the owner is awake, has been woken, or asked not to be.
    Nothing,
    /// Signal the owner's event descriptor.
    Event,
}

impl Attention {
    /// A word in the model checker's memory.
    #[cfg(loom)]
    #[cfg_attr(mutants, mutants::skip)]
    pub fn model() -> Self {
        Self(Futex::new(AWAKE))
    }

    /// The current mode.
    pub fn mode(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Owner: announces how it wants to be woken. It checks the rings once more after this, and only then sleeps.
    pub fn arm(&self, mode: u32) {
        if self.0.load(Ordering::Relaxed) != mode {
            self.0.store(mode, Ordering::Relaxed);
        }
        if mode != AWAKE {
            // Pairs with the fence in `after_push`.
            fence(Ordering::SeqCst);
        }
    }

    /// Owner: sleeps while the word is `SLEEPING`; may return early. True when a signal handler has to run first.
    pub fn sleep(&self, timeout: Option<Duration>) -> bool {
        self.0.wait_while(SLEEPING, timeout) == Wait::Interrupted
    }

    /// Another thread of the owner: wakes the one in [`sleep`](Self::sleep). `surely` returns whether a thread is known
    /// to sleep there, whatever a producer has written into the word.
    pub fn wake_sleeper(&self, surely: impl FnOnce() -> bool) {
        let swapped = self.0.compare_exchange(SLEEPING, AWAKE, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        if swapped || surely() {
            self.0.wake_one();
        }
    }

    /// Producer: after each push. `hungry`: the producer has nothing left to do; `crowded`: its ring is over half full.
    pub fn after_push(&self, hungry: impl FnOnce() -> bool, crowded: bool) -> Wake {
        fence(Ordering::SeqCst);
        let mode = self.mode();
        if mode == AWAKE {
            return Wake::Nothing;
        }
        if mode & (SLEEPING | ANY) != 0 || crowded || (mode & HUNGRY != 0 && hungry()) {
            self.wake(mode)
        } else {
            Wake::Nothing
        }
    }

    /// Producer: wakes the owner in the way that is armed.
    pub fn wake_owner(&self) -> Wake {
        self.wake(self.mode())
    }

    fn wake(&self, mut mode: u32) -> Wake {
        while mode != AWAKE {
            match self.0.compare_exchange(mode, AWAKE, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) if mode & SLEEPING != 0 => {
                    self.0.wake_one();
                    return Wake::Nothing;
                }
                Ok(_) => return Wake::Event,
                Err(now) => mode = now,
            }
        }
        Wake::Nothing
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    fn attention(word: &AtomicU32) -> &Attention {
        // SAFETY: both are transparent down to the atomic word, which lives as long as the reference.
        unsafe { &*std::ptr::from_ref(word).cast::<Attention>() }
    }

    #[test]
    fn a_producer_wakes_the_owner_in_the_way_that_is_armed() {
        use Wake::{Event, Nothing};
        for (mode, hungry, crowded, wake, left) in [
            (AWAKE, true, true, Nothing, AWAKE),
            (SLEEPING, false, false, Nothing, AWAKE),
            (ANY, false, false, Event, AWAKE),
            (HUNGRY, false, false, Nothing, HUNGRY),
            (HUNGRY, true, false, Event, AWAKE),
            (HUNGRY, false, true, Event, AWAKE),
            (QUIET, false, false, Nothing, QUIET),
            (QUIET, true, false, Nothing, QUIET),
            (QUIET, false, true, Event, AWAKE),
        ] {
            let word = AtomicU32::new(AWAKE);
            attention(&word).arm(mode);
            assert_eq!(attention(&word).mode(), mode);
            assert_eq!(attention(&word).after_push(|| hungry, crowded), wake, "{mode} {hungry} {crowded}");
            assert_eq!(attention(&word).mode(), left);
            let last = attention(&word).wake_owner();
            let expected = if matches!(left, HUNGRY | QUIET) { Event } else { Nothing };
            assert_eq!((last, attention(&word).mode()), (expected, AWAKE));
        }
    }

    #[test]
    fn a_sleeping_owner_sleeps_until_it_is_woken() {
        for by_producer in [false, true] {
            let word = AtomicU32::new(AWAKE);
            let attention = attention(&word);
            // Not armed: it returns at once, and not because of a signal.
            assert!(!attention.sleep(None));
            attention.arm(SLEEPING);
            assert!(!attention.sleep(Some(Duration::from_millis(1))), "the time is up");
            std::thread::scope(|scope| {
                let sleeper = scope.spawn(|| {
                    while attention.mode() == SLEEPING {
                        attention.sleep(None);
                    }
                });
                std::thread::sleep(Duration::from_millis(1));
                if by_producer {
                    assert_eq!(attention.after_push(|| false, false), Wake::Nothing);
                } else {
                    attention.wake_sleeper(|| unreachable!("the word says that somebody sleeps"));
                }
                sleeper.join().expect("no panic");
            });
        }
    }

    #[test]
    fn a_wake_up_asks_whether_a_thread_sleeps_if_the_word_does_not_say() {
        let word = AtomicU32::new(QUIET);
        let mut asked = 0;
        attention(&word).wake_sleeper(|| {
            asked += 1;
            false
        });
        assert_eq!((asked, attention(&word).mode()), (1, QUIET));
    }
}
