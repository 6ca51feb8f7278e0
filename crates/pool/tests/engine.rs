//! The engine against real worker processes; see `rust_workers`.

mod rust_workers;

use std::time::{Duration, Instant};

use ropewalk_pool::{Config, Failure, Limit, Options, Outcome, Overflow, Phase, Rare, Refused};
use rust_workers::{Pool, config};

/// Not a test of its own: what a zygote runs.
#[test]
fn zygote_main() {
    rust_workers::zygote_main();
}

#[test]
fn every_task_is_answered_with_its_own_answer() {
    let pool = Pool::new(config(3));
    let tasks: Vec<_> = (0..2000).map(|i| (i, pool.submit(&format!("echo {i}")))).collect();
    for (i, task) in &tasks {
        assert_eq!(pool.text(task), i.to_string());
    }
    let counters = pool.engine.statistics().expect("not forked").counters;
    assert_eq!((counters.submitted, counters.completed, counters.failed), (2000, 2000, 0));
}

#[test]
fn a_crash_costs_exactly_the_task_that_ran() {
    let pool = Pool::new(config(2));
    for round in 0..20 {
        let (word, status) = if round % 2 == 0 { ("exit 3", 3 << 8) } else { ("kill", 6) };
        let mut tasks: Vec<_> = (0..20).map(|i| pool.submit(&format!("echo {i}"))).collect();
        let victim = pool.submit(word);
        tasks.extend((20..40).map(|i| pool.submit(&format!("echo {i}"))));
        for (i, task) in tasks.iter().enumerate() {
            assert_eq!(pool.text(task), i.to_string());
        }
        pool.wait(&victim);
        match victim.outcome() {
            Some(Outcome::Failed(Failure::Crashed { status: Some(s), .. })) => assert_eq!(s & !0x80, status),
            other => panic!("not a crash: {other:?}"),
        }
    }
    assert_eq!(pool.engine.statistics().expect("not forked").counters.crashed, 20);
}

#[test]
fn an_idempotent_task_is_run_again_until_its_retries_are_spent() {
    let pool = Pool::new(config(1));
    let task = pool.try_submit("exit 1", Options { retries: 1, ..Options::default() }).expect("taken");
    pool.wait(&task);
    assert_eq!(task.attempt(), 2);
    assert!(matches!(task.outcome(), Some(Outcome::Failed(Failure::Crashed { .. }))));
    assert_eq!(pool.text(&pool.submit("echo on")), "on");
}

#[test]
fn what_never_ran_has_no_attempt_and_what_was_ended_has_one() {
    let pool = Pool::new(config(1));
    let running = pool.submit("nap 20000");
    let waiting = pool.submit("nap 1");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !pool.engine.is_running(&running) {
        assert!(Instant::now() < deadline, "it never started");
        std::thread::yield_now();
    }
    assert!(pool.engine.cancel(&waiting, false) && pool.engine.cancel(&running, true));
    assert_eq!((waiting.attempt(), running.attempt()), (0, 1));
}

#[test]
fn a_deadline_covers_waiting_and_running() {
    let pool = Pool::new(config(1));
    let limit = |ms| Rare { deadline: Some(Duration::from_millis(ms)), ..Rare::default() }.into();
    let running = pool.try_submit("nap 20000", limit(200)).expect("taken");
    let queued = pool.try_submit("nap 1", limit(100)).expect("taken");
    pool.wait(&queued);
    assert!(matches!(
        queued.outcome(),
        Some(Outcome::Failed(Failure::TimedOut(Limit::Deadline, Phase::Queued)))
    ));
    pool.wait(&running);
    assert!(matches!(
        running.outcome(),
        Some(Outcome::Failed(Failure::TimedOut(Limit::Deadline, Phase::Running)))
    ));
    assert_eq!(pool.text(&pool.submit("echo on")), "on");
}

#[test]
fn a_timeout_counts_the_run_alone() {
    let pool = Pool::new(config(1));
    let limit = || Rare { timeout: Some(Duration::from_millis(150)), ..Rare::default() }.into();
    // The worker says when it begins a nap, and that only after its preparation.
    let quick: Vec<_> = (0..10).map(|_| pool.try_submit("nap 50", limit()).expect("taken")).collect();
    for task in &quick {
        assert_eq!(pool.text(task), "50");
    }
    assert_eq!(pool.text(&pool.try_submit("prepare 400", limit()).expect("taken")), "400");
    let slow = pool.try_submit("nap 20000", limit()).expect("taken");
    pool.wait(&slow);
    let outcome = slow.outcome();
    assert!(matches!(outcome, Some(Outcome::Failed(Failure::TimedOut(Limit::Timeout, Phase::Running)))));
}

#[test]
fn a_running_task_is_cancelled_only_when_told_so() {
    let pool = Pool::new(config(1));
    assert_eq!(pool.text(&pool.submit("echo warm")), "warm");
    let running = pool.submit("nap 20000");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !pool.engine.is_running(&running) {
        assert!(Instant::now() < deadline, "it never started");
        std::thread::yield_now();
    }
    let waiting = pool.submit("nap 1");
    assert!(pool.engine.cancel(&waiting, false));
    assert!(!pool.engine.cancel(&running, false));
    assert!(pool.engine.cancel(&running, true));
    assert!(matches!(running.outcome(), Some(Outcome::Cancelled)));
    assert_eq!(pool.text(&pool.submit("echo on")), "on");
}

#[test]
fn what_waits_behind_a_long_task_is_carried_to_an_idle_lane() {
    let pool = Pool::new(config(2));
    for _ in 0..200 {
        pool.text(&pool.submit("echo short"));
    }
    let long = pool.submit("nap 20000");
    let others: Vec<_> = (0..40).map(|i| pool.submit(&format!("echo {i}"))).collect();
    for (i, task) in others.iter().enumerate() {
        assert_eq!(pool.text(task), i.to_string());
        // Those that were moved have been started once, as the others.
        assert_eq!(task.attempt(), 1);
    }
    assert!(!long.is_done());
    assert!(pool.engine.cancel(&long, true));
}

#[test]
fn a_full_queue_refuses_and_a_closed_pool_too() {
    let pool = Pool::new(Config { capacity: Some(2), overflow: Overflow::Error, ..config(1) });
    let first = pool.submit("nap 20000");
    let _second = pool.submit("nap 1");
    let _third = pool.submit("nap 1");
    assert!(matches!(pool.try_submit("nap 1", Options::default()), Err(Refused::Full(..))));
    pool.engine.close(true);
    assert!(matches!(pool.try_submit("nap 1", Options::default()), Err(Refused::Closed)));
    // It may not have been started before the pool closed, and then it is cancelled already.
    assert!(first.is_done() || pool.engine.cancel(&first, true));
}

#[test]
fn a_pool_does_with_the_workers_that_it_can_have() {
    let pool = Pool::of_forks(config(8), 3);
    let tasks: Vec<_> = (0..200).map(|i| pool.submit(&format!("echo {i}"))).collect();
    for (i, task) in tasks.iter().enumerate() {
        assert_eq!(pool.text(task), i.to_string());
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    let told = loop {
        if let Some(told) = pool.engine.shortage().filter(|told| told.contains("3 of 8")) {
            break told;
        }
        assert!(Instant::now() < deadline, "{:?}", pool.engine.shortage());
        std::thread::yield_now();
    };
    assert!(told.contains("no process more can be made"), "{told}");
    let statistics = pool.engine.statistics().expect("not forked");
    assert_eq!((statistics.counters.crashed, statistics.counters.failed), (0, 0));
}

#[test]
fn a_pool_without_any_worker_says_which_limit_it_is() {
    let pool = Pool::of_forks(config(2), 0);
    let task = match pool.try_submit("echo", Options::default()) {
        Ok(task) => {
            pool.wait(&task);
            task
        }
        Err(Refused::Broken(Failure::Broken(reason))) => {
            assert!(reason.contains("no process more can be made"), "{reason}");
            return;
        }
        Err(other) => panic!("{other:?}"),
    };
    match task.outcome() {
        Some(Outcome::Failed(Failure::Broken(reason))) => {
            assert!(reason.contains("no process more can be made"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}
