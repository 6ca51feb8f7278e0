//! Many threads, many jobs.

#![cfg(not(loom))]

mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ropewalk_executor::{Bounds, Config, DynamicExecutor, Executor, Job, Priority, Submit};
use waiting::{Latch, counting, fixed, soon};

const THREADS: usize = 4;
const JOBS: usize = if cfg!(miri) { 40 } else { 25_000 };
/// How often a test whose interleavings differ is repeated; `ROPEWALK_ROUNDS` asks for more.
fn rounds() -> usize {
    let asked = std::env::var("ROPEWALK_ROUNDS").ok();
    let most = if cfg!(miri) { 3 } else { 25 };
    asked.map_or(most, |asked| asked.parse().expect("ROPEWALK_ROUNDS is a number"))
}

fn dynamic() -> DynamicExecutor {
    let bounds = Bounds { min: 1, max: 3, keep_alive: Duration::from_millis(1) };
    DynamicExecutor::new(bounds, Config::named("stress")).expect("threads")
}

fn all_run_once(executor: &dyn Executor) {
    let runs: Arc<Vec<AtomicU32>> = Arc::new((0..THREADS * JOBS).map(|_| AtomicU32::new(0)).collect());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let runs = &runs;
            scope.spawn(move || {
                for job in 0..JOBS {
                    let (runs, at) = (Arc::clone(runs), thread * JOBS + job);
                    let priority =
                        [Priority::Normal, Priority::High, Priority::Normal, Priority::Low][job % 4];
                    let run = move || {
                        runs[at].fetch_add(1, Ordering::Relaxed);
                    };
                    executor.execute(Job::new(run).priority(priority)).expect("open");
                }
            });
        }
    });
    assert!(executor.join(soon()).is_complete());
    assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
    assert_eq!(executor.statistics().executed(), (THREADS * JOBS) as u64);
}

#[test]
fn a_hundred_thousand_jobs_from_four_threads_run_once_each() {
    all_run_once(&fixed(3));
    all_run_once(&dynamic());
}

#[test]
fn shutdown_in_the_middle_runs_what_was_accepted_and_nothing_else() {
    for _ in 0..rounds() {
        let (accepted, ran) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let pool = fixed(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        if pool.execute(Job::new(counting(&ran))).is_err() {
                            break;
                        }
                        accepted.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while ran.load(Ordering::Relaxed) < 10 {
                std::thread::yield_now();
            }
            pool.shutdown();
        });
        assert!(pool.join(soon()).is_complete());
        assert_eq!(ran.load(Ordering::Relaxed), accepted.load(Ordering::Relaxed));
    }
}

#[test]
fn handles_and_cancellations_race_with_workers() {
    let (pool, rounds) = (fixed(2), if cfg!(miri) { 60 } else { 20_000_usize });
    for round in 0..rounds {
        let ran = Arc::new(AtomicUsize::new(0));
        let run = Arc::clone(&ran);
        let handle = pool.submit(move || run.fetch_add(1, Ordering::Relaxed)).expect("open");
        if round.is_multiple_of(3) {
            let cancelled = handle.cancel();
            assert_eq!(handle.join().is_err(), cancelled);
            assert_eq!(ran.load(Ordering::Relaxed), usize::from(!cancelled));
        } else {
            assert_eq!(handle.join().expect("ran"), 0);
        }
    }
    assert!(pool.join(soon()).is_complete());
}

#[test]
fn workers_come_and_go_and_no_job_is_left() {
    let pool = Arc::new(dynamic());
    for _ in 0..3 * rounds() {
        let handles: Vec<_> = (0..4)
            .map(|number| {
                let inner = Arc::clone(&pool);
                pool.submit(move || inner.submit(move || number).expect("open").join().expect("ran"))
                    .expect("open")
            })
            .collect();
        let sum: i32 = handles.into_iter().map(|handle| handle.join().expect("ran")).sum();
        assert_eq!(sum, 6);
    }
    assert!(pool.join(soon()).is_complete());
}

/// A job may need a second worker just as the last second one retires.
#[test]
fn a_job_gets_its_worker_while_another_retires() {
    let bounds = Bounds { min: 1, max: 2, keep_alive: Duration::ZERO };
    let pool = DynamicExecutor::new(bounds, Config::named("stress")).expect("threads");
    let each = if cfg!(miri) { 10 } else { 200 };
    for round in 0..each * rounds() {
        // A worker retires after it has looked for jobs in vain for some time; the pauses go over that time.
        let paused = Instant::now();
        while paused.elapsed() < Duration::from_nanos(100 * (round % 1_500) as u64) {
            std::hint::spin_loop();
        }
        let latch = Latch::default();
        let (waits, opens) = (latch.clone(), latch);
        let waiting = pool.submit(move || waits.pass()).expect("open");
        let opening = pool.submit(move || opens.open()).expect("open");
        for handle in [opening, waiting] {
            handle.join_until(soon()).expect("both have a worker in time").expect("ran");
        }
    }
    assert!(pool.join(soon()).is_complete());
    assert!(pool.statistics().workers.len() <= 2);
}
