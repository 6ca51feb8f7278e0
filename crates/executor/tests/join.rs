//! Waiting for jobs, from outside and from within.

#![cfg(not(loom))]

mod waiting;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use ropewalk_executor::{Bounds, Config, DynamicExecutor, Executor, Job, Submit};
use waiting::{LONG, Latch, fixed, soon};

fn dynamic(max: usize) -> Arc<dyn Executor> {
    let bounds = Bounds { min: 1, max, keep_alive: LONG };
    Arc::new(DynamicExecutor::new(bounds, Config::named("dynamic")).expect("threads"))
}

fn small() -> [Arc<dyn Executor>; 4] {
    [Arc::new(fixed(1)), Arc::new(fixed(2)), dynamic(1), dynamic(2)]
}

fn fibonacci(pool: &Arc<dyn Executor>, n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (one, two) = (Arc::clone(pool), Arc::clone(pool));
    let one = pool.submit(move || fibonacci(&one, n - 1)).expect("open");
    let two = pool.submit(move || fibonacci(&two, n - 2)).expect("open");
    one.join().expect("ran") + two.join().expect("ran")
}

#[test]
fn jobs_that_join_their_jobs_need_no_more_workers_than_there_are() {
    let (n, wanted) = if cfg!(miri) { (6, 8) } else { (14, 377) };
    for pool in small() {
        let inner = Arc::clone(&pool);
        let result = pool.submit(move || fibonacci(&inner, n)).expect("open").join();
        assert_eq!(result.expect("ran"), wanted);
        assert!(pool.join(soon()).is_complete());
    }
}

#[test]
fn a_worker_may_join_a_delayed_job() {
    for pool in small() {
        let inner = Arc::clone(&pool);
        let outer = move || inner.submit_after(Duration::from_millis(2), || 7).expect("open").join();
        assert_eq!(pool.submit(outer).expect("open").join().expect("ran").expect("ran"), 7);
    }
}

#[test]
fn joins_within_joins_do_not_use_up_the_stack() {
    let (pool, joins) = (Arc::new(fixed(1)), if cfg!(miri) { 60 } else { 3000 });
    let outer: Vec<_> = (0..joins)
        .map(|number| {
            let late = pool.submit_after(Duration::from_millis(20), move || number).expect("open");
            pool.submit(move || late.join().expect("ran")).expect("open")
        })
        .collect();
    assert!(outer.into_iter().map(|handle| handle.join().expect("ran")).eq(0..joins));
}

#[test]
fn a_fixed_worker_that_waits_runs_what_it_waits_for_indirectly() {
    let pool = Arc::new(fixed(2));
    #[expect(clippy::disallowed_methods, reason = "a test's own threads")]
    let (inner, (send, receive)) = (Arc::clone(&pool), mpsc::channel());
    // The first job runs on one worker and waits for a message; the joiner has the other worker, and the job that sends
    // the message can run only there.
    let outer = move || {
        let started = Arc::new(AtomicBool::new(false));
        let begun = Arc::clone(&started);
        let first = inner.submit(move || {
            begun.store(true, Ordering::Release);
            receive.recv_timeout(LONG)
        });
        let first = first.expect("open");
        waiting::eventually("the other worker has it", || started.load(Ordering::Acquire));
        inner.execute(Job::new(move || send.send(7).expect("it listens"))).expect("open");
        first.join()
    };
    let received = pool.submit(outer).expect("open").join().expect("ran").expect("ran");
    assert_eq!(received, Ok(7));
}

#[test]
fn waiting_ends_at_the_deadline_and_the_handle_stays() {
    for pool in small() {
        let latch = Latch::default();
        let inner = latch.clone();
        let handle = pool.submit(move || inner.pass()).expect("open");
        assert!(!handle.wait_timeout(Duration::from_millis(1)));
        let handle = handle.join_until(Some(Instant::now())).expect_err("it runs");
        let handle = handle.try_join().expect_err("it runs");
        assert!(!handle.is_over());
        latch.open();
        assert!(handle.wait_until(soon()) && handle.is_over());
        handle.try_join().expect("it is over").expect("ran");
    }
}

#[test]
fn a_worker_s_wait_ends_at_the_deadline_too() {
    let (pool, latch) = (Arc::new(fixed(2)), Latch::default());
    latch.hold(&*pool);
    let inner = Arc::clone(&pool);
    let late = pool.submit_after(Duration::from_secs(3600), || 7).expect("open");
    let wait = move || {
        let over = late.wait_timeout(Duration::from_millis(1));
        (over, late.cancel())
    };
    assert_eq!(inner.submit(wait).expect("open").join().expect("ran"), (false, true));
    latch.open();
}

#[test]
fn many_threads_may_wait_for_one_job() {
    let (pool, latch) = (fixed(1), Latch::default());
    let inner = latch.clone();
    let handle = pool.submit(move || inner.pass()).expect("open");
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| handle.wait_until(soon()))).collect();
        latch.open();
        assert!(waiters.into_iter().all(|waiter| waiter.join().expect("no panic")));
    });
    handle.join().expect("ran");
}

#[test]
fn a_job_that_has_started_cannot_be_cancelled() {
    let (pool, latch) = (fixed(1), Latch::default());
    let inner = latch.clone();
    let running = pool.submit(move || inner.pass()).expect("open");
    let kept = Arc::new(());
    let captured = Arc::clone(&kept);
    let queued = pool.submit(move || drop(captured)).expect("open");
    waiting::eventually("it runs", || latch.waiting() == 1);
    assert!(!running.cancel());
    assert!(queued.cancel());
    assert_eq!(Arc::strong_count(&kept), 1, "what it captured is dropped at once");
    latch.open();
    running.join().expect("ran");
    assert!(pool.join(soon()).is_complete());
    assert_eq!(pool.statistics().executed(), 1);
}
