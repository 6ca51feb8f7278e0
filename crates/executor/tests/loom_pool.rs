//! The sleep protocol, and shutdown against execute, on every schedule that loom finds. A lost wake-up is a
//! deadlock, which loom reports.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p ropewalk-executor --release --test 'loom*'`

#![cfg(loom)]

use std::sync::Arc;

use ropewalk_executor::model::{Jobs, Pool};
use ropewalk_sync::loom::{self, thread};

/// All schedules with at most so many forced switches of threads.
fn bounded(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

fn workers(pool: &Arc<Pool>, count: usize, jobs: Jobs) -> Vec<thread::JoinHandle<()>> {
    (0..count)
        .map(|at| {
            let pool = Arc::clone(pool);
            thread::spawn(move || pool.work(at, jobs))
        })
        .collect()
}

fn all_end(workers: Vec<thread::JoinHandle<()>>) {
    for worker in workers {
        worker.join().expect("no panic");
    }
}

#[test]
fn one_worker_misses_no_job_and_no_shutdown() {
    bounded(4, || {
        let pool = Arc::new(Pool::new(1, None));
        let workers = workers(&pool, 1, Jobs::Plain);
        assert!(pool.execute());
        assert!(pool.execute());
        pool.shutdown();
        all_end(workers);
        assert_eq!(pool.ran(), 2);
    });
}

#[test]
fn two_workers_miss_no_job_and_no_shutdown() {
    bounded(2, || {
        let pool = Arc::new(Pool::new(2, None));
        let workers = workers(&pool, 2, Jobs::Plain);
        assert!(pool.execute());
        assert!(pool.execute());
        pool.shutdown();
        all_end(workers);
        assert_eq!(pool.ran(), 2);
    });
}

/// A worker that runs a job wakes another for the next one: otherwise no job would be lost, but a core would stay idle.
#[test]
fn two_jobs_that_wait_for_each_other_get_a_worker_each() {
    bounded(2, || {
        let pool = Arc::new(Pool::new(2, None));
        let workers = workers(&pool, 2, Jobs::Meet);
        assert!(pool.execute());
        assert!(pool.execute());
        all_end(workers);
        assert_eq!(pool.ran(), 2);
    });
}

#[test]
fn what_is_accepted_while_another_closes_runs_and_what_is_refused_does_not() {
    bounded(3, || {
        let pool = Arc::new(Pool::new(1, None));
        let workers = workers(&pool, 1, Jobs::Plain);
        let producer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || u32::from(pool.execute()) + u32::from(pool.execute()))
        };
        pool.shutdown();
        let accepted = producer.join().expect("no panic");
        all_end(workers);
        assert_eq!(pool.ran(), accepted);
    });
}

#[test]
fn what_a_job_hands_in_is_not_lost_to_a_shutdown() {
    bounded(2, || {
        let pool = Arc::new(Pool::new(2, None));
        let workers = workers(&pool, 2, Jobs::HandIn);
        assert!(pool.execute());
        pool.shutdown();
        all_end(workers);
        // Each worker's first job may hand in one.
        assert!((1..=3).contains(&pool.ran()));
    });
}

#[test]
fn a_job_that_waits_for_room_gets_it() {
    bounded(3, || {
        let pool = Arc::new(Pool::new(1, Some(1)));
        let workers = workers(&pool, 1, Jobs::Plain);
        for _ in 0..3 {
            assert!(pool.execute());
        }
        pool.shutdown();
        all_end(workers);
        assert_eq!(pool.ran(), 3);
    });
}
