//! A job's end against threads that wait for it, cancel it or drop it, on every schedule that loom finds.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p ropewalk-executor --release --test 'loom*'`

#![cfg(loom)]

use std::sync::Arc;

use ropewalk_executor::{Job, JobError};
use ropewalk_sync::loom::{self, thread};

#[test]
fn the_result_reaches_whoever_waits() {
    loom::model(|| {
        let (job, handle) = Job::with_handle(|| 7);
        let worker = thread::spawn(move || job.run());
        assert_eq!(handle.join().expect("it ran"), 7);
        worker.join().expect("no panic");
    });
}

#[test]
fn a_look_finds_the_whole_result_or_none() {
    loom::model(|| {
        let (job, handle) = Job::with_handle(|| 7);
        let worker = thread::spawn(move || job.run());
        let result = handle.try_join().unwrap_or_else(|handle| handle.join());
        assert_eq!(result.expect("it ran"), 7);
        worker.join().expect("no panic");
    });
}

#[test]
fn a_cancellation_and_a_start_have_one_winner() {
    loom::model(|| {
        let (job, handle) = Job::with_handle(|| 7);
        let worker = thread::spawn(move || job.run());
        let cancelled = handle.cancel();
        match handle.join() {
            Ok(7) => assert!(!cancelled),
            Err(JobError::Cancelled) => assert!(cancelled),
            other => panic!("neither: {other:?}"),
        }
        worker.join().expect("no panic");
    });
}

#[test]
fn a_dropped_job_tells_whoever_waits() {
    loom::model(|| {
        let (job, handle) = Job::with_handle(|| 7);
        let worker = thread::spawn(move || drop(job));
        assert!(matches!(handle.join(), Err(JobError::Dropped)));
        worker.join().expect("no panic");
    });
}

#[test]
fn all_waiting_threads_get_the_end() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let (job, handle) = Job::with_handle(|| 7);
        let handle = Arc::new(handle);
        let other = Arc::clone(&handle);
        let waiter = thread::spawn(move || assert!(other.wait_until(None)));
        let worker = thread::spawn(move || job.run());
        assert!(handle.wait_until(None));
        worker.join().expect("no panic");
        waiter.join().expect("no panic");
        let handle = Arc::into_inner(handle).expect("the other is gone");
        assert_eq!(handle.try_join().expect("it is over").expect("it ran"), 7);
    });
}

#[test]
fn a_detached_result_is_dropped_once() {
    loom::model(|| {
        let kept = Arc::new(());
        let captured = Arc::clone(&kept);
        let (job, handle) = Job::with_handle(move || captured);
        let worker = thread::spawn(move || job.run());
        handle.detach();
        worker.join().expect("no panic");
        assert_eq!(Arc::strong_count(&kept), 1);
    });
}
