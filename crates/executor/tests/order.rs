//! The order in which jobs start.

#![cfg(not(loom))]

mod waiting;

use std::sync::Arc;

use proptest::prelude::*;
use ropewalk_executor::{Executor, Job, Priority};
use ropewalk_sync::Mutex;
use waiting::{Latch, eventually, fixed, soon};

/// The order in which one worker starts jobs queued in this order, as indices.
fn starts(priorities: &[Priority]) -> Vec<usize> {
    let (pool, latch, seen) = (fixed(1), Latch::default(), Arc::new(Mutex::new(Vec::new())));
    latch.hold(&pool);
    for (at, priority) in priorities.iter().enumerate() {
        let seen = Arc::clone(&seen);
        pool.execute(Job::new(move || seen.lock().push(at)).priority(*priority)).expect("open");
    }
    latch.open();
    assert!(pool.join(soon()).is_complete());
    let seen = seen.lock().clone();
    assert_eq!(seen.len(), priorities.len());
    seen
}

/// More than sixty, so that low jobs start early.
const MOST: usize = if cfg!(miri) { 90 } else { 400 };

fn priority() -> impl Strategy<Value = Priority> {
    prop_oneof![Just(Priority::Low), Just(Priority::Normal), Just(Priority::High)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    #[test]
    fn one_worker_starts_by_priority_then_by_age(priorities in prop::collection::vec(priority(), 0..MOST)) {
        let started = starts(&priorities);
        // Within a priority: by age.
        for wanted in [Priority::Low, Priority::Normal, Priority::High] {
            let of_it: Vec<_> = started.iter().filter(|at| priorities[**at] == wanted).collect();
            prop_assert!(of_it.is_sorted());
        }
        // Without the low ones, which may come early: by priority.
        let others: Vec<_> = started.iter().map(|at| priorities[*at]).filter(|it| *it > Priority::Low).collect();
        prop_assert!(others.is_sorted_by(|one, next| one >= next));
        // A low job starts early only after sixty others, and then it does. The job that holds the worker was one.
        let (mut since, mut others_left) = (1, others.len());
        let mut low_left = priorities.len() - others.len();
        for at in started {
            if priorities[at] == Priority::Low {
                prop_assert!(since >= 60 || others_left == 0);
                (since, low_left) = (0, low_left - 1);
            } else {
                prop_assert!(since < 60 || low_left == 0);
                (since, others_left) = (since + 1, others_left - 1);
            }
        }
    }
}

#[test]
fn a_high_job_overtakes_what_is_queued_already() {
    let (pool, latch, seen) = (Arc::new(fixed(1)), Latch::default(), Arc::new(Mutex::new(Vec::new())));
    latch.hold(&*pool);
    for at in 0..100 {
        let (inner, seen) = (Arc::clone(&pool), Arc::clone(&seen));
        let run = move || {
            seen.lock().push(at);
            if at == 10 {
                let seen = Arc::clone(&seen);
                let urgent = Job::new(move || seen.lock().push(1000)).priority(Priority::High);
                inner.execute(urgent).expect("no panic");
            }
        };
        pool.execute(Job::new(run)).expect("open");
    }
    latch.open();
    // A pool that is shut down refuses its own jobs' jobs, too.
    eventually("all have run", || seen.lock().len() == 101);
    let seen = seen.lock();
    assert_eq!((seen[10], seen[11], seen[12]), (10, 1000, 11));
}

#[test]
fn jobs_that_hand_in_jobs_for_ever_do_not_shut_others_out() {
    fn again(pool: &Arc<ropewalk_executor::FixedExecutor>) {
        let inner = Arc::clone(pool);
        // Refused when the pool closes, which ends it.
        drop(pool.execute(Job::new(move || again(&inner))));
    }
    let pool = Arc::new(fixed(1));
    again(&pool);
    let (job, handle) = Job::with_handle(|| 7);
    pool.execute(job).expect("open");
    assert_eq!(handle.join().expect("ran"), 7);
    let (job, handle) = Job::with_handle(|| 8);
    pool.execute(job.priority(Priority::Low)).expect("open");
    assert_eq!(handle.join().expect("ran"), 8);
    assert!(pool.join(soon()).is_complete());
}
