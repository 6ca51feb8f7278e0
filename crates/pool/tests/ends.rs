//! Pools of worker processes: their numbers, and all the ways in which they end.

mod rust_workers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_pool::codec::table::{self, Part, Table};
use ropewalk_pool::wire::{flags, kind};
use ropewalk_pool::{
    Config, Failure, OnCrash, Options, Outcome, Overflow, Refused, Task, WaitFor, Waited, WorkerState,
};
use rust_workers::{Pool, config};

/// Not a test of its own: what a zygote runs.
#[test]
fn zygote_main() {
    rust_workers::zygote_main();
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(20))
}

/// A task that a worker runs already.
fn running(pool: &Pool) -> Arc<Task> {
    let task = pool.submit("nap 20000");
    eventually("it runs", || pool.engine.is_running(&task));
    task
}

fn is_terminated(task: &Task) -> bool {
    matches!(task.outcome(), Some(Outcome::Failed(Failure::Terminated)))
}

fn is_cancelled(task: &Task) -> bool {
    matches!(task.outcome(), Some(Outcome::Cancelled))
}

#[test]
fn numbers_tell_what_workers_do() {
    let pool = Pool::new(config(2));
    assert!(
        pool.engine.capabilities().kind == "process" && !pool.engine.is_asleep() && !pool.engine.is_closed()
    );
    let statistics = || pool.engine.statistics().expect("not forked");
    let count = |state| statistics().workers.iter().filter(|worker| worker.state == state).count();
    eventually("both are ready", || count(WorkerState::Idle) == 2);
    let busy = running(&pool);
    eventually("one is busy", || count(WorkerState::Busy) == 1);
    assert_eq!((statistics().running, statistics().queued), (1, 0));
    for i in 0..10 {
        assert_eq!(pool.text(&pool.submit(&format!("nap {i}"))), i.to_string());
    }
    let numbers = statistics();
    let completed: Vec<u64> = numbers.workers.iter().map(|worker| worker.completed).collect();
    assert!(completed == [0, 10] || completed == [10, 0], "{completed:?}");
    let busy_ns: u64 = numbers.workers.iter().map(|worker| worker.busy_ns).sum();
    assert!(busy_ns >= 45_000_000 && numbers.counters.busy_ns == busy_ns, "{busy_ns}");
    let other = running(&pool);
    let waiting = [pool.submit("echo 1"), pool.submit("echo 2")];
    eventually("two wait", || (statistics().running, statistics().queued) == (2, 2));
    assert!(pool.engine.cancel(&waiting[0], false));
    assert_eq!(statistics().queued, 1);
    for task in [&busy, &other] {
        let pid = statistics().workers.iter().map(|worker| worker.pid).collect::<Vec<_>>();
        assert!(pool.engine.cancel(task, true));
        assert!(pid.contains(&task.record().pid), "{pid:?} {:?}", task.record());
    }
    assert_eq!(pool.text(&waiting[1]), "2");
    let counters = statistics().counters;
    assert_eq!((counters.submitted, counters.completed, counters.cancelled), (14, 11, 3));
    assert_eq!((counters.failed, counters.crashed, counters.retried), (0, 0, 0));
}

#[test]
fn a_closed_pool_finishes_what_it_has_taken() {
    let pool = Pool::new(config(2));
    let tasks: Vec<_> = (0..50).map(|i| pool.submit(&format!("echo {i}"))).collect();
    pool.engine.close(false);
    assert!(pool.engine.is_closed());
    assert!(matches!(pool.try_submit("echo", Options::default()), Err(Refused::Closed)));
    for (i, task) in tasks.iter().enumerate() {
        assert_eq!(pool.text(task), i.to_string());
    }
    assert_eq!(pool.engine.join(soon()), Waited::Ready);
    assert!(pool.engine.has_ended());
    assert!(pool.engine.statistics().expect("not forked").workers.is_empty());
}

#[test]
fn a_pool_that_ends_at_once_takes_its_workers_with_it() {
    for by_end in [false, true] {
        let pool = Pool::new(config(1));
        let first = running(&pool);
        let waiting: Vec<_> = (0..5).map(|_| pool.submit("nap 20000")).collect();
        assert_eq!(pool.engine.join(Some(Instant::now())), Waited::TimedOut);
        if by_end {
            pool.engine.end(Duration::ZERO)
        } else {
            pool.engine.terminate()
        }
        assert!(is_terminated(&first) && first.record().pid > 0);
        assert!(waiting.iter().all(|task| is_cancelled(task)));
        assert_eq!(pool.engine.join(soon()), Waited::Ready);
        let counters = pool.engine.statistics().expect("not forked").counters;
        assert_eq!((counters.cancelled, counters.failed, counters.crashed), (5, 1, 0));
    }
}

#[test]
fn a_grace_is_given_to_what_runs() {
    let pool = Pool::new(config(1));
    let first = running(&pool);
    let waiting = pool.submit("nap 1");
    pool.engine.end(Duration::from_millis(50));
    assert!(is_cancelled(&waiting) && !first.is_done());
    pool.wait(&first);
    assert!(is_terminated(&first));
    let pool = Pool::new(config(1));
    let first = pool.submit("nap 100");
    eventually("it runs", || pool.engine.is_running(&first));
    pool.engine.end(Duration::from_secs(3600));
    assert_eq!(pool.text(&first), "100");
    assert_eq!(pool.engine.join(soon()), Waited::Ready);
}

#[test]
fn a_signal_ends_the_workers_that_it_ends() {
    let pool = Pool::new(config(1));
    let (first, waiting) = (running(&pool), pool.submit("nap 1"));
    let kill = 9;
    pool.engine.signal_workers(kill);
    assert!(is_cancelled(&waiting));
    pool.wait(&first);
    assert!(is_terminated(&first));
    assert_eq!(pool.engine.join(soon()), Waited::Ready);
    assert_eq!(pool.engine.statistics().expect("not forked").counters.restarted, 0);
}

#[test]
fn a_crash_breaks_a_pool_that_is_told_so() {
    let pool = Pool::new(Config { on_crash: OnCrash::Break, ..config(2) });
    let (other, victim) = (running(&pool), pool.submit("exit 3"));
    pool.wait(&victim);
    pool.wait(&other);
    for task in [&other, &victim] {
        let crashed = matches!(
            task.outcome(),
            Some(Outcome::Failed(Failure::Crashed { status: Some(status), .. })) if *status == 3 << 8
        );
        assert!(crashed, "{:?}", task.outcome());
    }
    assert!(matches!(pool.engine.broken(), Some(Failure::Crashed { .. })));
    assert!(matches!(pool.try_submit("echo", Options::default()), Err(Refused::Broken(_))));
    assert_eq!(pool.engine.join(soon()), Waited::Ready);
}

#[test]
fn a_broken_pool_ends_everything_with_its_reason() {
    let pool = Pool::new(config(1));
    let (first, waiting) = (running(&pool), pool.submit("nap 1"));
    pool.engine.break_down(&Failure::Broken("of a test".into()));
    for task in [&first, &waiting] {
        assert!(
            matches!(task.outcome(), Some(Outcome::Failed(Failure::Broken(why))) if &**why == "of a test")
        );
    }
    assert_eq!(pool.engine.join(soon()), Waited::Ready);
}

#[test]
fn a_lazy_pool_has_as_many_workers_as_it_needed() {
    let pool = Pool::new(Config { lazy: true, ..config(3) });
    assert!(pool.engine.is_asleep());
    assert!(pool.engine.statistics().expect("not forked").workers.is_empty());
    pool.engine.awaken().expect("started");
    assert!(!pool.engine.is_asleep());
    assert_eq!(pool.text(&pool.submit("echo 1")), "1");
    assert_eq!(pool.engine.statistics().expect("not forked").workers.len(), 1);
    let both = [running(&pool), running(&pool)];
    assert_eq!(pool.engine.statistics().expect("not forked").workers.len(), 2);
    for task in &both {
        assert!(pool.engine.cancel(task, true));
    }
}

#[test]
fn whoever_waits_hears_of_it() {
    let pool = Pool::new(Config { capacity: Some(1), overflow: Overflow::Block, ..config(1) });
    let engine = &pool.engine;
    let first = running(&pool);
    let second = pool.submit("echo 2");
    assert!(second.watch());
    assert!(matches!(pool.try_submit("echo 3", Options::default()), Err(Refused::MustWait(..))));
    let all = [
        WaitFor::Task(Arc::clone(&second)),
        WaitFor::Completed,
        WaitFor::Any([Arc::clone(&first), Arc::clone(&second)].into()),
        WaitFor::Space,
    ];
    for what in &all {
        assert_eq!(engine.wait(what, Some(Instant::now())), Waited::TimedOut, "{what:?}");
    }
    std::thread::scope(|scope| {
        let waiters: Vec<_> = all.iter().map(|what| scope.spawn(|| engine.wait(what, soon()))).collect();
        assert!(engine.cancel(&first, true));
        for waiter in waiters {
            assert_eq!(waiter.join().expect("no panic"), Waited::Ready);
        }
    });
    assert_eq!(pool.text(&second), "2");
    assert_eq!(engine.take_completed().iter().map(|task| task.id).collect::<Vec<_>>(), [second.id]);
}

#[test]
fn higher_priorities_go_before_what_waits_in_a_lane() {
    let pool = Pool::new(config(1));
    for _ in 0..100 {
        pool.text(&pool.submit("echo short"));
    }
    let first = running(&pool);
    let usual: Vec<_> = (0..10).map(|i| pool.submit(&format!("echo {i}"))).collect();
    let urgent = pool.try_submit("nap 20000", Options { priority: 5, ..Options::default() }).expect("taken");
    assert!(pool.engine.cancel(&first, true));
    eventually("the urgent one runs", || pool.engine.is_running(&urgent));
    assert!(usual.iter().all(|task| !task.is_done()), "it came before all of them");
    assert!(pool.engine.cancel(&urgent, true));
    for (i, task) in usual.iter().enumerate() {
        assert_eq!(pool.text(task), i.to_string());
    }
}

#[test]
fn a_described_answer_comes_with_its_parts() {
    let pool = Pool::new(config(1));
    for parts in [&[&b"stream"[..]][..], &[b"stream", b"", &[7; 1000]]] {
        let inline: Vec<_> = parts.iter().map(|part| Part::Inline(part)).collect();
        let frame = rust_workers::hex(&table::write(0, &inline, &[]));
        let task = pool.submit(&format!("say {} {} own 5 {frame}", kind::DONE, flags::DESCRIBED));
        pool.wait(&task);
        let Some(Outcome::Replied(reply)) = task.outcome() else { panic!("{:?}", task.outcome()) };
        assert_eq!((reply.flags, reply.segments.len()), (flags::DESCRIBED, 0));
        let table = Table::parse(&reply.bytes).expect("a frame");
        let found: Vec<_> = table.entries().filter_map(|entry| table.inline(&entry)).collect();
        assert_eq!(found, parts);
        assert_eq!((task.record().busy_ns, task.attempt()), (5, 1));
    }
    let task = pool.submit(&format!("say {} {} own 5 -", kind::DONE, flags::ERROR | flags::EMPTY));
    pool.wait(&task);
    assert!(matches!(task.outcome(), Some(Outcome::Replied(reply)) if reply.flags & flags::ERROR != 0));
    let counters = pool.engine.statistics().expect("not forked").counters;
    assert_eq!((counters.completed, counters.failed, counters.retried), (2, 1, 0));
}
