//! Jobs one after another.

#![cfg(not(loom))]

mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ropewalk_executor::{
    Bounds, Config, DynamicExecutor, Executor, FixedExecutor, Job, Reason, Serial, Submit, WhenFull,
};
use ropewalk_sync::Mutex;
use waiting::{Latch, counting, fixed, soon};

fn serial(pool: &Arc<FixedExecutor>) -> Serial {
    Serial::new(Arc::clone(pool) as Arc<dyn Executor>)
}

/// What each thread hands in.
const EACH: usize = if cfg!(miri) { 20 } else { 2000 };

#[test]
fn jobs_of_many_threads_never_overlap_and_keep_each_thread_s_order() {
    let pool = Arc::new(fixed(3));
    let (queue, busy, seen) = (serial(&pool), Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(vec![])));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (queue, busy, seen) = (&queue, &busy, &seen);
            scope.spawn(move || {
                for number in 0..EACH {
                    let (busy, seen) = (Arc::clone(busy), Arc::clone(seen));
                    let run = move || {
                        assert!(!busy.swap(true, Ordering::Acquire), "two at a time");
                        seen.lock().push((thread, number));
                        busy.store(false, Ordering::Release);
                    };
                    queue.execute(Job::new(run)).expect("open");
                }
            });
        }
    });
    assert!(queue.join(soon()).is_complete());
    assert_eq!((queue.statistics().executed(), queue.statistics().panicked()), (4 * EACH as u64, 0));
    let seen = seen.lock();
    for thread in 0..4 {
        assert!(seen.iter().filter(|(by, _)| *by == thread).map(|(_, number)| *number).eq(0..EACH));
    }
}

#[test]
fn an_idle_queue_holds_no_thread_and_a_busy_one_holds_one() {
    let (pool, queues) = (Arc::new(fixed(2)), if cfg!(miri) { 5 } else { 50 });
    let queues: Vec<_> = (0..queues).map(|_| serial(&pool)).collect();
    for queue in &queues {
        queue.submit(|| ()).expect("open").join().expect("ran");
    }
    let latch = Latch::default();
    latch.hold(&queues[0]);
    queues[0].execute(Job::new(|| {})).expect("open");
    // The other worker serves all the others.
    for queue in &queues[1..] {
        queue.submit(|| ()).expect("open").join().expect("ran");
    }
    assert_eq!(queues[0].statistics().queued, 1);
    latch.open();
    assert!(queues[0].join(soon()).is_complete());
}

#[test]
fn a_refused_turn_gives_the_job_back_and_the_queue_goes_on_later() {
    let config = Config { max_queue: Some(1), when_full: WhenFull::Reject, ..Config::named("full") };
    let pool = Arc::new(FixedExecutor::new(1, config).expect("threads"));
    let (queue, latch, ran) = (serial(&pool), Latch::default(), Arc::new(AtomicUsize::new(0)));
    latch.hold(&*pool);
    pool.execute(Job::new(counting(&ran))).expect("room for one");
    let rejected = queue.execute(Job::new(counting(&ran))).expect_err("no room");
    assert_eq!((rejected.reason, queue.statistics().queued), (Reason::Full, 0));
    latch.open();
    waiting::eventually("there is room", || pool.statistics().queued == 0);
    queue.execute(rejected.job).expect("room");
    assert!(queue.join(soon()).is_complete());
    assert!(pool.join(soon()).is_complete());
    assert_eq!(ran.load(Ordering::Relaxed), 2);
}

#[test]
fn a_queue_that_is_dropped_runs_its_jobs_and_one_on_a_queue_keeps_both_orders() {
    let bounds = Bounds { min: 1, max: 3, keep_alive: waiting::LONG };
    let pool = Arc::new(DynamicExecutor::new(bounds, Config::named("dynamic")).expect("threads"));
    let outer = Arc::new(Serial::new(pool as Arc<dyn Executor>));
    let inner = Serial::new(Arc::clone(&outer) as Arc<dyn Executor>);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let jobs = if cfg!(miri) { 80 } else { 500 };
    for number in 0..jobs {
        let seen = Arc::clone(&seen);
        inner.execute(Job::new(move || seen.lock().push(number))).expect("open");
    }
    drop(inner);
    waiting::eventually("all have run", || seen.lock().len() == jobs);
    assert!(seen.lock().is_sorted());
    assert!(outer.join(soon()).is_complete());
}

#[test]
fn a_worker_that_joins_a_queued_job_does_not_run_it_out_of_turn() {
    let pool = Arc::new(fixed(2));
    let (queue, latch, seen) = (serial(&pool), Latch::default(), Arc::new(Mutex::new(Vec::new())));
    latch.hold(&queue);
    let note = |number: u32| {
        let seen = Arc::clone(&seen);
        move || seen.lock().push(number)
    };
    queue.execute(Job::new(note(1))).expect("open");
    let second = queue.submit(note(2)).expect("open");
    let joiner = pool.submit(move || second.join()).expect("open");
    waiting::eventually("the joiner waits", || {
        pool.statistics().running == 2 || pool.statistics().sleeping > 0
    });
    assert!(seen.lock().is_empty());
    latch.open();
    joiner.join().expect("ran").expect("ran");
    assert_eq!(*seen.lock(), [1, 2]);
}
