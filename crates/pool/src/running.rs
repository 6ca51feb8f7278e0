//! The task that a lane of a worker runs, as the task's own code sees it: its limits, whether it is asked to stop, and
//! what it reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ropewalk_base::Result;
use ropewalk_os::clock::monotonic_nanos;
use ropewalk_os::mmap::Mapping;
use ropewalk_sync::Mutex;

use crate::lane::LaneLayout;
use crate::pace::{Credit, Pace};
use crate::pulse::{Progress, Pulse};

/// The limits of a task, which its worker knows before it starts the task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Nanoseconds of the monotonic clock at which the task must be done; 0 for no limit.
    pub deadline: u64,
    /// Nanoseconds that its call may take; 0 for no limit.
    pub timeout: u64,
    /// What a stream may send before its reader has read anything.
    pub credit: Credit,
}

impl Terms {
    /// Bytes of a record's payload.
    pub(crate) const SIZE: usize = 32;

    pub(crate) fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let words = [self.deadline, self.timeout, self.credit.items, self.credit.bytes];
        for (place, word) in bytes.chunks_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            let bytes = bytes.get(at * 8..at * 8 + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_le_bytes)
        };
        Self { deadline: word(0), timeout: word(1), credit: Credit { items: word(2), bytes: word(3) } }
    }
}

/// See the module. One for each lane, for as long as the lane is served.
#[derive(Debug)]
pub struct Running {
    /// The task's id; 0 between two tasks. Written by the lane's thread, read by any thread of the task: what it guards
    /// is written before it, and it is read again after a report, so relaxed would do for all but the first.
    task: AtomicU64,
    attempt: AtomicU64,
    /// As in [`Terms`]; with the timeout, once the call has begun.
    deadline: AtomicU64,
    /// With the last progress of the task that runs. The lock keeps reports of a task's threads apart.
    pulse: Mutex<(Pulse, Option<Progress>)>,
    /// Whether there is one. Written under the lock; read at the end of each task, which then need not take it.
    reported: AtomicBool,
    pace: Pace,
}

impl Running {
    pub(crate) fn new(map: &Arc<Mapping>, layout: LaneLayout) -> Result<Self> {
        Ok(Self {
            task: AtomicU64::new(0),
            attempt: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            pulse: Mutex::new((Pulse::new(map, layout.pulse())?, None)),
            reported: AtomicBool::new(false),
            pace: Pace::new(map, layout.pace())?,
        })
    }

    /// The lane's thread has taken this task.
    pub fn start(&self, task: u64, attempt: u32, deadline: u64) {
        self.attempt.store(attempt.into(), Ordering::Relaxed);
        self.deadline.store(deadline, Ordering::Relaxed);
        self.task.store(task, Ordering::Release);
    }

    /// The call begins, which may take this long.
    pub fn begin(&self, timeout: u64) {
        let end = monotonic_nanos().saturating_add(timeout);
        let known = self.deadline.load(Ordering::Relaxed);
        self.deadline.store(if known == 0 { end } else { known.min(end) }, Ordering::Relaxed);
    }

    /// The task has ended; gives its last progress, if it reported any.
    pub fn end(&self) -> Option<Progress> {
        self.task.store(0, Ordering::Release);
        if !self.reported.load(Ordering::Relaxed) {
            return None;
        }
        let mut pulse = self.pulse.lock();
        self.reported.store(false, Ordering::Relaxed);
        pulse.1.take()
    }

    /// The id of the task that runs; 0 between two tasks.
    pub fn task(&self) -> u64 {
        self.task.load(Ordering::Acquire)
    }

    /// Which attempt of its task this is, counted from 1.
    pub fn attempt(&self) -> u64 {
        self.attempt.load(Ordering::Relaxed)
    }

    /// The time that is left, if there is a limit.
    pub fn left(&self) -> Option<Duration> {
        match self.deadline.load(Ordering::Relaxed) {
            0 => None,
            at => Some(Duration::from_nanos(at.saturating_sub(monotonic_nanos()))),
        }
    }

    /// Whether this task is asked to stop.
    pub fn stopped(&self, task: u64) -> bool {
        self.pace.stopped(task)
    }

    /// How much of a stream this task may send in all, if that has been raised since the task was sent.
    pub fn granted(&self, task: u64) -> Option<Credit> {
        self.pace.granted(task)
    }

    /// Sleeps until the parent asks or grants something, unless `ready` holds; may return early.
    pub fn wait_for_parent(&self, ready: impl FnOnce() -> bool, timeout: Duration) {
        self.pace.sleep_unless(ready, timeout);
    }

    /// Reports for a task that it is alive, and how far it is; nothing once it has ended.
    pub fn report(&self, task: u64, progress: Option<Progress>) {
        let mut pulse = self.pulse.lock();
        if self.task() != task {
            return;
        }
        pulse.0.write(task, progress.as_ref());
        if progress.is_some() {
            pulse.1 = progress;
            self.reported.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use ropewalk_os::mmap::Protection;

    use super::*;
    use crate::lane::Lane;

    fn both() -> (Lane, Running) {
        let (lane, fd) = Lane::create(0).expect("a lane");
        let layout = LaneLayout::DEFAULT;
        let map = Mapping::map(fd.as_fd(), layout.size(), Protection::ReadWrite).expect("a mapping");
        let running = Running::new(&Arc::new(map), layout).expect("its words");
        (lane, running)
    }

    #[test]
    fn terms_travel_as_they_are() {
        let terms = Terms { deadline: 1, timeout: 1 << 60, credit: Credit { items: 3, bytes: 4 } };
        assert_eq!(Terms::from_bytes(&terms.to_bytes()), terms);
        assert_eq!(Terms::from_bytes(b"short"), Terms::default());
    }

    #[test]
    fn the_nearer_of_two_limits_counts() {
        let (_lane, running) = both();
        running.start(1, 2, 0);
        assert_eq!((running.task(), running.attempt(), running.left()), (1, 2, None));
        running.begin(1 << 40);
        let left = running.left().expect("a limit");
        assert!(left <= Duration::from_nanos(1 << 40) && left > Duration::from_nanos(1 << 39));
        running.start(1, 2, 1);
        running.begin(1 << 40);
        assert_eq!(running.left(), Some(Duration::ZERO), "the deadline has passed");
        running.start(1, 2, monotonic_nanos() + (1 << 45));
        running.begin(0);
        assert_eq!(running.left(), Some(Duration::ZERO));
    }

    #[test]
    fn a_thread_of_a_task_that_has_ended_reports_nothing() {
        let (lane, running) = both();
        running.start(5, 1, 0);
        running.report(5, None);
        assert!(lane.pulse.read(5).is_some());
        assert_eq!(running.end(), None);
        running.start(6, 1, 0);
        running.report(5, Some(Progress::new(1.0, None, None)));
        assert!(
            lane.pulse.read(5).is_some_and(|beat| beat.progress.is_none()) && lane.pulse.read(6).is_none()
        );
        assert!(!running.stopped(6));
        lane.pace.stop(6);
        assert!(running.stopped(6) && !running.stopped(5));
    }

    #[test]
    fn the_last_progress_is_there_at_the_end_and_once() {
        let (_lane, running) = both();
        running.start(5, 1, 0);
        for done in [1.0, 2.0] {
            running.report(5, Some(Progress::new(done, None, None)));
        }
        running.report(5, None);
        assert_eq!(running.end().map(|progress| progress.done), Some(2.0));
        assert_eq!(running.end(), None);
    }
}
