//! Workers that die one after the other: how fast new ones are started, when the pool gives up.
//!
//! Only deaths that nobody asked for count: what the pool has killed itself, and what it has sent away, does not.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{ProcessPool, ProcessPoolState};
use crate::clock;
use crate::events::{self, What};
use crate::outcome::Failure;
use crate::pool::Deaths;
use crate::task::Task;

/// Deaths in a row, beside one for each worker of the pool, after which the next workers are started later. Each worker
/// may die once, for the kernel kills many at a time when memory runs out.
const UNDELAYED: u32 = 3;
/// The first delay, which doubles as often as the pool's workers have died once more, and the longest.
const FIRST_DELAY: Duration = Duration::from_millis(20);
pub(super) const LONGEST_DELAY: Duration = Duration::from_secs(4);
/// Deaths that are further apart than this, beside the delay, are not in a row.
const APART: Duration = Duration::from_secs(1);

/// Deaths of workers, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Storms {
    /// The deaths that `max_restarts` counts.
    counted: Deaths,
    /// Deaths in a row since a worker has answered its first task.
    row: u32,
    last: Option<Instant>,
    /// No worker is started before.
    until: Option<Instant>,
    delay: Duration,
    reason: Option<Arc<str>>,
}

impl Storms {
    /// A worker has answered its first task: the next ones can do so, too.
    #[inline]
    pub(super) fn calm(&mut self) {
        if self.row > 0 {
            self.row = 0;
            self.delay = Duration::ZERO;
        }
    }

    /// Until when no worker is started.
    pub(super) fn delayed_until(&self) -> Option<Instant> {
        self.until
    }

    /// Why no worker is started.
    pub(super) fn reason(&self) -> Option<Arc<str>> {
        self.until.and(self.reason.clone())
    }

    /// One more worker of so many has died; gives the delay of the next start, if it is to be delayed anew.
    fn add(&mut self, workers: u32, now: Instant) -> Option<Duration> {
        let in_a_row = self.last.is_some_and(|last| now.duration_since(last) <= APART + self.delay);
        self.row = if in_a_row { self.row.saturating_add(1) } else { 1 };
        self.last = Some(now);
        let over = self.row.checked_sub(workers.saturating_add(UNDELAYED))?;
        if self.until.is_some() {
            return None;
        }
        let doublings = (over / workers.max(1)).min(16);
        self.delay = FIRST_DELAY.saturating_mul(1 << doublings).min(LONGEST_DELAY);
        Some(self.delay.mul_f64(jitter(self.row)))
    }
}

/// A number from 0.75 to 1, other than that of other pools: what has ended their workers together is not met by all of
/// them together again.
fn jitter(row: u32) -> f64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(row);
    let part = if cfg!(any(test, fuzzing)) { 255 } else { hasher.finish() as u8 };
    0.75 + f64::from(part) / 1020.0
}

impl ProcessPool {
    /// A worker has died without being asked to; gives the reason for the pool's end, if this was one too many.
    pub(super) fn count_death(&self, state: &mut ProcessPoolState, last: &Failure) -> Option<Failure> {
        let now = clock::now();
        let workers = u32::try_from(state.size).unwrap_or(u32::MAX);
        let storms = &mut state.members.storms;
        if let Some(unhealthy) = self.too_many(&mut storms.counted, last, now) {
            return Some(unhealthy);
        }
        let delay = storms.add(workers, now)?;
        let reason: Arc<str> = format!(
            "{} workers died in a row, the last one {}; the next are started in {:.2} s",
            storms.row,
            last.of_worker(),
            delay.as_secs_f64()
        )
        .into();
        storms.until = Some(now + delay);
        storms.reason = Some(Arc::clone(&reason));
        events::tell(&self.config.name, What::Delayed { reason });
        None
    }

    /// Starts the workers that were to be started later, if it is time.
    pub(super) fn end_delay(&self, state: &mut ProcessPoolState, now: Instant) {
        if state.members.storms.until.is_some_and(|at| at <= now) {
            state.members.storms.until = None;
            self.fill_or_fall_short(state);
        }
    }

    /// Whether a task whose run is lost would be run again. This run is not counted yet.
    pub(super) fn will_run_again(&self, state: &ProcessPoolState, task: &Task) -> bool {
        let is_poison =
            self.config.health.poison_after.is_some_and(|most| task.deaths() + 1 >= most as usize);
        self.may_retry(state)
            && task.attempt() < task.options.retries
            && self.is_repeatable(task)
            && !is_poison
    }
}

#[cfg(test)]
mod tests;
