//! What it costs to submit an empty task and to have it run.

use std::sync::Arc;

use crate::clock::{per_batch, per_call};
use crate::countdown::Countdown;
use crate::pools::Pool;

/// Nanoseconds for each of `tasks` empty tasks, submitted by a thread outside the pool, until the last one ran.
pub fn from_outside(pool: &impl Pool, tasks: usize) -> f64 {
    per_batch(tasks, || {
        let countdown = Countdown::new(tasks);
        for _ in 0..tasks {
            pool.spawn(|| countdown.ran());
        }
        countdown.wait();
    })
}

/// The same, submitted by a task of the pool itself.
pub fn from_inside<P: Pool + Send + 'static>(pool: P, tasks: usize) -> f64 {
    let pool = Arc::new(pool);
    per_batch(tasks, || {
        let countdown = Countdown::new(tasks);
        let inner = Arc::clone(&pool);
        pool.spawn(move || {
            for _ in 0..tasks {
                inner.spawn(|| countdown.ran());
            }
        });
        countdown.wait();
    })
}

/// Microseconds for a task that is submitted and joined before the next, by a thread outside the pool.
pub fn and_join(pool: &impl Pool, tasks: usize) -> f64 {
    per_call(tasks, |index| assert_eq!(pool.call(move || index as u64), index as u64)) / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::{Rayon, Ropewalk};

    /// The countdown ends a batch, so returning at all says that every task ran.
    fn runs_every_task<P: Pool + Send + 'static>(pool: P) {
        assert!(and_join(&pool, 10) > 0.0);
        assert!(from_outside(&pool, 100) > 0.0);
        assert!(from_inside(pool, 100) > 0.0);
    }

    #[test]
    fn every_contender_runs_every_task() {
        runs_every_task(Rayon::new());
        runs_every_task(Ropewalk::fixed());
        runs_every_task(Ropewalk::dynamic());
    }
}
