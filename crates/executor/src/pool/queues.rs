//! The queues that all workers share: one for each priority.

use crossbeam_deque::{Injector, Steal, Worker as Deque};

use crate::job::Priority;
use crate::work::Work;

pub(super) struct Queues {
    high: Injector<Work>,
    normal: Injector<Work>,
    low: Injector<Work>,
}

/// Repeats a steal that lost a race.
pub(super) fn steal(mut attempt: impl FnMut() -> Steal<Work>) -> Option<Work> {
    loop {
        match attempt() {
            Steal::Success(work) => return Some(work),
            Steal::Empty => return None,
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}

fn take(queue: &Injector<Work>) -> Option<Work> {
    // The check is two loads; an attempt to steal would cost a fence.
    if queue.is_empty() { None } else { steal(|| queue.steal()) }
}

impl Queues {
    pub(super) fn new() -> Self {
        Self { high: Injector::new(), normal: Injector::new(), low: Injector::new() }
    }

    pub(super) fn push(&self, priority: Priority, work: Work) {
        match priority {
            Priority::High => self.high.push(work),
            Priority::Normal => self.normal.push(work),
            Priority::Low => self.low.push(work),
        }
    }

    pub(super) fn any(&self) -> bool {
        !(self.high.is_empty() && self.normal.is_empty() && self.low.is_empty())
    }

    pub(super) fn high(&self) -> Option<Work> {
        take(&self.high)
    }

    pub(super) fn low(&self) -> Option<Work> {
        take(&self.low)
    }

    /// The oldest job; some of those behind it go to the end of `deque`.
    pub(super) fn normal(&self, deque: &Deque<Work>) -> Option<Work> {
        if self.normal.is_empty() { None } else { steal(|| self.normal.steal_batch_and_pop(deque)) }
    }

    /// Brings some of the oldest jobs to the end of `deque`.
    pub(super) fn fetch(&self, deque: &Deque<Work>) {
        while !self.normal.is_empty() && self.normal.steal_batch(deque).is_retry() {
            std::hint::spin_loop();
        }
    }
}
