//! One thread's sleep: it lasts until another thread leaves a token.
//!
//! `std::thread::park` will not do, because its token belongs to the thread: a job that parks for reasons of its own
//! must not lose a token to us.

use std::sync::Arc;
use std::time::Duration;

use crate::atomic::Ordering;
use crate::futex::Futex;

const EMPTY: u32 = 0;
const TOKEN: u32 = 1;
const PARKED: u32 = u32::MAX;

/// Where one thread sleeps and other threads leave a token for it.
#[derive(Debug)]
pub struct Parker {
    /// `EMPTY`, `TOKEN`, or `PARKED` while the owner sleeps or is about to. Leaving a token is Release and taking it is
    /// Acquire: the woken thread sees what was done before the wake-up.
    word: Futex,
}

impl Parker {
    /// A parker without a token.
    pub fn new() -> Self {
        Self { word: Futex::new(EMPTY) }
    }

    /// The calling thread's own parker.
    pub fn current() -> Arc<Self> {
        #[cfg(not(loom))]
        {
            thread_local!(static CURRENT: Arc<Parker> = Arc::new(Parker::new()));
            // A thread that is being torn down has lost its own parker; a new one serves as well.
            CURRENT.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Self::new()))
        }
        #[cfg(loom)]
        Arc::new(Self::new())
    }

    /// Sleeps until there is a token, and takes it. May return early: callers look again. Only one thread, the owner,
    /// calls it.
    pub fn park(&self, timeout: Option<Duration>) {
        // TOKEN becomes EMPTY, EMPTY becomes PARKED.
        if self.word.fetch_sub(1, Ordering::Acquire) == TOKEN {
            return;
        }
        let _ = self.word.wait_while(PARKED, timeout);
        self.word.swap(EMPTY, Ordering::Acquire);
    }

    /// Leaves a token, and wakes the owner if it sleeps.
    pub fn unpark(&self) {
        if self.word.swap(TOKEN, Ordering::Release) == PARKED {
            self.word.wake_one();
        }
    }
}

impl Default for Parker {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_token_ends_one_sleep_whenever_it_was_left() {
        let parker = Parker::new();
        parker.unpark();
        parker.unpark();
        parker.park(None);
        assert_eq!(parker.word.load(Ordering::Relaxed), EMPTY, "two tokens are one");
        parker.park(Some(Duration::from_millis(1)));
        assert_eq!(parker.word.load(Ordering::Relaxed), EMPTY, "no thread sleeps any more");
    }

    #[test]
    fn a_sleeper_is_woken() {
        let parker = Parker::new();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| parker.park(None));
            while parker.word.load(Ordering::Relaxed) != PARKED {
                std::thread::yield_now();
            }
            parker.unpark();
            sleeper.join().expect("no panic");
        });
    }

    #[test]
    fn a_thread_has_one_of_its_own() {
        let own = Parker::current();
        assert!(Arc::ptr_eq(&own, &Parker::current()));
        let other = std::thread::spawn(Parker::current).join().expect("no panic");
        assert!(!Arc::ptr_eq(&own, &other));
    }
}
