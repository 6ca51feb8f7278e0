//! The counters, names and texts of executors, and what remains when they are gone.

#![cfg(not(loom))]

mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ropewalk_executor::{
    Bounds, Config, DynamicExecutor, Executor, FixedExecutor, InlineExecutor, Job, JobError, PanicHook,
    Reason, Serial, Submit, background,
};
use ropewalk_sync::Mutex;
use waiting::{Latch, counting, eventually, fixed, soon};

fn dynamic(config: Config) -> DynamicExecutor {
    let bounds = Bounds { min: 1, max: 3, keep_alive: waiting::LONG };
    DynamicExecutor::new(bounds, config).expect("threads")
}

#[test]
fn reasons_and_errors_say_what_happened() {
    let texts = [
        (Reason::Closed, "the executor is shut down"),
        (Reason::Full, "the executor's queue is full"),
        (Reason::Forked, "the executor belongs to the process that this one was forked from"),
        (Reason::NoThread, "the executor's timer thread could not be started"),
    ];
    for (reason, text) in texts {
        assert_eq!(reason.to_string(), text);
    }
    let pool = fixed(1);
    let spoken = pool.submit(|| panic!("in {}", "words")).expect("open").join().expect_err("it panicked");
    assert_eq!(spoken.to_string(), "the job panicked: in words");
    let silent = pool.submit(|| std::panic::panic_any(5)).expect("open").join().expect_err("it panicked");
    assert_eq!((silent.to_string().as_str(), silent.message()), ("the job panicked", None));
    assert_eq!(JobError::Cancelled.to_string(), "the job was cancelled before it started");
    assert_eq!(JobError::Dropped.to_string(), "the job was dropped before it started");
    assert_eq!(JobError::Dropped.message(), None);
    let report = pool.join(soon());
    assert_eq!(report.to_string(), "everything is over");
    assert_eq!(pool.execute(Job::new(|| {})).expect_err("closed").to_string(), "the executor is shut down");
}

#[test]
fn a_panic_s_report_says_where_it_was() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&reported);
    let hook: PanicHook = Arc::new(move |report| noted.lock().push(report.to_string()));
    let inline = InlineExecutor::new(Config { on_panic: Some(hook), ..Config::named("reported") });
    inline.execute(Job::new(|| panic!("words"))).expect("open");
    inline.execute(Job::new(|| std::panic::panic_any(5))).expect("open");
    let reported = reported.lock();
    let name = "account::a_panic_s_report_says_where_it_was::{{closure}}";
    assert_eq!(reported[0], format!("a job of reported panicked ({name}): words"));
    assert_eq!(reported[1], format!("a job of reported panicked ({name})"));
}

#[test]
fn numbers_of_a_pool_at_rest_are_exact() {
    let latch = Latch::default();
    for pool in [Arc::new(fixed(3)) as Arc<dyn Executor>, Arc::new(dynamic(Config::named("d")))] {
        for _ in 0..10 {
            pool.submit(|| {}).expect("open").join().expect("ran");
        }
        let _ = pool.submit(|| panic!("one")).expect("open").join();
        eventually("all sleep", || pool.statistics().sleeping == pool.statistics().live);
        let statistics = pool.statistics();
        assert_eq!((statistics.executed(), statistics.panicked()), (11, 1));
        assert_eq!((statistics.running, statistics.queued, statistics.delayed), (0, 0, 0));
        assert_eq!((statistics.hook_panics, statistics.failed_starts), (0, 0));
        assert!(statistics.live >= 1 && statistics.workers.len() == statistics.live);
        // A sleep is counted when it ends.
        assert!(pool.join(soon()).is_complete());
        let statistics = pool.statistics();
        assert!(statistics.workers.iter().all(|worker| worker.parked > 0), "{statistics:?}");
        assert_eq!((statistics.live, statistics.sleeping), (0, 0));
    }
    let pool = fixed(1);
    latch.hold(&pool);
    let handles: Vec<_> = (0..5).map(|_| pool.submit(|| {}).expect("open")).collect();
    let statistics = pool.statistics();
    assert_eq!((statistics.running, statistics.queued, statistics.sleeping), (1, 5, 0));
    assert!(handles[0].cancel());
    assert_eq!(pool.statistics().queued, 5, "a cancelled job counts until a worker comes to it");
    latch.open();
    assert!(pool.join(soon()).is_complete());
    assert_eq!(pool.statistics().executed(), 5);
}

#[test]
fn a_thief_counts_what_it_takes() {
    const JOBS: usize = 100;
    let (pool, ran) = (Arc::new(fixed(2)), Arc::new(AtomicUsize::new(0)));
    let (inner, count) = (Arc::clone(&pool), Arc::clone(&ran));
    // The one worker fills its deque and does not come back to it; so the other takes all of it.
    let fill = move || {
        for _ in 0..JOBS {
            inner.execute(Job::new(counting(&count))).expect("open");
        }
        eventually("the other worker runs them", || count.load(Ordering::Relaxed) == JOBS);
    };
    pool.submit(fill).expect("open").join().expect("ran");
    assert!(pool.join(soon()).is_complete());
    let mut stolen: Vec<_> = pool.statistics().workers.iter().map(|worker| worker.stolen).collect();
    stolen.sort_unstable();
    assert_eq!(stolen, [0, JOBS as u64]);
}

#[test]
fn an_inline_executor_bounds_what_is_delayed_and_counts_what_it_ran() {
    let hook: PanicHook = Arc::new(|_| panic!("the hook, too"));
    let config = Config { max_queue: Some(2), on_panic: Some(hook), ..Config::named("inline") };
    let inline = Arc::new(InlineExecutor::new(config));
    let second = Duration::from_secs(1);
    let after = |delay| inline.execute_after(delay, Job::new(|| {}));
    let first = after(second).expect("room");
    after(second).expect("room").detach();
    assert_eq!(after(second).expect_err("full").reason, Reason::Full);
    assert!(first.cancel().is_some());
    after(second * 2).expect("room again").detach();
    assert_eq!(inline.statistics().delayed, 2);
    assert_eq!((inline.advance(second), inline.advance(second), inline.advance(second)), (1, 1, 0));

    let (inner, seen) = (Arc::clone(&inline), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&seen);
    let outer = move || {
        let (again, deeper) = (Arc::clone(&inner), Arc::clone(&noted));
        noted.lock().push(inner.statistics().running);
        inner.execute(Job::new(move || deeper.lock().push(again.statistics().running))).expect("open");
        noted.lock().push(inner.statistics().running);
    };
    inline.execute(Job::new(outer)).expect("open");
    assert_eq!(*seen.lock(), [1, 2, 1]);
    inline.execute(Job::new(|| panic!("first"))).expect("open");
    let (job, handle) = Job::with_handle(|| ());
    assert!(handle.cancel());
    inline.execute(job).expect("open");
    let statistics = inline.statistics();
    assert_eq!((statistics.executed(), statistics.panicked(), statistics.hook_panics), (5, 1, 1));
    assert_eq!((statistics.running, statistics.delayed), (0, 0));
    assert!(!inline.is_current());
}

#[test]
fn a_delay_beyond_all_clocks_is_a_hundred_years() {
    let inline = InlineExecutor::new(Config::named("inline"));
    let year = Duration::from_secs(365 * 24 * 3600);
    inline.execute_after(Duration::MAX, Job::new(|| {})).expect("open").detach();
    assert_eq!(inline.advance(year * 99), 0);
    assert_eq!(inline.advance(year * 2), 1);
}

#[test]
fn a_serial_queue_counts_its_own_jobs() {
    let (pool, latch) = (Arc::new(fixed(2)), Latch::default());
    let queue = Serial::new(Arc::clone(&pool) as Arc<dyn Executor>);
    assert_eq!(queue.statistics().running, 0);
    latch.hold(&queue);
    queue.submit(|| panic!("one")).expect("open").detach();
    let cancelled = queue.submit(|| {}).expect("open");
    assert!(cancelled.cancel());
    let token = queue.execute_after(Duration::from_secs(3600), Job::new(|| {})).expect("open");
    let statistics = queue.statistics();
    assert_eq!((statistics.running, statistics.queued, statistics.delayed), (1, 2, 1));
    assert!(!queue.is_current());
    assert_eq!(pool.statistics().running, 1);
    // A withdrawn job is the caller's; it leaves the queue when it is run or dropped.
    drop(token.cancel());
    latch.open();
    assert!(queue.join(soon()).is_complete());
    let statistics = queue.statistics();
    assert_eq!((statistics.executed(), statistics.panicked()), (2, 1));
    assert_eq!((statistics.running, statistics.queued, statistics.delayed), (0, 0, 0));
    // All of it was one or two turns of the executor, which counts each when it ends.
    assert!(pool.join(soon()).is_complete());
    assert!((1..=3).contains(&pool.statistics().executed()), "{:?}", pool.statistics());
}

#[test]
fn a_dropped_pool_ends_its_threads() {
    type Make = fn(Config) -> Box<dyn Executor>;
    let made: [Make; 2] = [
        |config| Box::new(FixedExecutor::new(2, config).expect("threads")),
        |config| Box::new(dynamic(config)),
    ];
    for make in made {
        let hook: PanicHook = Arc::new(|_| {});
        let pool = make(Config { on_panic: Some(Arc::clone(&hook)), ..Config::named("dropped") });
        // There is also a timer thread, which has nothing left to wait for.
        let token = pool.execute_after(Duration::from_secs(3600), Job::new(|| {})).expect("open");
        assert!(token.cancel().is_some());
        assert!(Arc::strong_count(&hook) > 1);
        drop(pool);
        eventually("its threads let go of its settings", || Arc::strong_count(&hook) == 1);
        assert!(token.cancel().is_none());
    }
}

#[test]
fn a_pool_that_gets_no_thread_says_so() {
    let config = || Config { stack_size: Some(1 << 60), ..Config::named("too large") };
    let error = FixedExecutor::new(1, config()).expect_err("no machine has such a stack");
    assert!(error.to_string().contains("could not start a worker thread"), "{error}");
    assert_eq!(error.code(), ropewalk_base::Code::OutOfProcesses, "the limit is named");
    let bounds = Bounds { min: 1, max: 1, keep_alive: waiting::LONG };
    assert!(DynamicExecutor::new(bounds, config()).is_err());
}

#[test]
fn bounds_that_make_no_sense_are_taken_for_the_nearest_that_do() {
    let bounds = Bounds { min: 0, max: 0, keep_alive: Duration::ZERO };
    let pool = DynamicExecutor::new(bounds, Config::named("none")).expect("threads");
    assert_eq!(pool.submit(|| 7).expect("open").join().expect("ran"), 7);
    assert_eq!(pool.statistics().live, 1);
    let bounds = Bounds { min: 2, max: 1, keep_alive: Duration::ZERO };
    let pool = DynamicExecutor::new(bounds, Config::named("two")).expect("threads");
    assert_eq!(pool.statistics().live, 2);
    assert_eq!(pool.submit(|| 7).expect("open").join().expect("ran"), 7);
}

#[test]
fn the_background_is_one_pool() {
    let first = background().expect("threads");
    assert!(std::ptr::eq(first, background().expect("threads")));
    assert_eq!(first.submit(|| 7).expect("open").join().expect("ran"), 7);
}
