//! What every executor promises, over every executor.

#![cfg(not(loom))]

mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ropewalk_executor::{
    Bounds, Config, DynamicExecutor, Executor, FixedExecutor, InlineExecutor, Job, JobError, Reason, Serial,
    Submit,
};
use ropewalk_sync::Mutex;
use waiting::{counting, eventually, fixed, soon};

/// Advances the time, for executors with a manual clock.
type Clock = Box<dyn Fn()>;
type Made = (&'static str, Arc<dyn Executor>, Clock);

fn bounds() -> Bounds {
    Bounds { min: 1, max: 4, keep_alive: Duration::from_secs(5) }
}

fn hand(executor: Arc<InlineExecutor>) -> Clock {
    Box::new(move || {
        executor.advance(Duration::from_secs(1));
    })
}

fn all() -> Vec<Made> {
    let still = || -> Clock { Box::new(|| {}) };
    let inline = Arc::new(InlineExecutor::new(Config::named("inline")));
    let below = Arc::new(InlineExecutor::new(Config::named("below")));
    let (moved, moved_below) = (Arc::clone(&inline), Arc::clone(&below));
    let dynamic = || DynamicExecutor::new(bounds(), Config::named("dynamic")).expect("threads");
    vec![
        ("fixed", Arc::new(fixed(2)), still()),
        ("fixed, one worker", Arc::new(fixed(1)), still()),
        ("dynamic", Arc::new(dynamic()), still()),
        ("inline", inline, hand(moved)),
        ("serial on fixed", Arc::new(Serial::new(Arc::new(fixed(2)))), still()),
        ("serial on dynamic", Arc::new(Serial::new(Arc::new(dynamic()))), still()),
        ("serial on inline", Arc::new(Serial::new(below)), hand(moved_below)),
    ]
}

#[test]
fn a_result_comes_back_and_a_panic_comes_back_as_an_error() {
    for (name, executor, _) in all() {
        assert_eq!(executor.submit(|| 6 * 7).expect(name).join().expect(name), 42);
        let failed = executor.submit(|| -> u8 { panic!("no {}", "way") }).expect(name).join();
        let error = failed.expect_err(name);
        assert!(matches!(error, JobError::Panicked(_)), "{name}");
        assert_eq!(error.message(), Some("no way"), "{name}");
        assert!(executor.join(soon()).is_complete(), "{name}");
        assert_eq!(executor.statistics().panicked(), 1, "{name}");
    }
}

#[test]
fn every_accepted_job_runs_exactly_once() {
    let jobs = if cfg!(miri) { 40 } else { 1000 };
    for (name, executor, _) in all() {
        let runs: Arc<Vec<AtomicUsize>> = Arc::new((0..jobs).map(|_| AtomicUsize::new(0)).collect());
        for at in 0..runs.len() {
            let runs = Arc::clone(&runs);
            let count = move || {
                runs[at].fetch_add(1, Ordering::Relaxed);
            };
            executor.execute(Job::new(count)).expect(name);
        }
        assert!(executor.join(soon()).is_complete(), "{name}");
        assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1), "{name}");
    }
}

#[test]
fn jobs_hand_in_jobs() {
    const EACH: usize = if cfg!(miri) { 3 } else { 10 };
    for (name, executor, _) in all() {
        let count = Arc::new(AtomicUsize::new(0));
        for _ in 0..EACH {
            let (inner, count) = (Arc::clone(&executor), Arc::clone(&count));
            let outer = move || {
                assert!(inner.is_current());
                for _ in 0..EACH {
                    inner.execute(Job::new(counting(&count))).unwrap();
                }
            };
            executor.submit(outer).expect(name).join().expect(name);
        }
        assert!(!executor.is_current());
        assert!(executor.join(soon()).is_complete(), "{name}");
        assert_eq!(count.load(Ordering::Relaxed), EACH * EACH, "{name}");
    }
}

#[test]
fn a_closed_executor_gives_the_job_back() {
    for (name, executor, _) in all() {
        executor.shutdown();
        let (job, handle) = Job::with_handle(|| 7);
        let rejected = executor.execute(job).expect_err(name);
        assert_eq!(rejected.reason, Reason::Closed, "{name}");
        assert!(rejected.job.name().contains("a_closed_executor"), "{name}: {}", rejected.job.name());
        assert!(!handle.is_over());
        rejected.job.run();
        assert_eq!(handle.try_join().expect(name).expect(name), 7);

        let (job, handle) = Job::with_handle(|| 7);
        drop(executor.execute_after(Duration::ZERO, job).expect_err(name));
        assert!(matches!(handle.join(), Err(JobError::Dropped)), "{name}");
        assert!(executor.join(soon()).is_complete(), "{name}");
    }
}

#[test]
fn a_delayed_job_runs_and_a_cancelled_one_does_not() {
    for (name, executor, advance) in all() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let note = |text: &'static str| {
            let seen = Arc::clone(&seen);
            move || seen.lock().push(text)
        };
        let handle = executor.submit_after(Duration::from_secs(3600), note("by handle")).expect(name);
        let token =
            executor.execute_after(Duration::from_secs(3600), Job::new(note("by token"))).expect(name);
        assert_eq!(executor.statistics().delayed, 2, "{name}");
        let runs = executor.submit_after(Duration::from_millis(2), note("runs")).expect(name);
        assert!(handle.cancel() && !handle.cancel(), "{name}");
        assert!(matches!(handle.join(), Err(JobError::Cancelled)), "{name}");
        assert!(token.cancel().is_some() && token.cancel().is_none(), "{name}");
        advance();
        runs.join().expect(name);
        assert!(executor.join(soon()).is_complete(), "{name}");
        assert_eq!(*seen.lock(), ["runs"], "{name}");
    }
}

#[test]
fn shutdown_waits_for_what_is_delayed() {
    for (name, executor, advance) in all() {
        let ran = Arc::new(AtomicUsize::new(0));
        for delay in [1, 3, 2] {
            let job = Job::new(counting(&ran));
            executor.execute_after(Duration::from_millis(delay), job).expect(name).detach();
        }
        executor.shutdown();
        advance();
        assert!(executor.join(soon()).is_complete(), "{name}");
        assert_eq!(ran.load(Ordering::Relaxed), 3, "{name}");
    }
}

#[test]
fn a_detached_job_runs_and_its_panicking_result_ends_nothing() {
    struct Grenade;
    impl Drop for Grenade {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("dropped");
            }
        }
    }
    for (name, executor, _) in all() {
        let ran = Arc::new(AtomicUsize::new(0));
        let run = counting(&ran);
        let (job, handle) = Job::with_handle(move || {
            run();
            Grenade
        });
        handle.detach();
        executor.execute(job).expect(name);
        eventually("the detached job ran", || ran.load(Ordering::Relaxed) == 1);
        assert_eq!(executor.submit(|| 1).expect(name).join().expect(name), 1);
        assert!(executor.join(soon()).is_complete(), "{name}");
    }
}

#[test]
fn a_pool_of_no_workers_has_one() {
    let pool = FixedExecutor::new(0, Config::named("none")).expect("threads");
    assert_eq!(pool.submit(|| 1).expect("accepted").join().expect("ran"), 1);
    assert_eq!(pool.statistics().live, 1);
}
