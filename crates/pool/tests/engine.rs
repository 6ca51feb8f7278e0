//! The engine against real worker processes that are Rust to the bone: this test binary is its own zygote.
//!
//! A worker runs the function named by its task's payload: `echo` the rest, `kill` itself by a signal, `nap` for some
//! milliseconds, or `exit` with a status.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use windlass_pool::wire::kind;
use windlass_pool::worker::WorkerEnd;
use windlass_pool::zygote::server;
use windlass_pool::{
    Call, Config, Control, Engine, Failure, Function, OnCrash, OnFull, Options, Outcome, Payload, Phase,
    Refused, Sleeper, Spawn, Task, Waited, ZygoteCommand,
};

const ZYGOTE: &str = "WINDLASS_TEST_ZYGOTE";

/// Not a test of its own: what a zygote runs.
#[test]
fn zygote_main() {
    if std::env::var_os(ZYGOTE).is_none() {
        return;
    }
    // SAFETY: the engine made the socket our descriptor 0, which nothing else here uses.
    let socket = unsafe { OwnedFd::from_raw_fd(0) };
    server::hello(&socket, &[]).expect("the parent is there");
    // SAFETY: the child goes on in this thread alone and needs nothing of the harness's others.
    let mut fork = || unsafe { windlass_os::process::fork() };
    match server::serve(socket, &mut fork).expect("served") {
        None => windlass_os::process::exit_now(0),
        Some(spawned) => {
            windlass_os::process::set_parent_death_signal(9).expect("asked");
            let control = Control::attach(spawned.control, spawned.event).expect("a control page");
            let lane = spawned.lanes.into_iter().next().expect("a lane");
            work(WorkerEnd::attach(lane, control).expect("a lane"));
            windlass_os::process::exit_now(0);
        }
    }
}

fn work(mut end: WorkerEnd) {
    end.ready().expect("said");
    loop {
        let Some(record) = end.try_next().expect("a sound ring") else {
            end.wait(None);
            continue;
        };
        let text = String::from_utf8_lossy(end.payload()).into_owned();
        end.finish();
        match record.kind {
            kind::TASK => {}
            kind::EXIT => return,
            _ => continue,
        }
        let start = Instant::now();
        let (verb, rest) = text.split_once(' ').unwrap_or((&text, ""));
        match verb {
            "nap" => std::thread::sleep(Duration::from_millis(rest.parse().expect("milliseconds"))),
            "exit" => windlass_os::process::exit_now(rest.parse().expect("a status")),
            "kill" => std::process::abort(),
            _ => {}
        }
        let busy = start.elapsed().as_nanos() as u64;
        end.reply(kind::DONE, 0, record.id, busy, &[rest.as_bytes()]).expect("answered");
    }
}

fn config(workers: usize) -> Config {
    let program = std::env::current_exe().expect("this binary");
    let args = ["--exact", "zygote_main", "--nocapture", "--test-threads=1"];
    Config {
        name: "engine".into(),
        workers,
        threads: 1,
        max_queue: None,
        on_full: OnFull::Block,
        on_crash: OnCrash::Replace,
        spawn: Some(Spawn {
            zygote: ZygoteCommand {
                program: program.into(),
                args: args.iter().map(Into::into).collect(),
                env: vec![(ZYGOTE.into(), Some("1".into()))],
            },
            spec: Arc::from(&b""[..]),
        }),
    }
}

struct Pool {
    engine: Arc<Engine>,
    function: Arc<Function>,
}

impl Pool {
    fn new(config: Config) -> Self {
        let engine = Engine::start(config).expect("started");
        let function = engine.function(Payload::default());
        Self { engine, function }
    }

    fn try_submit(&self, text: &str, options: Options) -> Result<Arc<Task>, Refused> {
        let payload = Mutex::new(Payload { bytes: text.as_bytes().to_vec(), ..Payload::default() });
        let call = Call::Remote { function: Arc::clone(&self.function), payload };
        self.engine.submit(call, 0, options, true).map_err(|refused| refused.1)
    }

    fn submit(&self, text: &str) -> Arc<Task> {
        self.try_submit(text, Options::default()).expect("taken")
    }

    fn wait(&self, task: &Arc<Task>) {
        let deadline = Some(Instant::now() + Duration::from_secs(20));
        assert_eq!(self.engine.wait(&Sleeper::Task(Arc::clone(task)), deadline), Waited::Ready);
    }

    fn text(&self, task: &Arc<Task>) -> String {
        self.wait(task);
        match task.outcome() {
            Some(Outcome::Replied(reply)) => String::from_utf8_lossy(&reply.bytes).into_owned(),
            other => panic!("not an answer: {other:?}"),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.engine.close(true);
        let deadline = Some(Instant::now() + Duration::from_secs(20));
        assert_eq!(self.engine.join(deadline), Waited::Ready, "the workers have left");
    }
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
    let task = pool.try_submit("exit 1", Options { retries: 2, ..Options::default() }).expect("taken");
    pool.wait(&task);
    assert_eq!(task.attempt(), 3);
    assert!(matches!(task.outcome(), Some(Outcome::Failed(Failure::Crashed { .. }))));
    assert_eq!(pool.text(&pool.submit("echo on")), "on");
}

#[test]
fn a_budget_covers_waiting_and_running() {
    let pool = Pool::new(config(1));
    let limit = |ms| Options { timeout: Some(Duration::from_millis(ms)), ..Options::default() };
    let running = pool.try_submit("nap 20000", limit(200)).expect("taken");
    let queued = pool.try_submit("nap 1", limit(100)).expect("taken");
    pool.wait(&queued);
    assert!(matches!(queued.outcome(), Some(Outcome::Failed(Failure::TimedOut(Phase::Queued)))));
    pool.wait(&running);
    assert!(matches!(running.outcome(), Some(Outcome::Failed(Failure::TimedOut(Phase::Running)))));
    assert_eq!(pool.text(&pool.submit("echo on")), "on");
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
    }
    assert!(!long.is_done());
    assert!(pool.engine.cancel(&long, true));
}

#[test]
fn a_full_queue_refuses_and_a_closed_pool_too() {
    let pool = Pool::new(Config { max_queue: Some(2), on_full: OnFull::Reject, ..config(1) });
    let first = pool.submit("nap 20000");
    let _second = pool.submit("nap 1");
    let _third = pool.submit("nap 1");
    assert!(matches!(pool.try_submit("nap 1", Options::default()), Err(Refused::Full)));
    pool.engine.close(true);
    assert!(matches!(pool.try_submit("nap 1", Options::default()), Err(Refused::Closed)));
    // It may not have been started before the pool closed, and then it is cancelled already.
    assert!(first.is_done() || pool.engine.cancel(&first, true));
}
