//! The engine of a pool whose tasks threads of this process take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_pool::{
    Call, Config, Engine, Failure, Finished, Limit, OnCrash, Opaque, Options, Outcome, Overflow, Phase, Rare,
    Refused, Stage, Taken, Task, Times, WaitFor, Waited,
};
use ropewalk_sync::Mutex;
use ropewalk_sync::spin::AdaptiveSpin;

fn config() -> Config {
    Config {
        name: "local".into(),
        workers: 2,
        threads: 1,
        capacity: None,
        overflow: Overflow::Block,
        on_crash: OnCrash::Replace,
        grace: Duration::from_secs(1),
        ..Config::default()
    }
}

fn engine(config: Config) -> Engine {
    Engine::of_threads(config).expect("started")
}

fn try_submit(engine: &Engine, number: u64, options: Options) -> Result<Arc<Task>, Refused> {
    let call = Call::Local(Mutex::new(Some(Opaque::new(number))));
    engine.submit(call, 0, options, true).map_err(|refused| refused.1)
}

fn submit(engine: &Engine, number: u64) -> Arc<Task> {
    try_submit(engine, number, Options::default()).expect("taken")
}

fn take(engine: &Engine) -> Option<(Arc<Task>, u64)> {
    match engine.take_local(&mut AdaptiveSpin::new(), Duration::ZERO) {
        Taken::Task(task, work) => Some((task, *work.downcast_ref::<u64>().expect("what was put in"))),
        Taken::Nothing => None,
        Taken::Closed => panic!("it is closed"),
    }
}

fn is_over(engine: &Engine) -> bool {
    matches!(engine.take_local(&mut AdaptiveSpin::new(), Duration::ZERO), Taken::Closed)
}

fn raise(engine: &Engine, task: &Arc<Task>, again: Option<u64>) {
    let (value, again) = (Opaque::new(7_u64), again.map(Opaque::new));
    engine.finish_local(Finished {
        task: Arc::clone(task),
        value,
        raised: true,
        times: Times { busy_ns: 0, ..Times::default() },
        function: None,
        stopped: false,
        again,
    });
}

fn answer(engine: &Engine, task: &Arc<Task>, number: u64) {
    let value = Opaque::new(number);
    engine.finish_local(Finished {
        task: Arc::clone(task),
        value,
        raised: false,
        times: Times { busy_ns: 5, ..Times::default() },
        function: None,
        stopped: false,
        again: None,
    });
}

fn value(task: &Task) -> Option<(u64, bool)> {
    match task.outcome()? {
        Outcome::Local { value, raised } => Some((*value.downcast_ref().expect("a number"), *raised)),
        other => panic!("{other:?}"),
    }
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(20))
}

fn counters(engine: &Engine) -> (u64, u64, u64, u64, u64, u64) {
    let all = engine.statistics().expect("not forked").counters;
    (all.submitted, all.completed, all.failed, all.cancelled, all.timed_out, all.retried)
}

#[test]
fn tasks_are_taken_in_order_and_answered_once() {
    let engine = engine(config());
    assert!(
        engine.capabilities().kind == "thread"
            && !engine.is_asleep()
            && !engine.is_closed()
            && !engine.is_forked()
    );
    assert!(take(&engine).is_none());
    let tasks = [submit(&engine, 1), submit(&engine, 2)];
    let urgent = try_submit(&engine, 3, Options { priority: 1, ..Options::default() }).expect("taken");
    let statistics = engine.statistics().expect("not forked");
    assert_eq!((statistics.queued, statistics.running, statistics.workers.len()), (3, 0, 0));
    assert_eq!(urgent.stage(), Stage::Queued);
    for (task, number) in [(&urgent, 3), (&tasks[0], 1)] {
        let (taken, found) = take(&engine).expect("one");
        assert!(Arc::ptr_eq(&taken, task));
        assert_eq!((found, task.stage(), task.attempt()), (number, Stage::Running, 1));
        assert!(engine.is_running(task));
        assert_eq!(engine.statistics().expect("not forked").running, 1);
        answer(&engine, task, number * 10);
        assert_eq!(value(task), Some((number * 10, false)));
        assert!(!engine.is_running(task));
        let record = task.record();
        assert_eq!((record.pid, record.busy_ns), (std::process::id() as i32, 5));
        assert!(record.total_ns > 0);
    }
    assert_eq!(engine.statistics().expect("not forked").queued, 1);
    assert_eq!(counters(&engine), (3, 2, 0, 0, 0, 0));
    assert_eq!(engine.statistics().expect("not forked").counters.busy_ns, 10);
    assert!(tasks[0].id < tasks[1].id && tasks[1].id < urgent.id);
    answer(&engine, &tasks[0], 99);
    assert_eq!(value(&tasks[0]), Some((10, false)), "the first answer holds");
}

#[test]
fn what_raises_is_run_again_while_it_may_be() {
    let engine = engine(config());
    let task = try_submit(&engine, 1, Options { retries: 1, ..Options::default() }).expect("taken");
    for attempt in 1..=2 {
        let (taken, _) = take(&engine).expect("one");
        assert_eq!(taken.attempt(), attempt);
        assert!(!task.is_done());
        raise(&engine, &taken, Some(1));
    }
    assert_eq!(value(&task), Some((7, true)));
    assert!(take(&engine).is_none());
    assert_eq!(counters(&engine), (1, 0, 1, 0, 0, 1));
    // Without its call it cannot be run again.
    let task = try_submit(&engine, 1, Options { retries: 1, ..Options::default() }).expect("taken");
    let (taken, _) = take(&engine).expect("one");
    raise(&engine, &taken, None);
    assert_eq!(value(&task), Some((7, true)));
}

#[test]
fn a_task_is_cancelled_until_it_runs() {
    let engine = engine(config());
    let (first, second) = (submit(&engine, 1), submit(&engine, 2));
    assert!(engine.cancel(&second, false) && !engine.cancel(&second, false));
    assert!(matches!(second.outcome(), Some(Outcome::Cancelled)));
    let (taken, number) = take(&engine).expect("one");
    assert_eq!(number, 1);
    assert!(!engine.cancel(&first, true), "a thread cannot be ended");
    answer(&engine, &taken, 10);
    assert_eq!(value(&first), Some((10, false)));
    assert!(take(&engine).is_none());
    assert_eq!(counters(&engine), (2, 1, 0, 1, 0, 0));
}

#[test]
fn times_that_are_up_end_tasks_that_wait_and_tasks_that_run() {
    let engine = engine(config());
    let short = Duration::from_millis(20);
    let deadline = || Rare { deadline: Some(short), ..Rare::default() }.into();
    let timeout = || Rare { timeout: Some(short), ..Rare::default() }.into();
    let waits = try_submit(&engine, 1, deadline()).expect("taken");
    assert_eq!(engine.wait(&WaitFor::Task(Arc::clone(&waits)), soon()), Waited::Ready);
    let ended = |task: &Task| match task.outcome() {
        Some(Outcome::Failed(Failure::TimedOut(limit, phase))) => (*limit, *phase),
        other => panic!("{other:?}"),
    };
    assert_eq!(ended(&waits), (Limit::Deadline, Phase::Queued));
    // Its timeout does not count while it waits.
    let runs = try_submit(&engine, 2, timeout()).expect("taken");
    assert_eq!(
        engine.wait(&WaitFor::Task(Arc::clone(&runs)), Some(Instant::now() + short * 2)),
        Waited::TimedOut
    );
    let (taken, _) = take(&engine).expect("one");
    assert_eq!(engine.wait(&WaitFor::Task(Arc::clone(&runs)), soon()), Waited::Ready);
    assert_eq!(ended(&runs), (Limit::Timeout, Phase::Running));
    answer(&engine, &taken, 20);
    assert_eq!(ended(&runs), (Limit::Timeout, Phase::Running), "it came too late");
    assert_eq!(counters(&engine), (2, 0, 2, 0, 2, 0));
    // The time of the earliest is kept, whichever came first.
    let hour = Rare { deadline: Some(Duration::from_secs(3600)), ..Rare::default() }.into();
    let long = try_submit(&engine, 3, hour).expect("taken");
    let soon_over = try_submit(&engine, 4, deadline()).expect("taken");
    assert_eq!(engine.wait(&WaitFor::Any([long, soon_over].into()), soon()), Waited::Ready);
}

#[test]
fn who_cannot_block_is_told_of_room() {
    let engine = engine(Config { capacity: Some(1), ..config() });
    assert!(engine.waits_for_room() && engine.room().is_none());
    let first = submit(&engine, 1);
    let (told, forgotten) = (engine.room().expect("full"), engine.room().expect("full"));
    assert!(told.watch() && forgotten.watch());
    assert!(!told.is_done() && engine.take_completed().is_empty());
    engine.forget_room(&forgotten);
    assert!(forgotten.is_done() && !told.is_done());
    assert_eq!(engine.take_completed().len(), 1);
    let (taken, _) = take(&engine).expect("one");
    assert!(told.is_done(), "a task has left the queue");
    assert_eq!(engine.take_completed().len(), 1);
    engine.forget_room(&told);
    assert!(engine.take_completed().is_empty(), "it was reported once");
    answer(&engine, &taken, 1);
    assert!(first.is_done() && engine.room().is_none());
    // A task that is cancelled makes room, and so does the end of the pool: then a submission is refused at once.
    let second = submit(&engine, 2);
    let room = engine.room().expect("full");
    assert!(engine.cancel(&second, false) && room.is_done());
    let _third = submit(&engine, 3);
    let room = engine.room().expect("full");
    engine.close(false);
    assert!(room.is_done() && engine.room().is_none());
    assert_eq!(counters(&engine).0, 3, "what waits for room is no task");
}

#[test]
fn what_comes_back_needs_no_room() {
    let engine = engine(Config { capacity: Some(1), ..config() });
    submit(&engine, 1);
    assert!(matches!(try_submit(&engine, 2, Options::default()), Err(Refused::MustWait(..))));
    let call = Call::Local(Mutex::new(Some(Opaque::new(2_u64))));
    assert!(engine.submit_again(call, 0, Options::default()).is_ok());
    engine.close(true);
    let call = Call::Local(Mutex::new(Some(Opaque::new(3_u64))));
    let refused = engine.submit_again(call, 0, Options::default()).expect_err("closed");
    assert!(matches!(refused.1, Refused::Closed));
    assert!(engine.room().is_none());
}

#[test]
fn a_pool_that_refuses_has_nobody_wait_for_room() {
    let engine = engine(Config { capacity: Some(1), overflow: Overflow::Error, ..config() });
    submit(&engine, 1);
    assert!(!engine.waits_for_room() && engine.room().is_none());
}

#[test]
fn a_thread_waits_for_a_task_or_for_room() {
    let engine = engine(Config { capacity: Some(1), ..config() });
    let first = submit(&engine, 1);
    let what = WaitFor::AnyOrSpace([Arc::clone(&first)].into());
    assert_eq!(engine.wait(&what, Some(Instant::now())), Waited::TimedOut);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| engine.wait(&what, soon()));
        let (taken, _) = take(&engine).expect("one");
        assert_eq!(waiter.join().expect("no panic"), Waited::Ready);
        assert!(!first.is_done(), "there is room, and the task goes on");
        submit(&engine, 2);
        let waiter = scope.spawn(|| engine.wait(&what, soon()));
        answer(&engine, &taken, 1);
        assert_eq!(waiter.join().expect("no panic"), Waited::Ready);
        assert!(first.is_done());
    });
}

#[test]
fn a_full_queue_has_room_when_a_task_is_taken() {
    for overflow in [Overflow::Block, Overflow::Error] {
        let engine = engine(Config { capacity: Some(2), overflow, ..config() });
        assert_eq!(engine.wait(&WaitFor::Space, None), Waited::Ready);
        let (first, _second) = (submit(&engine, 1), submit(&engine, 2));
        let refused = try_submit(&engine, 3, Options::default()).expect_err("full");
        assert_eq!(matches!(refused, Refused::Full(..)), overflow == Overflow::Error);
        assert_eq!(matches!(refused, Refused::MustWait(..)), overflow == Overflow::Block);
        assert_eq!(engine.wait(&WaitFor::Space, Some(Instant::now())), Waited::TimedOut);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| engine.wait(&WaitFor::Space, soon()));
            let (taken, _) = take(&engine).expect("one");
            assert_eq!(waiter.join().expect("no panic"), Waited::Ready);
            answer(&engine, &taken, 1);
        });
        submit(&engine, 3);
        assert_eq!(counters(&engine).0, 3, "what was refused does not count");
        assert!(first.is_done());
    }
}

#[test]
fn waiters_hear_of_what_they_wait_for() {
    let engine = engine(config());
    let (first, second) = (submit(&engine, 1), submit(&engine, 2));
    assert!(second.watch());
    assert!(engine.take_completed().is_empty());
    assert_eq!(engine.wait(&WaitFor::Completed, Some(Instant::now())), Waited::TimedOut);
    assert_eq!(
        engine.wait(&WaitFor::Any([Arc::clone(&first)].into()), Some(Instant::now())),
        Waited::TimedOut
    );
    std::thread::scope(|scope| {
        let all = [
            WaitFor::Task(Arc::clone(&second)),
            WaitFor::Completed,
            WaitFor::Any([Arc::clone(&first), Arc::clone(&second)].into()),
        ];
        let waiters: Vec<_> = all.map(|what| scope.spawn(|| (engine.wait(&what, soon()), what))).into();
        let (one, _) = take(&engine).expect("one");
        let (two, _) = take(&engine).expect("the other");
        answer(&engine, &two, 2);
        for waiter in waiters {
            let (waited, what) = waiter.join().expect("no panic");
            assert_eq!(waited, Waited::Ready, "{what:?}");
        }
        assert!(!first.is_done());
        answer(&engine, &one, 1);
    });
    let completed: Vec<_> = engine.take_completed().iter().map(|task| task.id).collect();
    assert_eq!(completed, [second.id], "nobody watched the other");
    assert!(engine.take_completed().is_empty());
    assert!(engine.start_collecting() && !engine.start_collecting());
    engine.stop_collecting();
    assert!(engine.start_collecting());
}

#[test]
fn a_thread_that_waits_for_a_task_gets_the_next_one() {
    let engine = engine(config());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let deadline = Instant::now() + Duration::from_secs(20);
            loop {
                let taken = engine.take_local(&mut AdaptiveSpin::new(), Duration::from_secs(20));
                if let Taken::Task(task, _) = taken {
                    return task.id;
                }
                assert!(Instant::now() < deadline, "it heard of none");
            }
        });
        let task = submit(&engine, 1);
        assert_eq!(thread.join().expect("no panic"), task.id);
    });
}

#[test]
fn a_closed_pool_runs_what_it_has_and_ends() {
    let engine = engine(config());
    let (first, second) = (submit(&engine, 1), submit(&engine, 2));
    let (taken, _) = take(&engine).expect("one");
    engine.close(false);
    assert!(engine.is_closed() && !engine.has_ended() && engine.broken().is_none());
    assert!(matches!(try_submit(&engine, 3, Options::default()), Err(Refused::Closed)));
    assert_eq!(engine.join(Some(Instant::now())), Waited::TimedOut);
    answer(&engine, &taken, 1);
    let (taken, _) = take(&engine).expect("the other");
    assert!(Arc::ptr_eq(&taken, &second) && first.is_done());
    answer(&engine, &taken, 2);
    assert_eq!(engine.join(soon()), Waited::Ready);
    assert!(engine.has_ended());
    assert!(is_over(&engine));
}

#[test]
fn a_pool_that_is_closed_and_cancels_spares_what_free_threads_would_have_taken() {
    let engine = engine(config());
    let tasks: Vec<_> = (0..4).map(|number| submit(&engine, number)).collect();
    let (taken, _) = take(&engine).expect("one");
    engine.close(true);
    // One of the two threads is free.
    let ended: Vec<_> = tasks.iter().map(|task| task.is_done()).collect();
    assert_eq!(ended, [false, false, true, true]);
    answer(&engine, &taken, 1);
    let (taken, number) = take(&engine).expect("the spared one");
    assert_eq!(number, 1);
    answer(&engine, &taken, 1);
    assert_eq!(engine.join(soon()), Waited::Ready);
    assert_eq!(counters(&engine), (4, 2, 0, 2, 0, 0));
}

#[test]
fn a_terminated_pool_ends_its_tasks_at_once() {
    for by_end in [false, true] {
        let engine = engine(config());
        let (first, second) = (submit(&engine, 1), submit(&engine, 2));
        let (taken, _) = take(&engine).expect("one");
        if by_end {
            engine.end(Duration::ZERO)
        } else {
            engine.terminate()
        }
        assert!(matches!(first.outcome(), Some(Outcome::Failed(Failure::Terminated))));
        assert!(matches!(second.outcome(), Some(Outcome::Cancelled)));
        assert_eq!(engine.join(soon()), Waited::Ready, "it does not wait for the call, which goes on");
        answer(&engine, &taken, 1);
        assert!(matches!(first.outcome(), Some(Outcome::Failed(Failure::Terminated))));
    }
}

#[test]
fn a_grace_lets_what_runs_finish_and_then_ends_it() {
    for (grace, ends) in [(Duration::from_millis(30), true), (Duration::from_secs(3600), false)] {
        let engine = engine(config());
        let task = try_submit(&engine, 1, Options { retries: 3, ..Options::default() }).expect("taken");
        let (taken, _) = take(&engine).expect("one");
        let waiting = submit(&engine, 2);
        engine.end(grace);
        assert!(waiting.is_done() && !task.is_done());
        if ends {
            assert_eq!(engine.wait(&WaitFor::Task(Arc::clone(&task)), soon()), Waited::Ready);
            assert!(matches!(task.outcome(), Some(Outcome::Failed(Failure::Terminated))));
        }
        raise(&engine, &taken, Some(1));
        if !ends {
            assert_eq!(value(&task), Some((7, true)), "nothing is run again");
        }
        assert_eq!(engine.join(soon()), Waited::Ready);
    }
}

#[test]
fn a_broken_pool_says_why_and_takes_nothing() {
    let engine = engine(config());
    let (first, second) = (submit(&engine, 1), submit(&engine, 2));
    let (taken, _) = take(&engine).expect("one");
    engine.break_down(&Failure::Broken("of a test".into()));
    assert!(matches!(second.outcome(), Some(Outcome::Failed(Failure::Broken(why))) if &**why == "of a test"));
    assert!(matches!(engine.broken(), Some(Failure::Broken(why)) if &*why == "of a test"));
    assert!(matches!(try_submit(&engine, 3, Options::default()), Err(Refused::Broken(_))));
    assert!(is_over(&engine));
    answer(&engine, &taken, 1);
    assert!(first.is_done());
    assert_eq!(engine.join(soon()), Waited::Ready);
    engine.break_down(&Failure::Terminated);
    assert!(matches!(engine.broken(), Some(Failure::Broken(_))), "the first reason stays");
}
