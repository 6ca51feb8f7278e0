//! The end of a pool, and waiting for it.

#![cfg(not(loom))]

mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ropewalk_executor::{Executor, Job, Reason, Serial, Submit};
use waiting::{Latch, counting, eventually, fixed, soon};

/// A deadline that has passed.
fn now() -> Option<Instant> {
    Some(Instant::now())
}

fn blocks_for_ever(latch: Latch) -> impl FnOnce() + Send {
    move || latch.pass()
}

#[test]
fn the_report_names_what_blocks_and_counts_what_waits() {
    let (pool, latch, ran) = (fixed(2), Latch::default(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..2 {
        pool.submit(blocks_for_ever(latch.clone())).expect("open").detach();
    }
    eventually("both workers block", || latch.waiting() == 2);
    for _ in 0..3 {
        pool.execute(Job::new(counting(&ran))).expect("open");
    }
    let hour = Duration::from_secs(3600);
    let delayed = pool.submit_after(hour, counting(&ran)).expect("open");
    let report = pool.join(now());
    assert!(!report.is_complete());
    assert_eq!((report.running.len(), report.queued, report.delayed), (2, 3, 1));
    assert!(report.running.iter().all(|job| job.job.contains("blocks_for_ever")), "{report}");
    let mut workers: Vec<_> = report.running.iter().map(|job| job.worker.as_str()).collect();
    workers.sort_unstable();
    assert_eq!(workers, ["test-0", "test-1"]);
    assert!(report.to_string().starts_with("2 running, 3 queued, 1 delayed; test-"), "{report}");

    assert_eq!(pool.execute(Job::new(|| {})).expect_err("closed").reason, Reason::Closed);
    latch.open();
    eventually("what was queued runs", || ran.load(Ordering::Relaxed) == 3);
    assert!(delayed.cancel());
    let report = pool.join(soon());
    assert!(report.is_complete(), "{report}");
    assert_eq!(pool.statistics().live, 0);
    assert_eq!(ran.load(Ordering::Relaxed), 3);
}

#[test]
fn a_dropped_pool_runs_what_it_accepted() {
    let (pool, latch, ran) = (fixed(1), Latch::default(), Arc::new(AtomicUsize::new(0)));
    latch.hold(&pool);
    let handle = pool.submit(|| 7).expect("open");
    pool.execute_after(Duration::from_millis(1), Job::new(counting(&ran))).expect("open").detach();
    drop(pool);
    latch.open();
    assert_eq!(handle.join().expect("ran"), 7);
    eventually("the delayed job ran", || ran.load(Ordering::Relaxed) == 1);
}

#[test]
fn a_worker_that_joins_its_own_pool_gets_the_report_at_once() {
    let pool = Arc::new(fixed(1));
    let inner = Arc::clone(&pool);
    let report = pool.submit(move || inner.join(None)).expect("open").join().expect("ran");
    assert_eq!(report.running.len(), 1);
    assert!(pool.join(soon()).is_complete());
}

#[test]
fn many_may_wait_for_the_end() {
    let (pool, latch) = (fixed(2), Latch::default());
    latch.hold(&pool);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| pool.join(soon()))).collect();
        latch.open();
        for waiter in waiters {
            assert!(waiter.join().expect("no panic").is_complete());
        }
    });
}

#[test]
fn a_serial_queue_ends_and_its_executor_does_not() {
    let (pool, latch) = (Arc::new(fixed(1)), Latch::default());
    let serial = Serial::new(Arc::clone(&pool) as Arc<dyn Executor>);
    latch.hold(&serial);
    serial.execute(Job::new(|| {})).expect("open");
    let report = serial.join(now());
    assert_eq!((report.running.len(), report.queued), (1, 1));
    assert_eq!(report.running[0].worker, "test-0");
    assert!(report.running[0].job.contains("Latch"), "{report}");
    latch.open();
    assert!(serial.join(soon()).is_complete());
    assert_eq!(pool.submit(|| 7).expect("still open").join().expect("ran"), 7);
}

#[test]
fn a_serial_queue_ends_its_jobs_though_its_executor_is_closed() {
    let (pool, latch, ran) = (Arc::new(fixed(1)), Latch::default(), Arc::new(AtomicUsize::new(0)));
    let serial = Serial::new(Arc::clone(&pool) as Arc<dyn Executor>);
    latch.hold(&serial);
    // More than one turn's.
    for _ in 0..200 {
        serial.execute(Job::new(counting(&ran))).expect("open");
    }
    serial.execute_after(Duration::from_millis(1), Job::new(counting(&ran))).expect("open").detach();
    let report = pool.join(now());
    assert!(report.running[0].job.ends_with("Turn"), "{report}");
    latch.open();
    assert!(serial.join(soon()).is_complete());
    assert!(pool.join(soon()).is_complete());
    assert_eq!(ran.load(Ordering::Relaxed), 201);
    assert_eq!(serial.execute(Job::new(|| {})).expect_err("closed").reason, Reason::Closed);
}
