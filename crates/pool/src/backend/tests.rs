//! The contract of a pool with any backend, tested with each backend that needs no process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_sync::Mutex;
use ropewalk_sync::spin::AdaptiveSpin;

use super::inline::Inline;
use super::ray::Ray;
use super::threads::Threads;
use crate::config::{Config, OnCrash, Overflow};
use crate::locked::Opaque;
use crate::outcome::{Failure, Limit, Outcome, Phase};
use crate::pool::{Answer, Attended, Backend, Finished, News, Pool, Refused, Taken, WaitFor, Waited};
use crate::task::{Call, Options, Rare, Task};
use crate::times::Times;

const SOON: Duration = Duration::from_secs(60);

/// A pool of a kind, and how its tasks come to be run or not.
trait Tried: Backend<Settings = ()> {
    /// Runs what comes, until the pool is closed.
    fn run(pool: &Arc<Pool<Self>>) -> Vec<thread::JoinHandle<()>>;

    /// Lets tasks wait, or run again.
    fn stall(pool: &Pool<Self>, stalled: bool);
}

impl Tried for Inline {
    fn run(_pool: &Arc<Pool<Self>>) -> Vec<thread::JoinHandle<()>> {
        Vec::new()
    }

    fn stall(pool: &Pool<Self>, stalled: bool) {
        pool.lock().members = stalled;
    }
}

static STALLED: AtomicBool = AtomicBool::new(false);

impl Tried for Threads {
    fn run(pool: &Arc<Pool<Self>>) -> Vec<thread::JoinHandle<()>> {
        let serve = |pool: &Pool<Self>| {
            let mut spin = AdaptiveSpin::new();
            loop {
                while STALLED.load(Ordering::Acquire) && !pool.is_closed() {
                    thread::yield_now();
                }
                match pool.take_local(&mut spin, Duration::from_millis(1)) {
                    Taken::Task(task, value) => {
                        let raised = value.downcast_ref::<&str>().is_some_and(|text| *text == "raise");
                        let again = raised.then(|| Opaque::new("raise"));
                        pool.finish_local(Finished {
                            task,
                            value,
                            raised,
                            times: Times { busy_ns: 1, ..Times::default() },
                            function: None,
                            stopped: false,
                            again,
                        });
                    }
                    Taken::Nothing => {}
                    Taken::Closed => return,
                }
            }
        };
        (0..2)
            .map(|_| {
                let pool = Arc::clone(pool);
                thread::spawn(move || serve(&pool))
            })
            .collect()
    }

    fn stall(_pool: &Pool<Self>, stalled: bool) {
        STALLED.store(stalled, Ordering::Release);
    }
}

impl Tried for Ray {
    fn run(pool: &Arc<Pool<Self>>) -> Vec<thread::JoinHandle<()>> {
        let serve = |pool: &Pool<Self>, lane: usize| {
            let mut news = News::Ready(7);
            loop {
                while HELD.load(Ordering::Acquire) && !pool.is_closed() {
                    thread::yield_now();
                }
                news = match pool.attend(lane, news, Duration::from_millis(1)) {
                    Attended::Task(task) | Attended::First(task) => {
                        let Call::Local(call) = &task.call else { unreachable!("all are local here") };
                        let text = call.lock().as_ref().and_then(|call| call.downcast_ref::<&str>().copied());
                        let text = text.unwrap_or("cancelled");
                        let value = Opaque::new(text);
                        News::Answered(Answer {
                            value,
                            raised: text == "raise",
                            again: true,
                            stopped: false,
                            busy_ns: 1,
                            progress: None,
                        })
                    }
                    Attended::Nothing | Attended::Drop(_) | Attended::Last(_) => News::Nothing,
                    Attended::Doomed => News::Gone("ended".into()),
                    Attended::Closed => return,
                };
            }
        };
        (0..2)
            .map(|lane| {
                let pool = Arc::clone(pool);
                thread::spawn(move || serve(&pool, lane))
            })
            .collect()
    }

    fn stall(_pool: &Pool<Self>, stalled: bool) {
        HELD.store(stalled, Ordering::Release);
    }
}

static HELD: AtomicBool = AtomicBool::new(false);

struct Tries<B: Tried> {
    pool: Arc<Pool<B>>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl<B: Tried> Tries<B> {
    fn new(capacity: Option<usize>, stalled: bool) -> Self {
        let config = Config {
            name: B::CAPABILITIES.kind.into(),
            workers: 2,
            threads: 1,
            capacity,
            overflow: Overflow::Error,
            on_crash: OnCrash::Replace,
            grace: Duration::ZERO,
            ..Config::default()
        };
        let pool = Pool::<B>::start(config, ()).expect("started");
        B::stall(&pool, stalled);
        let threads = B::run(&pool);
        Self { pool, threads }
    }

    fn submit(&self, text: &'static str, options: Options) -> Result<Arc<Task>, Refused> {
        let call = Call::Local(Mutex::new(Some(Opaque::new(text))));
        self.pool.submit(call, 0, options, true).map_err(|refused| refused.1)
    }

    fn task(&self, text: &'static str) -> Arc<Task> {
        self.submit(text, Options::default()).expect("taken")
    }

    fn wait(&self, task: &Arc<Task>) {
        let deadline = Some(Instant::now() + SOON);
        let what = WaitFor::Task(Arc::clone(task));
        while self.pool.wait(&what, deadline) == Waited::Interrupted {}
        assert!(task.is_done(), "it has its end");
    }

    fn end(self) {
        self.pool.close(false);
        assert_eq!(self.pool.join(Some(Instant::now() + SOON)), Waited::Ready);
        assert!(matches!(self.submit_after(), Refused::Closed));
        for thread in self.threads {
            thread.join().expect("no panic");
        }
    }

    fn submit_after(&self) -> Refused {
        let call = Call::Local(Mutex::new(None));
        self.pool.submit(call, 0, Options::default(), true).expect_err("it is closed").1
    }
}

fn value(task: &Task) -> Option<(&'static str, bool)> {
    match task.outcome() {
        Some(Outcome::Local { value, raised }) => Some((*value.downcast_ref()?, *raised)),
        _ => None,
    }
}

fn answers<B: Tried>() {
    let tries = Tries::<B>::new(None, false);
    let tasks: Vec<_> = (0..100).map(|_| tries.task("value")).collect();
    for task in &tasks {
        tries.wait(task);
        assert_eq!((value(task), task.attempt()), (Some(("value", false)), 1));
    }
    let counters = tries.pool.statistics().expect("this process").counters;
    assert_eq!((counters.submitted, counters.completed), (100, 100));
    tries.end();
}

fn retries<B: Tried>() {
    let tries = Tries::<B>::new(None, false);
    let task = tries.submit("raise", Options { retries: 2, ..Options::default() }).expect("taken");
    tries.wait(&task);
    assert_eq!((value(&task), task.attempt()), (Some(("raise", true)), 3));
    tries.end();
}

fn waiting_tasks_can_be_ended<B: Tried>() {
    let tries = Tries::<B>::new(Some(3), true);
    let (cancelled, runs) = (tries.task("cancelled"), tries.task("runs"));
    let options = Rare { deadline: Some(Duration::from_millis(1)), ..Rare::default() }.into();
    let late = tries.submit("late", options).expect("taken");
    if tries.pool.statistics().expect("this process").queued == 3 {
        assert!(matches!(tries.submit("more", Options::default()), Err(Refused::Full(..))));
    }
    assert!(tries.pool.cancel(&cancelled, false) && !tries.pool.cancel(&cancelled, false));
    tries.wait(&late);
    assert!(matches!(
        late.outcome(),
        Some(Outcome::Failed(Failure::TimedOut(Limit::Deadline, Phase::Queued)))
    ));
    B::stall(&tries.pool, false);
    tries.wait(&runs);
    assert!(matches!(cancelled.outcome(), Some(Outcome::Cancelled)));
    assert_eq!((value(&runs), cancelled.attempt()), (Some(("runs", false)), 0));
    tries.end();
}

fn an_end_cancels_what_waits<B: Tried>() {
    let tries = Tries::<B>::new(None, true);
    let tasks: Vec<_> = (0..5).map(|_| tries.task("value")).collect();
    tries.pool.terminate();
    assert!(tasks.iter().all(|task| matches!(task.outcome(), Some(Outcome::Cancelled))));
    B::stall(&tries.pool, false);
    tries.end();
}

fn a_broken_pool_fails_what_waits<B: Tried>() {
    let tries = Tries::<B>::new(None, true);
    let task = tries.task("value");
    tries.pool.break_down(&Failure::Broken("of a test".into()));
    assert!(matches!(task.outcome(), Some(Outcome::Failed(Failure::Broken(_)))));
    assert!(matches!(tries.submit_after(), Refused::Broken(_)));
    B::stall(&tries.pool, false);
    assert_eq!(tries.pool.join(Some(Instant::now() + SOON)), Waited::Ready);
    for thread in tries.threads {
        thread.join().expect("no panic");
    }
}

fn whole_contract<B: Tried>() {
    answers::<B>();
    retries::<B>();
    waiting_tasks_can_be_ended::<B>();
    an_end_cancels_what_waits::<B>();
    a_broken_pool_fails_what_waits::<B>();
}

#[test]
fn threads_keep_the_contract() {
    whole_contract::<Threads>();
}

#[test]
fn a_kind_that_is_one_file_keeps_the_contract() {
    whole_contract::<Inline>();
}

#[test]
fn lanes_of_a_cluster_keep_the_contract() {
    whole_contract::<Ray>();
}
