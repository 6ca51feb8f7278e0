//! What a task and the program tell each other while the task runs, as far as this process holds it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ropewalk_sync::Mutex;

use crate::clock;
use crate::pulse::Progress;

/// Made for a task when the first of them is needed, and shared with the code that runs it in a thread of this process.
#[derive(Debug, Default)]
pub struct Signals {
    /// Whether the task is asked to stop by itself. Set once, under the pool's lock.
    stop: AtomicBool,
    /// Whether it has ended. Set once.
    ended: AtomicBool,
    /// When it said last that it is alive, in nanoseconds of the monotonic clock, in a thread of this process; 0 for
    /// never. Written by any thread of the task, and a hint: the last word counts.
    beat: AtomicU64,
    /// How far it has said that it is: a thread's task at any time, another at its end.
    progress: Mutex<Option<Progress>>,
}

impl Signals {
    pub(crate) fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Whether the task is asked to stop by itself.
    pub fn is_asked_to_stop(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Whether the task has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The task is alive.
    pub fn beat(&self) {
        self.beat.store(clock::nanos(), Ordering::Relaxed);
    }

    /// When it said so last.
    pub(crate) fn last_beat(&self) -> Option<u64> {
        Some(self.beat.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    /// Reports how far the task is, unless it has ended.
    pub fn report(&self, progress: Progress) {
        self.beat();
        let mut place = self.progress.lock();
        if !self.has_ended() {
            *place = Some(progress);
        }
    }

    /// How far it has said that it is.
    pub fn progress(&self) -> Option<Progress> {
        self.progress.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_has_ended_reports_no_more() {
        let signals = Signals::default();
        let progress = |done| Progress::new(done, None, None);
        signals.report(progress(1.0));
        assert!(!signals.has_ended() && !signals.is_asked_to_stop());
        signals.end();
        signals.report(progress(2.0));
        assert_eq!((signals.progress(), signals.has_ended()), (Some(progress(1.0)), true));
    }
}
