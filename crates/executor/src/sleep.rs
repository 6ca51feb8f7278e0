//! Which workers sleep, which search, and which thread wakes them. States, protocol and proof: `README.md`.

use std::sync::Arc;
use std::time::Duration;

use ropewalk_sync::atomic::{AtomicU32, Ordering, fence};
use ropewalk_sync::{Mutex, Parker};

/// One sleeper in the low half of the counts, one searcher in the high half.
const SLEEPER: u32 = 1;
const SEARCHER: u32 = 1 << 16;

fn sleepers(counts: u32) -> u32 {
    counts & (SEARCHER - 1)
}

fn searchers(counts: u32) -> u32 {
    counts >> 16
}

/// The result of a producer's search for helpers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Notified {
    /// A searcher will find the work; no worker was woken.
    Searching,
    /// A sleeper was woken, as a searcher.
    Woken,
    /// All workers are busy.
    AllBusy,
}

/// How a sleep ended; a worker that returns from one is a searcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Slept {
    /// There was something to do, so the worker did not sleep.
    NotAtAll,
    /// Another thread woke the worker.
    Woken,
    /// The time was up, or the wake-up was spurious.
    ByItself,
}

/// The sleeping and searching workers of one pool. It has cache lines to itself, because producers read it with every
/// job.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Sleep {
    /// How many workers sleep (low half) and search (high half). The sleepers' half changes only under the
    /// lock, so that it never differs from the list's length when the lock is free; both in one word, so that
    /// a producer needs one load.
    counts: AtomicU32,
    /// The parkers of the sleeping workers; the last one to park, whose cache is the warmest, is woken first.
    parked: Mutex<Vec<Arc<Parker>>>,
    /// At most this many workers search without a notification: the other cores are needed for work.
    search_limit: u32,
}

impl Sleep {
    pub(crate) fn new(search_limit: usize) -> Self {
        let search_limit = u32::try_from(search_limit).unwrap_or(u32::MAX).clamp(1, SEARCHER - 1);
        Self { counts: AtomicU32::new(0), parked: Mutex::new(Vec::new()), search_limit }
    }

    /// Makes sure that a worker finds the work that the caller has just put into a queue.
    #[inline]
    pub(crate) fn notify(&self) -> Notified {
        fence(Ordering::SeqCst);
        let counts = self.counts.load(Ordering::Relaxed);
        if searchers(counts) > 0 {
            Notified::Searching
        } else if sleepers(counts) == 0 {
            Notified::AllBusy
        } else {
            self.wake_one()
        }
    }

    #[cold]
    fn wake_one(&self) -> Notified {
        let mut parked = self.parked.lock();
        let Some(parker) = parked.pop() else { return Notified::AllBusy };
        self.counts.fetch_add(SEARCHER - SLEEPER, Ordering::Relaxed);
        drop(parked);
        parker.unpark();
        Notified::Woken
    }

    /// Wakes all, as searchers. Needs no fence: a worker that goes to sleep after this takes the lock after this, and
    /// checks then.
    pub(crate) fn wake_all(&self) {
        let mut parked = self.parked.lock();
        let woken = std::mem::take(&mut *parked);
        let count = u32::try_from(woken.len()).unwrap_or(0);
        self.counts.fetch_add(count.wrapping_mul(SEARCHER - SLEEPER), Ordering::Relaxed);
        drop(parked);
        for parker in woken {
            parker.unpark();
        }
    }

    /// Makes the caller a searcher, unless there are enough.
    pub(crate) fn try_search(&self) -> bool {
        self.counts
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |counts| {
                (searchers(counts) < self.search_limit).then_some(counts + SEARCHER)
            })
            .is_ok()
    }

    /// Counts a worker whose thread is being started as a searcher.
    pub(crate) fn add_searcher(&self) {
        self.counts.fetch_add(SEARCHER, Ordering::Relaxed);
    }

    /// The caller searches no more. If it was the last one, it must look for remaining work and
    /// [`notify`](Self::notify) for it: producers have relied on it.
    #[must_use]
    pub(crate) fn end_search(&self) -> bool {
        let before = self.counts.fetch_sub(SEARCHER, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        searchers(before) == 1
    }

    /// Announces a sleep, and sleeps unless `ready`; the caller returns as a searcher. `searching` says whether it came
    /// as one.
    pub(crate) fn sleep(
        &self,
        parker: &Arc<Parker>,
        searching: bool,
        timeout: Option<Duration>,
        ready: impl FnOnce() -> bool,
    ) -> Slept {
        let mut parked = self.parked.lock();
        parked.push(Arc::clone(parker));
        self.counts
            .fetch_add(if searching { SLEEPER.wrapping_sub(SEARCHER) } else { SLEEPER }, Ordering::Relaxed);
        drop(parked);
        fence(Ordering::SeqCst);
        let is_ready = ready();
        if !is_ready {
            parker.park(timeout);
        }
        // Every sleep ends under the lock: the list decides whether the worker was woken, not the parker's token, which
        // may be from an older wake-up.
        let mut parked = self.parked.lock();
        let found = parked.iter().rposition(|other| Arc::ptr_eq(other, parker));
        if let Some(at) = found {
            parked.remove(at);
            self.counts.fetch_add(SEARCHER - SLEEPER, Ordering::Relaxed);
        }
        match (is_ready, found) {
            (true, _) => Slept::NotAtAll,
            (false, None) => Slept::Woken,
            (false, Some(_)) => Slept::ByItself,
        }
    }

    /// How many workers sleep now.
    pub(crate) fn sleeping(&self) -> usize {
        sleepers(self.counts.load(Ordering::Relaxed)) as usize
    }

    /// How many workers search now.
    pub(crate) fn searching(&self) -> usize {
        searchers(self.counts.load(Ordering::Relaxed)) as usize
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn counts(sleep: &Sleep) -> (usize, usize) {
        (sleep.sleeping(), sleep.searching())
    }

    #[test]
    fn no_more_search_than_may() {
        for (limit, most) in [(0, 1), (1, 1), (2, 2)] {
            let sleep = Sleep::new(limit);
            let searching = (0..4).filter(|_| sleep.try_search()).count();
            assert_eq!((searching, counts(&sleep)), (most, (0, most)));
            // The last searcher takes care of the work that producers have left to it.
            let last: Vec<_> = (0..most).map(|_| sleep.end_search()).collect();
            assert_eq!(last.iter().filter(|last| **last).count(), 1);
            assert!(last[most - 1]);
            assert_eq!(counts(&sleep), (0, 0));
        }
    }

    #[test]
    fn a_producer_learns_whether_a_worker_will_come() {
        let sleep = Sleep::new(1);
        assert_eq!(sleep.notify(), Notified::AllBusy);
        sleep.add_searcher();
        assert_eq!((sleep.notify(), counts(&sleep)), (Notified::Searching, (0, 1)));
        assert!(sleep.end_search());
        assert_eq!(sleep.notify(), Notified::AllBusy);
    }

    #[test]
    fn whoever_finds_something_to_do_comes_back_as_a_searcher() {
        let (sleep, parker) = (Sleep::new(1), Arc::new(Parker::new()));
        let seen = |searching: bool| {
            let mut seen = (9, 9);
            let slept = sleep.sleep(&parker, searching, None, || {
                seen = counts(&sleep);
                true
            });
            assert_eq!(slept, Slept::NotAtAll);
            seen
        };
        assert_eq!(seen(false), (1, 0));
        assert_eq!(counts(&sleep), (0, 1));
        assert_eq!(seen(true), (1, 0));
        assert_eq!(counts(&sleep), (0, 1));
    }

    #[test]
    fn a_wake_up_differs_from_a_timeout() {
        let (sleep, parker) = (Sleep::new(1), Arc::new(Parker::new()));
        let slept = sleep.sleep(&parker, false, Some(Duration::from_millis(1)), || false);
        assert_eq!((slept, counts(&sleep)), (Slept::ByItself, (0, 1)));
        assert!(sleep.end_search());
        for all in [false, true] {
            // A wake-up between the check and the sleep: the token is there before the worker parks.
            let slept = sleep.sleep(&parker, false, None, || {
                if all {
                    sleep.wake_all();
                } else {
                    assert_eq!(sleep.notify(), Notified::Woken);
                }
                assert_eq!(counts(&sleep), (0, 1));
                false
            });
            assert_eq!((slept, counts(&sleep)), (Slept::Woken, (0, 1)));
            assert!(sleep.end_search());
        }
        sleep.wake_all();
        assert_eq!(counts(&sleep), (0, 0));
    }
}
