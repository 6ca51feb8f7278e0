//! What the parent asks of the task that a lane runs: to stop, and how many items of a stream it may send.
//!
//! The parent writes it into the lane's memory, and the worker, which trusts its parent, reads it. A task that waits
//! for credit sleeps on a flag of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use ropewalk_base::Result;
use ropewalk_os::mmap::Mapping;
use ropewalk_shm::memory::Words;
use ropewalk_sync::futex::{Shared, SleepFlag};

/// How many items of a stream, and how many bytes of them, a task may have sent in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Items.
    pub items: u64,
    /// An item may be sent while fewer bytes than these were sent before it.
    pub bytes: u64,
}

/// One lane's words for it: the task that is asked to stop; then the task whose credit follows, the items and the
/// bytes. An id is written after what belongs to it, and only for the task that the lane runs, so a reader that finds
/// its own id finds its own numbers, which only grow.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    words: Words<[AtomicU64; 4]>,
    /// Raised by the worker while it waits for credit; lowered by the parent, which then wakes it.
    sleeps: Words<SleepFlag<Shared>>,
}

impl Pace {
    /// Bytes of the words.
    pub(crate) const SIZE: usize = 64;

    pub(crate) fn new(map: &Arc<Mapping>, offset: usize) -> Result<Self> {
        let sleeps = offset + size_of::<[AtomicU64; 4]>();
        Ok(Self { words: Words::new(map, offset)?, sleeps: Words::new(map, sleeps)? })
    }

    /// Parent: asks a task that runs to stop.
    pub(crate) fn stop(&self, task: u64) {
        self.words[0].store(task, Ordering::Release);
        self.wake();
    }

    /// Worker: whether its task is asked to stop.
    pub(crate) fn stopped(&self, task: u64) -> bool {
        self.words[0].load(Ordering::Acquire) == task
    }

    /// Parent: raises the credit of the task that the lane runs.
    pub(crate) fn grant(&self, task: u64, credit: Credit) {
        let [_, id, items, bytes] = &*self.words;
        items.store(credit.items, Ordering::Relaxed);
        bytes.store(credit.bytes, Ordering::Relaxed);
        id.store(task, Ordering::Release);
        self.wake();
    }

    /// Worker: the credit of its task, if it has been raised since the task was sent.
    pub(crate) fn granted(&self, task: u64) -> Option<Credit> {
        let [_, id, items, bytes] = &*self.words;
        (id.load(Ordering::Acquire) == task)
            .then(|| Credit { items: items.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) })
    }

    /// Worker: sleeps until the parent has written something, unless `ready` holds by then; may return early.
    pub(crate) fn sleep_unless(&self, ready: impl FnOnce() -> bool, timeout: Duration) {
        self.sleeps.sleep_unless(ready, Some(timeout));
    }

    fn wake(&self) {
        // Pairs with the fence in `sleep_unless`: either the worker sees what was written, or this sees that it sleeps.
        fence(Ordering::SeqCst);
        self.sleeps.wake_if_asleep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::Lane;

    #[test]
    fn a_word_is_for_one_task() {
        let (lane, _fd) = Lane::create(0).expect("a lane");
        let pace = &lane.pace;
        assert!(!pace.stopped(4) && pace.granted(4).is_none());
        pace.stop(4);
        assert!(pace.stopped(4) && !pace.stopped(5));
        let credit = Credit { items: 9, bytes: 10 };
        pace.grant(4, credit);
        assert_eq!((pace.granted(4), pace.granted(5)), (Some(credit), None));
    }

    #[test]
    fn a_sleeper_is_woken_by_credit_and_by_the_wish_that_it_stop() {
        let (lane, _fd) = Lane::create(0).expect("a lane");
        let (pace, long) = (&lane.pace, Duration::from_secs(60));
        for way in [0, 1] {
            std::thread::scope(|scope| {
                let sleeper = scope.spawn(|| {
                    let ready = || pace.granted(1).is_some() || pace.stopped(2);
                    while !(if way == 0 { pace.granted(1).is_some() } else { pace.stopped(2) }) {
                        pace.sleep_unless(|| way == 0 && ready() || pace.stopped(2), long);
                    }
                });
                std::thread::yield_now();
                if way == 0 {
                    pace.grant(1, Credit::default())
                } else {
                    pace.stop(2)
                }
                sleeper.join().expect("it was woken");
            });
        }
    }
}
