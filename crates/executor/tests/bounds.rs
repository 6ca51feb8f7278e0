//! The bounded queue, and the number of workers.

#![cfg(not(loom))]

mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ropewalk_executor::{
    Bounds, Config, DynamicExecutor, Executor, FixedExecutor, Job, Reason, Submit, WhenFull,
};
use waiting::{Latch, counting, eventually, soon};

fn bounded(workers: usize, max_queue: usize, when_full: WhenFull) -> FixedExecutor {
    let config = Config { max_queue: Some(max_queue), when_full, ..Config::named("bounded") };
    FixedExecutor::new(workers, config).expect("threads")
}

#[test]
fn a_full_queue_refuses_and_has_room_again() {
    let (pool, latch) = (bounded(1, 3, WhenFull::Reject), Latch::default());
    latch.hold(&pool);
    let accepted: Vec<_> = (0..3).map(|number| pool.submit(move || number).expect("room")).collect();
    let (job, handle) = Job::with_handle(|| 7);
    let rejected = pool.execute(job).expect_err("full");
    assert_eq!(rejected.reason, Reason::Full);
    let late = pool.execute_after(Duration::ZERO, Job::new(|| {})).expect_err("full");
    assert_eq!(late.reason, Reason::Full);
    latch.open();
    for (number, handle) in accepted.into_iter().enumerate() {
        assert_eq!(handle.join().expect("ran"), number);
    }
    pool.execute(rejected.job).expect("room again");
    assert_eq!(handle.join().expect("ran"), 7);
    assert!(pool.join(soon()).is_complete());
}

#[test]
fn a_cancelled_delayed_job_makes_room() {
    let pool = bounded(1, 1, WhenFull::Reject);
    let token = pool.execute_after(Duration::from_secs(3600), Job::new(|| {})).expect("room");
    assert_eq!(pool.execute(Job::new(|| {})).expect_err("full").reason, Reason::Full);
    assert!(token.cancel().is_some());
    assert_eq!(pool.submit(|| 1).expect("room").join().expect("ran"), 1);
}

#[test]
fn blocked_producers_lose_nothing_and_the_bound_holds() {
    let (pool, ran, most) = (bounded(2, 5, WhenFull::Block), AtomicUsize::new(0), AtomicUsize::new(0));
    let ran = Arc::new(ran);
    let each = if cfg!(miri) { 30 } else { 2000 };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..each {
                    pool.execute(Job::new(counting(&ran))).expect("open");
                    most.fetch_max(pool.statistics().queued, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(pool.join(soon()).is_complete());
    assert_eq!(ran.load(Ordering::Relaxed), 3 * each);
    assert!(most.load(Ordering::Relaxed) <= 5, "{most:?}");
}

#[test]
fn a_producer_that_waits_for_room_notices_the_shutdown() {
    let (pool, latch) = (bounded(1, 1, WhenFull::Block), Latch::default());
    latch.hold(&pool);
    pool.execute(Job::new(|| {})).expect("room");
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| pool.execute(Job::new(|| {})));
        // The thread may be before or in its wait: it notices the shutdown in either case.
        pool.shutdown();
        let rejected = blocked.join().expect("no panic").expect_err("closed");
        assert_eq!(rejected.reason, Reason::Closed);
    });
    latch.open();
    assert!(pool.join(soon()).is_complete());
}

#[test]
fn a_worker_that_finds_its_own_queue_full_runs_it() {
    let (pool, ran) = (Arc::new(bounded(1, 2, WhenFull::Block)), Arc::new(AtomicUsize::new(0)));
    let (inner, count) = (Arc::clone(&pool), Arc::clone(&ran));
    let outer = move || {
        for _ in 0..100 {
            inner.execute(Job::new(counting(&count))).expect("open");
        }
    };
    pool.submit(outer).expect("room").join().expect("ran");
    assert!(pool.join(soon()).is_complete());
    assert_eq!(ran.load(Ordering::Relaxed), 100);
}

#[test]
fn a_dynamic_pool_grows_to_its_bound_and_shrinks_again() {
    let bounds = Bounds { min: 1, max: 4, keep_alive: Duration::from_millis(1) };
    let pool = DynamicExecutor::new(bounds, Config::named("grows")).expect("threads");
    let latch = Latch::default();
    for blocked in 1..=4 {
        let latch = latch.clone();
        pool.execute(Job::new(move || latch.pass())).expect("open");
        eventually("each job that blocks has a worker", || pool.statistics().running == blocked);
    }
    let fifth = pool.submit(|| 5).expect("open");
    assert_eq!((pool.statistics().live, pool.statistics().queued), (4, 1));
    assert!(!fifth.is_over());
    latch.open();
    assert_eq!(fifth.join().expect("ran"), 5);
    eventually("those beyond the least retire", || pool.statistics().live == 1);
    assert_eq!(pool.submit(|| 6).expect("open").join().expect("ran"), 6);
    assert!(pool.join(soon()).is_complete());
}

#[test]
#[expect(clippy::disallowed_types, reason = "a test's own threads")]
fn jobs_handed_in_at_once_get_a_worker_each_when_all_block() {
    let bounds = Bounds { min: 1, max: 6, keep_alive: Duration::from_secs(60) };
    let pool = DynamicExecutor::new(bounds, Config::named("blocks")).expect("threads");
    let together = Arc::new(std::sync::Barrier::new(6));
    for _ in 0..6 {
        let together = Arc::clone(&together);
        pool.execute(Job::new(move || {
            together.wait();
        }))
        .expect("open");
    }
    assert!(pool.join(soon()).is_complete());
}
