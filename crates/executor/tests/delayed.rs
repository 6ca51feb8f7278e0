//! Delayed jobs.

#![cfg(not(loom))]

mod waiting;

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use ropewalk_executor::{Config, Executor, InlineExecutor, Job, Submit};
use ropewalk_sync::Mutex;
use waiting::{fixed, soon};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 16 }))]

    #[test]
    fn no_job_starts_before_its_time(delays in prop::collection::vec(0..8000_u64, 1..40)) {
        let (pool, early) = (fixed(2), Arc::new(Mutex::new(0)));
        for delay in delays {
            let delay = Duration::from_micros(delay);
            let (early, asked) = (Arc::clone(&early), Instant::now());
            let job = Job::new(move || *early.lock() += u32::from(asked.elapsed() < delay));
            pool.execute_after(delay, job).expect("open").detach();
        }
        prop_assert!(pool.join(soon()).is_complete());
        prop_assert_eq!(*early.lock(), 0);
    }

    #[test]
    fn the_clock_that_is_moved_by_hand_keeps_the_order(
        delays in prop::collection::vec(0..20_u64, 0..40),
        steps in prop::collection::vec(0..9_u64, 0..6),
    ) {
        let inline = InlineExecutor::new(Config::named("inline"));
        let seen = Arc::new(Mutex::new(Vec::new()));
        for (at, delay) in delays.iter().enumerate() {
            let (seen, delay) = (Arc::clone(&seen), *delay);
            let job = Job::new(move || seen.lock().push((delay, at)));
            inline.execute_after(Duration::from_secs(delay), job).expect("open").detach();
        }
        let mut wanted: Vec<_> = delays.iter().enumerate().map(|(at, delay)| (*delay, at)).collect();
        wanted.sort_unstable();
        let mut now = 0;
        for step in steps {
            now += step;
            inline.advance(Duration::from_secs(step));
            let due = wanted.iter().filter(|(delay, _)| *delay <= now).count();
            prop_assert_eq!(&*seen.lock(), &wanted[..due]);
        }
        inline.drain();
        prop_assert_eq!(&*seen.lock(), &wanted);
    }
}

#[test]
fn a_delay_beyond_all_clocks_is_a_delay() {
    let pool = fixed(1);
    let handle = pool.submit_after(Duration::MAX, || 7).expect("open");
    assert_eq!(pool.statistics().delayed, 1);
    assert!(handle.cancel());
    assert!(pool.join(soon()).is_complete());
}

#[test]
fn a_job_taken_back_can_be_handed_in_again() {
    let pool = fixed(1);
    let (job, handle) = Job::with_handle(|| 7);
    let token = pool.execute_after(Duration::from_secs(3600), job).expect("open");
    let job = token.cancel().expect("it is not due");
    assert!(!handle.is_over());
    pool.execute(job).expect("open");
    assert_eq!(handle.join().expect("ran"), 7);
}

#[test]
fn a_delayed_job_hands_in_the_next() {
    let inline = Arc::new(InlineExecutor::new(Config::named("inline")));
    fn tick(executor: &Arc<InlineExecutor>, left: u32, count: &Arc<Mutex<u32>>) {
        *count.lock() += 1;
        if left > 0 {
            let (inner, count) = (Arc::clone(executor), Arc::clone(count));
            let next = executor.submit_after(Duration::from_secs(1), move || tick(&inner, left - 1, &count));
            next.expect("open").detach();
        }
    }
    let count = Arc::new(Mutex::new(0));
    tick(&inline, 5, &count);
    assert_eq!(inline.advance(Duration::from_secs(3)), 3);
    assert_eq!(inline.drain(), 2);
    assert_eq!(*count.lock(), 6);
}
