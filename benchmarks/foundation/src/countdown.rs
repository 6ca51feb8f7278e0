//! Waiting for the last of many tasks, alike for every pool.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};

/// Tasks that have not run yet. The last one wakes the thread that waits, so the end of a batch costs one wake-up,
/// whichever pool runs it.
pub struct Countdown {
    /// Tasks not run. Workers count down, the waiter reads; release and acquire, so that what the tasks did is seen.
    left: AtomicUsize,
    waiter: Thread,
}

impl Countdown {
    /// A countdown that the calling thread will wait for. It is never freed: a task that captures a plain reference is
    /// as small as its C++ counterpart, and no reference count is in the times.
    pub fn new(tasks: usize) -> &'static Self {
        Box::leak(Box::new(Self { left: AtomicUsize::new(tasks), waiter: thread::current() }))
    }

    /// One task ran.
    #[inline]
    pub fn ran(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waiter.unpark();
        }
    }

    /// Returns once all tasks ran. Only the thread that made the countdown is woken.
    pub fn wait(&self) {
        while self.left.load(Ordering::Acquire) != 0 {
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_many_ends_the_wait() {
        let countdown = Countdown::new(400);
        let threads: Vec<_> =
            (0..4).map(|_| thread::spawn(|| (0..100).for_each(|_| countdown.ran()))).collect();
        countdown.wait();
        assert_eq!(countdown.left.load(Ordering::Relaxed), 0);
        threads.into_iter().for_each(|thread| thread.join().expect("it only counts"));
    }
}
