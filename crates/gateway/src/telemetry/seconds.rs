//! What the calls of a tool were in each of the last seconds: the history that a dashboard shows when it is opened.
//!
//! No timer runs for it. The first call that ends in a new second closes the one before: it keeps by how much the
//! tool's counters, which are there anyway, have grown since the last time. All other calls read one number.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use ropewalk_sync::Mutex;

use super::families::BOUNDS;

/// Seconds that are kept.
pub(crate) const KEPT: u64 = 300;

/// The numbers of buckets of times.
pub(crate) type Buckets = [u64; BOUNDS.len() + 1];

/// Calls that have ended, and how long they took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// All.
    pub(crate) ended: u64,
    /// Of those, the ones that failed for a fault of the tool or the server, or for want of time.
    pub(crate) failed: u64,
    /// Those that the server let go of before a worker had begun them.
    pub(crate) shed: u64,
    /// How long they took, by `BOUNDS`.
    pub(crate) buckets: Buckets,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.ended += other.ended;
        self.failed += other.failed;
        self.shed += other.shed;
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, count)| *sum += count);
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            ended: self.ended.saturating_sub(before.ended),
            failed: self.failed.saturating_sub(before.failed),
            shed: self.shed.saturating_sub(before.shed),
            buckets: std::array::from_fn(|place| self.buckets[place].saturating_sub(before.buckets[place])),
        }
    }

    /// The time in seconds that this part of the calls did not exceed, from 0 to 1: exact to a bucket, within which the
    /// calls are taken to be spread evenly. `None` without calls.
    pub(crate) fn quantile(&self, part: f64) -> Option<f64> {
        let all: u64 = self.buckets.iter().sum();
        if all == 0 {
            return None;
        }
        let rank = part * all as f64;
        let mut below = 0.0;
        let mut floor = 0.0;
        for (place, count) in self.buckets.iter().enumerate() {
            // Beyond the last bound there is none to go to.
            let Some(bound) = BOUNDS.get(place) else { break };
            let here = *count as f64;
            if here > 0.0 && below + here >= rank {
                return Some(floor + (bound - floor) * ((rank - below) / here).clamp(0.0, 1.0));
            }
            below += here;
            floor = *bound;
        }
        Some(floor)
    }
}

/// One second: its number since the server's start, and what ended in it.
pub(crate) type Second = (u64, Totals);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Seconds {
    /// The second that calls end in now. Written under the lock; a call that reads an old one takes the lock and looks
    /// again, hence relaxed.
    open: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The counters when the open second began.
    before: Totals,
    seconds: VecDeque<Second>,
}

impl Seconds {
    /// A call is about to be counted in this second.
    pub(super) fn turn(&self, now: u64, totals: impl FnOnce() -> Totals) {
        if self.open.load(Ordering::Relaxed) < now {
            drop(self.kept_until(now, totals));
        }
    }

    /// The seconds from `from` on in which calls have ended, oldest first; the last one may be going on.
    pub(super) fn read(&self, from: u64, now: u64, totals: impl Fn() -> Totals) -> Vec<Second> {
        let kept = self.kept_until(now, &totals);
        let open = (self.open.load(Ordering::Relaxed), totals().since(&kept.before));
        let closed = kept.seconds.iter().filter(|(second, _)| *second >= from).cloned();
        closed.chain(Some(open).filter(|(second, sum)| sum.ended > 0 && *second >= from)).collect()
    }

    /// Closes the seconds before this one.
    fn kept_until(
        &self,
        now: u64,
        totals: impl FnOnce() -> Totals,
    ) -> impl std::ops::Deref<Target = Kept> + '_ {
        let mut kept = self.kept.lock();
        let open = self.open.load(Ordering::Relaxed);
        if open < now {
            let totals = totals();
            let ended = totals.since(&kept.before);
            if ended.ended > 0 {
                kept.seconds.push_back((open, ended));
                kept.before = totals;
            }
            while kept.seconds.front().is_some_and(|(second, _)| second + KEPT <= now) {
                kept.seconds.pop_front();
            }
            self.open.store(now, Ordering::Relaxed);
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(ended: u64) -> Totals {
        let mut totals = Totals { ended, ..Totals::default() };
        totals.buckets[3] = ended;
        totals
    }

    #[test]
    fn a_second_has_what_was_counted_until_a_call_came_in_a_later_one() {
        let seconds = Seconds::default();
        seconds.turn(1, || totals(0));
        seconds.turn(1, || unreachable!("it is open"));
        seconds.turn(4, || totals(7));
        let read = |now, ended| {
            let read = seconds.read(0, now, || totals(ended));
            read.into_iter().map(|(second, sum)| (second, sum.ended)).collect::<Vec<_>>()
        };
        assert_eq!(read(4, 7), [(1, 7)]);
        assert_eq!(read(4, 9), [(1, 7), (4, 2)]);
        assert_eq!(read(5, 9), [(1, 7), (4, 2)]);
        assert_eq!(read(5, 10), [(1, 7), (4, 2), (5, 1)]);
        assert_eq!(seconds.read(4, 5, || totals(10)).len(), 2);
        assert_eq!(read(4 + KEPT, 10), [(5, 1)], "older ones are forgotten");
    }

    #[test]
    fn a_quantile_is_in_the_bucket_of_its_call() {
        let mut times = Totals::default();
        assert_eq!(times.quantile(0.5), None);
        (times.buckets[0], times.buckets[9]) = (90, 10);
        let (half, high) = (times.quantile(0.5).expect("calls"), times.quantile(0.99).expect("calls"));
        assert!(half <= BOUNDS[0] && half > 0.0, "{half}");
        assert!(BOUNDS[8] < high && high <= BOUNDS[9], "{high}");
        let mut late = Totals::default();
        late.buckets[BOUNDS.len()] = 1;
        assert_eq!(late.quantile(0.5), Some(300.0));
    }
}
