//! Runs that hang, in a simulated pool without chance.

use ropewalk_os::process::Condition;

use super::*;
use crate::config::{Config, Health};
use crate::outcome::Outcome;
use crate::pace::Credit;
use crate::simulation::scene::{Actor, Scene};
use crate::stream::Items;
use crate::task::{Options, Rare};
use crate::wire::{flags, form, kind};

const LIMIT: Duration = Duration::from_millis(100);
const MS: Duration = Duration::from_millis(1);
const LISTENS: Condition = Condition { stopped: false, caught: 1 << (STACK_SIGNAL - 1) };

/// How workers stand to signals, until the end of a test.
struct Answers;

impl Answers {
    fn with(condition: Option<Condition>) -> Self {
        simulated::set(condition);
        Self
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        simulated::set(None);
    }
}

fn hung(task: &Task) -> Option<(i32, Option<&str>, Option<&'static str>)> {
    match task.outcome() {
        Some(Outcome::Failed(Failure::Hung { pid, stack, silent })) => {
            Some((*pid, stack.as_deref(), *silent))
        }
        _ => None,
    }
}

fn options(retries: u32) -> Options {
    Options { retries, ..Rare { hang: Some(LIMIT), ..Rare::default() }.into() }
}

/// A worker of so many threads, each of which has begun one of these tasks.
fn running(threads: usize, grace: Duration, options: Options) -> (Scene, Actor, Vec<Arc<Task>>) {
    let (scene, mut workers) = Scene::ready(Config { grace, ..Scene::config(1, threads) });
    let mut tasks: Vec<_> = (0..threads).map(|_| scene.submit(options.clone())).collect();
    let mut worker = workers.pop().expect("one");
    let started: Vec<_> = (0..threads).map(|lane| worker.start(lane).expect("each has one")).collect();
    tasks.sort_by_key(|task| started.iter().position(|id| *id == task.id));
    for (lane, id) in started.iter().enumerate() {
        worker.begin(lane, *id);
    }
    (scene, worker, tasks)
}

/// Lets the next worker come up.
fn replacement(scene: &mut Scene) -> Actor {
    let mut other = scene.asked().pop_front().expect("another worker");
    scene.fork(&other);
    other.ready();
    scene.tick();
    other
}

#[test]
fn a_hung_run_fails_with_its_stack_after_another_worker_was_asked_for() {
    let _answers = Answers::with(Some(LISTENS));
    let (mut scene, worker, tasks) = running(1, LIMIT, options(0));
    let waiting = scene.task();
    scene.note(&worker, "earlier words\n");
    assert!(scene.tick().is_some_and(|next| next <= scene.now + LIMIT));
    scene.pass(LIMIT - MS);
    assert!(scene.asked().is_empty() && scene.engine.lock().members.evictions == 0);
    scene.pass(MS);
    // It is asked for its stack, and lives; another one takes what waits.
    assert!(!tasks[0].is_done() && !scene.has_killed(&worker));
    let mut other = replacement(&mut scene);
    assert_eq!(other.start(0), Some(waiting.id));
    assert!(scene.tick().is_some_and(|next| next <= scene.now + STEP));
    scene.note(&worker, "File \"a.py\"");
    scene.pass(STEP);
    assert!(!tasks[0].is_done(), "it may still be writing");
    scene.note(&worker, ", line 7");
    scene.pass(STEP);
    scene.pass(STEP);
    assert_eq!(hung(&tasks[0]), Some((worker.pid(), Some("File \"a.py\", line 7"), None)));
    assert!(scene.has_killed(&worker));
    assert_eq!((tasks[0].attempt(), tasks[0].record().pid), (1, worker.pid()));
    scene.die(worker, 9);
    other.answer(0, waiting.id);
    scene.tick();
    let counters = scene.engine.statistics().expect("this process").counters;
    assert_eq!((counters.hung, counters.failed, counters.crashed, counters.timed_out), (1, 1, 0, 0));
    assert_eq!((scene.workers(), scene.engine.lock().members.evictions), (1, 0));
    assert!(waiting.is_done());
}

#[test]
fn a_worker_that_does_not_answer_is_waited_for_no_longer_than_it_may_take() {
    let silent = [
        (Some(LISTENS), MUTE, PATIENCE),
        (None, UNKNOWN, Duration::ZERO),
        (Some(Condition { stopped: true, ..LISTENS }), STOPPED, Duration::ZERO),
        (Some(Condition { stopped: false, caught: !LISTENS.caught }), DEAF, Duration::ZERO),
    ];
    for (condition, why, patience) in silent {
        let _answers = Answers::with(condition);
        // Without a grace it is killed at once, but not before it may have answered.
        let (mut scene, worker, tasks) = running(1, Duration::ZERO, options(0));
        scene.pass(LIMIT);
        if !patience.is_zero() {
            scene.pass(patience - MS);
            assert!(!tasks[0].is_done() && !scene.has_killed(&worker));
            assert!(
                scene.tick().is_some_and(|next| next > scene.now),
                "the supervisor does not turn on the spot"
            );
            scene.pass(MS);
        }
        assert_eq!(hung(&tasks[0]), Some((worker.pid(), None, Some(why))));
        assert!(scene.has_killed(&worker));
    }
}

#[test]
fn each_sign_of_life_begins_the_time_anew() {
    let _answers = Answers::with(None);
    let (mut scene, worker, tasks) = running(1, LIMIT, options(0));
    for _ in 0..3 {
        scene.pass(LIMIT - MS);
        worker.beat(0, tasks[0].id);
        // Another task's words are not this one's.
    }
    worker.beat(0, tasks[0].id);
    scene.pass(LIMIT - MS);
    worker.beat(0, tasks[0].id + 1);
    assert!(!tasks[0].is_done());
    scene.pass(MS);
    assert!(hung(&tasks[0]).is_some());
}

#[test]
fn a_run_that_may_be_run_again_is_when_its_worker_is_gone() {
    let _answers = Answers::with(None);
    let (mut scene, worker, tasks) = running(1, LIMIT, options(1));
    scene.pass(LIMIT);
    assert!(scene.has_killed(&worker) && !tasks[0].is_done());
    let mut other = replacement(&mut scene);
    assert_eq!(other.start(0), None, "until its worker is gone it may still be running");
    scene.die(worker, 9);
    scene.tick();
    assert_eq!((other.start(0), tasks[0].attempt()), (Some(tasks[0].id), 1));
    scene.pass(LIMIT / 2);
    other.begin(0, tasks[0].id);
    scene.pass(LIMIT - MS);
    assert!(!tasks[0].is_done(), "each run has the whole time");
    scene.pass(MS);
    assert!(hung(&tasks[0]).is_some() && tasks[0].attempt() == 2);
    let counters = scene.engine.statistics().expect("this process").counters;
    assert_eq!((counters.hung, counters.retried), (2, 1));
}

#[test]
fn what_a_hung_run_answers_is_ignored() {
    // The signal may have cut the call short in which it hung.
    for (condition, retries) in [(Some(LISTENS), 0), (Some(LISTENS), 1), (None, 1)] {
        let _answers = Answers::with(condition);
        let (mut scene, mut worker, tasks) = running(1, LIMIT, options(retries));
        scene.pass(LIMIT);
        assert_eq!(scene.has_killed(&worker), condition.is_none());
        scene.note(&worker, "here");
        worker.answer(0, tasks[0].id);
        scene.tick();
        assert!(scene.has_killed(&worker), "nothing is left to wait for");
        assert_eq!((tasks[0].attempt(), tasks[0].is_done()), (1, retries == 0));
        let counters = scene.engine.statistics().expect("this process").counters;
        assert_eq!((counters.completed, counters.hung), (0, 1));
        let mut other = replacement(&mut scene);
        if retries == 0 {
            assert_eq!(hung(&tasks[0]), Some((worker.pid(), Some("here"), None)));
        } else {
            assert_eq!(other.start(0), Some(tasks[0].id), "it runs nowhere any more");
            other.answer(0, tasks[0].id);
        }
        scene.die(worker, 9);
        scene.tick();
        assert!(tasks[0].is_done() && scene.engine.lock().members.evictions == 0);
    }
}

#[test]
fn those_beside_a_hung_run_keep_their_grace() {
    let _answers = Answers::with(None);
    let grace = LIMIT / 4;
    let (scene, mut workers) = Scene::ready(Config { grace, ..Scene::config(1, 3) });
    let mut worker = workers.pop().expect("one");
    let all = [scene.submit(options(0)), scene.task(), scene.task()];
    let started: Vec<_> = (0..3).map(|lane| worker.start(lane).expect("each has one")).collect();
    let lane_of = |task: &Arc<Task>| started.iter().position(|id| *id == task.id).expect("started");
    for task in &all {
        worker.begin(lane_of(task), task.id);
    }
    let mut scene = scene;
    scene.pass(LIMIT);
    assert!(hung(&all[0]).is_some() && !scene.has_killed(&worker));
    worker.answer(lane_of(&all[1]), all[1].id);
    scene.pass(grace - MS);
    assert!(matches!(all[1].outcome(), Some(Outcome::Replied(_))) && !scene.has_killed(&worker));
    scene.pass(MS);
    assert!(scene.has_killed(&worker) && !all[2].is_done());
    scene.die(worker, 9);
    assert!(matches!(all[2].outcome(), Some(Outcome::Failed(Failure::Neighbour { .. }))));
}

#[test]
fn a_worker_is_not_ended_before_it_has_answered_though_all_else_in_it_is_done() {
    let _answers = Answers::with(Some(LISTENS));
    let (mut scene, mut worker, tasks) = running(2, LIMIT * 9, options(0));
    scene.pass(LIMIT / 2);
    worker.beat(1, tasks[1].id);
    scene.pass(LIMIT / 2);
    worker.answer(1, tasks[1].id);
    scene.tick();
    assert!(matches!(tasks[1].outcome(), Some(Outcome::Replied(_))) && !scene.has_killed(&worker));
    scene.note(&worker, "here");
    scene.pass(STEP);
    scene.pass(STEP);
    assert_eq!(hung(&tasks[0]), Some((worker.pid(), Some("here"), None)));
    assert!(scene.has_killed(&worker));
}

#[test]
fn two_that_hang_in_one_worker_share_its_stacks() {
    let _answers = Answers::with(Some(LISTENS));
    let (mut scene, worker, tasks) = running(2, LIMIT * 9, options(0));
    worker.beat(1, tasks[1].id);
    scene.pass(LIMIT);
    scene.note(&worker, "both");
    scene.pass(STEP);
    scene.pass(STEP);
    for task in &tasks {
        assert_eq!(hung(task), Some((worker.pid(), Some("both"), None)));
    }
    assert!(scene.has_killed(&worker), "none is left to wait for");
    // The second is found to hang after the stacks were written.
    let (mut scene, worker, tasks) = running(2, LIMIT * 9, options(0));
    scene.pass(LIMIT / 2);
    worker.beat(1, tasks[1].id);
    scene.pass(LIMIT / 2);
    scene.note(&worker, "first");
    scene.pass(STEP);
    scene.pass(STEP);
    assert!(hung(&tasks[0]).is_some() && hung(&tasks[1]).is_none() && !scene.has_killed(&worker));
    scene.pass(LIMIT / 2);
    assert_eq!(hung(&tasks[1]), Some((worker.pid(), Some("first"), None)));
    assert!(scene.has_killed(&worker));
    let counters = scene.engine.statistics().expect("this process").counters;
    assert_eq!((counters.hung, counters.failed), (2, 2));
}

#[test]
fn a_stream_that_gets_on_or_waits_for_its_reader_does_not_hang() {
    let _answers = Answers::with(None);
    let (mut scene, mut worker, tasks) = running(1, LIMIT, Options { stream: 3, ..options(1) });
    for _ in 0..3 {
        scene.pass(LIMIT - MS);
        worker.write(0, kind::ITEM, flags::EMPTY, tasks[0].id, u64::from(form::NONE), b"");
        scene.tick();
    }
    for _ in 0..9 {
        scene.pass(LIMIT);
        assert!(!tasks[0].is_done() && !scene.has_killed(&worker), "its reader has all that it may send");
    }
    // The reader takes what is there; from then on something must come again.
    let (stream, mut items) = (tasks[0].stream().expect("a stream"), Items::default());
    assert!(stream.take(&mut items));
    stream.say_read(tasks[0].id, Credit { items: 3, bytes: 0 });
    scene.pass(LIMIT);
    assert!(!scene.has_killed(&worker), "it may have been taken a moment ago");
    scene.pass(LIMIT);
    assert!(scene.has_killed(&worker) && hung(&tasks[0]).is_some(), "and it is not run again");
}

#[test]
fn a_worker_that_takes_nothing_is_given_up_and_its_task_is_not() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 2));
    let worker = workers.pop().expect("one");
    let task = scene.submit(options(0));
    scene.pass(LEAST_IDLE - MS);
    assert!(!scene.has_killed(&worker), "the machine may be busy, however little a run may take");
    scene.pass(MS);
    assert!(scene.has_killed(&worker) && !task.is_done());
    scene.die(worker, 9);
    let mut other = replacement(&mut scene);
    let lane = (0..2).find(|lane| other.start(*lane) == Some(task.id)).expect("another worker has it");
    other.answer(lane, task.id);
    scene.tick();
    assert!(matches!(task.outcome(), Some(Outcome::Replied(_))) && task.attempt() == 1);
    // One with a thread at work may not get to it: that thread may hold the interpreter.
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 2));
    let mut worker = workers.pop().expect("one");
    let busy = scene.task();
    assert!((0..2).any(|lane| worker.start(lane) == Some(busy.id)));
    let task = scene.submit(options(0));
    scene.pass(LEAST_IDLE * 9);
    assert!(!scene.has_killed(&worker) && !task.is_done());
    // One that has not said that it is ready may be in its initializer.
    let mut scene = Scene::new(Scene::config(1, 1));
    let asked = scene.asked().pop_front().expect("one");
    scene.fork(&asked);
    let _task = scene.submit(options(0));
    scene.pass(LEAST_IDLE * 9);
    assert!(!scene.has_killed(&asked));
}

#[test]
fn a_task_that_hangs_too_often_is_poison() {
    let _answers = Answers::with(None);
    let health = Health { poison_after: Some(2), ..Health::default() };
    let (mut scene, mut workers) = Scene::ready(Config { health, ..Scene::config(1, 1) });
    let task = scene.submit(options(9));
    let mut worker = workers.pop().expect("one");
    for round in 0..2 {
        assert_eq!(worker.start(0), Some(task.id), "round {round}");
        worker.begin(0, task.id);
        scene.pass(LIMIT);
        let other = replacement(&mut scene);
        scene.die(std::mem::replace(&mut worker, other), 9);
        scene.tick();
    }
    let Some(Outcome::Failed(Failure::Poisoned { deaths, .. })) = task.outcome() else {
        panic!("{:?}", task.outcome());
    };
    assert!(deaths.len() == 2 && deaths.iter().all(|death| death.hung));
    assert_eq!(scene.engine.quarantine().len(), 1);
}

#[test]
fn what_ends_a_pool_ends_what_hangs() {
    let _answers = Answers::with(Some(LISTENS));
    let (mut scene, worker, tasks) = running(1, LIMIT, options(3));
    scene.pass(LIMIT);
    assert!(!tasks[0].is_done());
    scene.engine.terminate();
    assert!(matches!(tasks[0].outcome(), Some(Outcome::Failed(Failure::Terminated))));
    scene.pass(PATIENCE);
    scene.die(worker, 9);
    scene.tick();
    assert!(scene.engine.has_ended());
}
