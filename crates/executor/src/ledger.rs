//! How many jobs were accepted and how many have ended: from this a pool knows when it may end.
//!
//! Producers outside count in one word that also holds the closed bit, so that a job is accepted or refused,
//! never something between. Each worker counts for itself what it accepts and ends: no line is shared.

use ropewalk_sync::atomic::{AtomicU64, Ordering};

const CLOSED: u64 = 1;
const ONE: u64 = 2;

/// The jobs that one worker has accepted and ended. Written by the thread that runs as that worker, read by all.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Jobs that this worker's own jobs handed in.
    accepted: AtomicU64,
    /// Jobs that this worker took from a queue and ended: run, or found cancelled. Release, and Acquire at the reader:
    /// the jobs that a job handed in are counted before that job ends.
    ended: AtomicU64,
}

impl Tally {
    /// Counts a job that this worker's running job hands in.
    pub(crate) fn accept(&self) {
        self.accepted.store(self.accepted.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts a job that has ended.
    pub(crate) fn end(&self) {
        self.ended.store(self.ended.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// The intake of one pool. It has cache lines to itself: producers outside write to it with every job, and workers
/// constantly read the data around it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Ledger {
    /// Jobs accepted from outside, times two, plus the closed bit, which is never cleared.
    intake: AtomicU64,
    /// Jobs that ended without a worker: delayed ones that were cancelled.
    withdrawn: AtomicU64,
}

/// The result of offering a job from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Intake {
    /// The job is counted, and must be put into a queue.
    Accepted,
    /// The pool is closed.
    Closed,
    /// The pool was closed at this moment, and the count was briefly one too high: the caller makes the workers check
    /// again.
    ClosedNow,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self { intake: AtomicU64::new(0), withdrawn: AtomicU64::new(0) }
    }

    /// Accepts a job from outside, or refuses it.
    pub(crate) fn accept(&self) -> Intake {
        if self.closed() {
            return Intake::Closed;
        }
        if self.intake.fetch_add(ONE, Ordering::Relaxed) & CLOSED == 0 {
            return Intake::Accepted;
        }
        self.intake.fetch_sub(ONE, Ordering::Relaxed);
        Intake::ClosedNow
    }

    /// Counts a job that ended without a worker.
    pub(crate) fn withdraw(&self) {
        self.withdrawn.fetch_add(1, Ordering::Release);
    }

    /// Refuses everything from now on.
    pub(crate) fn close(&self) {
        self.intake.fetch_or(CLOSED, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) -> bool {
        self.intake.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Jobs that were accepted and have not ended: an upper bound while the pool works, exact when it is idle.
    ///
    /// The ends are read first. A count of ends that equals a later count of acceptances proves that at the
    /// moment between nothing was queued and nothing ran (Mattern, "Algorithms for distributed termination
    /// detection", 1987).
    pub(crate) fn open<'a>(&self, tallies: impl Iterator<Item = &'a Tally> + Clone) -> u64 {
        let ended = tallies.clone().map(|tally| tally.ended.load(Ordering::Acquire)).sum::<u64>()
            + self.withdrawn.load(Ordering::Acquire);
        let inside = tallies.map(|tally| tally.accepted.load(Ordering::Relaxed)).sum::<u64>();
        (inside + self.intake.load(Ordering::Relaxed) / ONE).saturating_sub(ended)
    }

    /// Whether the pool is closed and every job that it accepted has ended.
    pub(crate) fn settled<'a>(&self, tallies: impl Iterator<Item = &'a Tally> + Clone) -> bool {
        self.closed() && self.open(tallies) == 0
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_accepted_less_ended() {
        let (ledger, tallies) = (Ledger::new(), [Tally::default(), Tally::default()]);
        let open = || ledger.open(tallies.iter());
        for accepted in 1..=3 {
            assert_eq!(ledger.accept(), Intake::Accepted);
            assert_eq!(open(), accepted);
        }
        tallies[0].accept();
        tallies[0].accept();
        assert_eq!(open(), 5);
        tallies[1].end();
        tallies[1].end();
        tallies[0].end();
        ledger.withdraw();
        assert_eq!(open(), 1);
        assert!(!ledger.closed() && !ledger.settled(tallies.iter()));
        ledger.close();
        assert!(ledger.closed() && !ledger.settled(tallies.iter()));
        assert_eq!((ledger.accept(), open()), (Intake::Closed, 1));
        tallies[0].end();
        assert_eq!(open(), 0);
        assert!(ledger.settled(tallies.iter()));
        tallies[0].end();
        assert_eq!(open(), 0, "ends that are read late do not make it less than none");
    }

    #[test]
    fn nothing_is_settled_while_the_pool_is_open() {
        let ledger = Ledger::new();
        assert!(!ledger.settled([].iter()));
        ledger.close();
        assert!(ledger.settled([].iter()));
    }
}
