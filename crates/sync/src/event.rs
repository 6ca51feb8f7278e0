//! Something that threads wait for: a job's end, room in a queue, the end of the last worker.
//!
//! The event itself holds no condition. A waiter lists itself, looks at its condition once more, and sleeps; a
//! notifying thread makes the condition true, then looks for waiters. Each side has a SeqCst fence between its write
//! and its look, so at least one of them sees the other: no wake-up is lost, and a notification without waiters costs
//! one fence and one load.

use std::sync::Arc;
use std::time::Instant;

use crate::atomic::{AtomicU32, Ordering, fence};
use crate::{Mutex, Parker};

/// The threads that wait for one thing.
#[derive(Debug)]
pub struct Event {
    /// The number of listed waiters. Written under the lock, read without it; the fences order the two, see above.
    waiting: AtomicU32,
    listed: Mutex<Listed>,
}

/// The list of waiters. Most events have one, which costs no allocation.
#[derive(Debug, Default)]
struct Listed {
    first: Option<Arc<Parker>>,
    more: Vec<Arc<Parker>>,
}

impl Listed {
    fn len(&self) -> u32 {
        u32::from(self.first.is_some()) + u32::try_from(self.more.len()).unwrap_or(u32::MAX - 1)
    }
}

impl Event {
    /// An event without waiters.
    pub fn new() -> Self {
        Self { waiting: AtomicU32::new(0), listed: Mutex::new(Listed::default()) }
    }

    /// Lists a waiter, which then looks at its condition before it sleeps.
    pub fn listen(&self, waiter: &Arc<Parker>) {
        let mut listed = self.listed.lock();
        if listed.first.is_none() {
            listed.first = Some(Arc::clone(waiter));
        } else {
            listed.more.push(Arc::clone(waiter));
        }
        self.waiting.store(listed.len(), Ordering::Relaxed);
        drop(listed);
        fence(Ordering::SeqCst);
    }

    /// Removes a waiter from the list, if it is still listed.
    pub fn unlisten(&self, waiter: &Arc<Parker>) {
        let mut listed = self.listed.lock();
        if listed.first.as_ref().is_some_and(|first| Arc::ptr_eq(first, waiter)) {
            listed.first = None;
        } else {
            listed.more.retain(|other| !Arc::ptr_eq(other, waiter));
        }
        self.waiting.store(listed.len(), Ordering::Relaxed);
    }

    /// Wakes all listed waiters. The caller has made their condition true.
    #[inline]
    pub fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let mut listed = self.listed.lock();
        let woken = std::mem::take(&mut *listed);
        self.waiting.store(0, Ordering::Relaxed);
        drop(listed);
        for waiter in woken.first.iter().chain(&woken.more) {
            waiter.unpark();
        }
    }

    /// Sleeps until `ready`; false if the deadline passed first. Does not spin: the caller does, if it pays.
    pub fn wait(&self, deadline: Option<Instant>, ready: impl Fn() -> bool) -> bool {
        let parker = Parker::current();
        loop {
            self.listen(&parker);
            let mut is_ready = ready();
            let mut late = false;
            if !is_ready {
                let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                late = left.is_some_and(|left| left.is_zero());
                if !late {
                    parker.park(left);
                    is_ready = ready();
                }
            }
            self.unlisten(&parker);
            if is_ready || late {
                return is_ready;
            }
        }
    }
}

impl Default for Event {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_notifier_sees_how_many_are_listed() {
        let event = Event::new();
        let waiters: Vec<_> = (0..3).map(|_| Arc::new(Parker::new())).collect();
        let listed = || event.waiting.load(Ordering::Relaxed);
        for (before, waiter) in (0..).zip(&waiters) {
            assert_eq!(listed(), before);
            event.listen(waiter);
        }
        event.unlisten(&waiters[1]);
        assert_eq!(listed(), 2);
        event.unlisten(&waiters[1]);
        assert_eq!(listed(), 2, "it was gone already");
        event.unlisten(&waiters[0]);
        assert_eq!(listed(), 1);
        event.listen(&waiters[0]);
        event.notify();
        assert_eq!(listed(), 0);
        // Each listed waiter has a token, so it does not sleep.
        waiters[2].park(None);
        waiters[0].park(None);
    }
}
