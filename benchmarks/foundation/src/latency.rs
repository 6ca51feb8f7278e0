//! How long a single task takes from its submission to its end.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock::percentile;
use crate::pools::{Pool, workers};

/// What goes on while a task is submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Around {
    /// Nothing: the next task is submitted as soon as the last one ended.
    Idle,
    /// Nothing, and a pause before each task, so that the workers sleep when it comes.
    Asleep,
    /// A thread for each core that never stops computing.
    Loaded,
}

/// So long do the workers rest before a task finds them asleep.
const PAUSE: Duration = Duration::from_millis(1);
/// A contest takes no longer than this, however slow a contender is.
const PATIENCE: Duration = Duration::from_millis(600);
/// Tasks that are not counted.
const WARM: usize = 50;
/// Looks at the answer before the submitter offers its core. Both languages wait by these same steps.
const SPINS: u32 = 1_000;

/// The 50th and 99th percentile, in microseconds, of up to `samples` tasks.
///
/// The end is stamped by the task itself, so the times hold the way there and not the way back.
pub fn of(pool: &impl Pool, around: Around, samples: usize) -> (f64, f64) {
    let stop = AtomicBool::new(false);
    let mut times = thread::scope(|scope| {
        if around == Around::Loaded {
            for _ in 0..workers() {
                scope.spawn(|| {
                    let mut turns = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        turns = hint::black_box(turns + 1);
                    }
                });
            }
        }
        let times = collect(pool, around, samples);
        stop.store(true, Ordering::Relaxed);
        times
    });
    (percentile(&mut times, 0.5) / 1e3, percentile(&mut times, 0.99) / 1e3)
}

fn collect(pool: &impl Pool, around: Around, samples: usize) -> Vec<f64> {
    // Nanoseconds since `origin` at which the task ended; 0 while it has not. The task writes, the submitter reads.
    let ended: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
    let origin = Instant::now();
    let warm = WARM.min(samples);
    let mut times = Vec::with_capacity(samples);
    for index in 0..samples + warm {
        if around == Around::Asleep {
            thread::sleep(PAUSE);
        }
        ended.store(0, Ordering::Relaxed);
        let submitted = origin.elapsed().as_nanos() as u64;
        pool.spawn(move || ended.store(origin.elapsed().as_nanos() as u64, Ordering::Release));
        let mut looks = 0;
        let end = loop {
            match ended.load(Ordering::Acquire) {
                0 if looks < SPINS => {
                    looks += 1;
                    hint::spin_loop();
                }
                0 => thread::yield_now(),
                end => break end,
            }
        };
        if index >= warm {
            times.push((end - submitted) as f64);
        }
        if origin.elapsed() > PATIENCE && !times.is_empty() {
            break;
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::Rayon;

    #[test]
    fn every_surrounding_yields_ordered_percentiles() {
        let pool = Rayon::new();
        for around in [Around::Idle, Around::Asleep, Around::Loaded] {
            let (p50, p99) = of(&pool, around, 20);
            assert!(p50 > 0.0 && p50 <= p99, "{around:?}: {p50} and {p99}");
        }
    }
}
