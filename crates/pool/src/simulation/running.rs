//! What a running task and the program tell each other, in a simulated pool without chance.

use std::sync::Arc;
use std::time::Duration;

use super::scene::{Actor, Scene};
use crate::outcome::{Failure, Outcome};
use crate::pulse::Progress;
use crate::running::Terms;
use crate::task::{Options, Rare, Task};
use crate::wire::{flags, kind};

/// A pool with one worker, and a task that it has started.
fn started(options: Options) -> (Scene, Actor, Arc<Task>) {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let task = scene.submit(options);
    let mut worker = workers.remove(0);
    assert_eq!(worker.start(0), Some(task.id));
    (scene, worker, task)
}

fn progress(done: f64) -> Progress {
    Progress::new(done, Some(9.0), Some("so far"))
}

#[test]
fn a_worker_knows_the_attempt_and_the_limits_of_a_task() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let worker = &mut workers[0];
    let plain = scene.task();
    let record = std::iter::from_fn(|| worker.take(0)).find(|record| record.kind == kind::TASK);
    let record = record.expect("the task");
    assert_eq!((record.id, record.attempt, record.terms), (plain.id, 1, Terms::default()));
    worker.answer(0, plain.id);
    scene.tick();
    let limits = Rare {
        timeout: Some(Duration::from_secs(3)),
        deadline: Some(Duration::from_secs(100)),
        ..Rare::default()
    };
    let limits = Options { retries: 1, ..limits.into() };
    let task = scene.submit(limits);
    for attempt in 1..=2 {
        let record = worker.take(0).expect("the task, and nothing before it that the worker must handle");
        assert_eq!((record.kind, record.id, record.attempt), (kind::TASK, task.id, attempt));
        assert_eq!(record.terms.timeout, 3_000_000_000);
        let left = record.terms.deadline.saturating_sub(ropewalk_os::clock::monotonic_nanos());
        assert!((1_000_000_000..=100_000_000_000).contains(&left), "{left}");
        worker.say(0, kind::DONE, flags::ERROR, task.id, 1);
        scene.tick();
    }
    assert!(task.is_done());
}

#[test]
fn progress_is_read_while_a_task_runs_and_stays_when_it_has_ended() {
    let (scene, mut worker, task) = started(Options::default());
    assert_eq!(scene.engine.progress(&task), None);
    worker.report(0, task.id, progress(1.0));
    assert_eq!(scene.engine.progress(&task), Some(progress(1.0)));
    worker.report(0, task.id, progress(2.0));
    assert!(worker.say_progress(0, task.id, &progress(3.0)));
    worker.answer(0, task.id);
    scene.tick();
    assert!(task.is_done());
    assert_eq!(scene.engine.progress(&task), Some(progress(3.0)), "the last that it said");
}

#[test]
fn progress_of_a_task_that_a_worker_does_not_run_is_a_lie() {
    let (scene, mut worker, task) = started(Options::default());
    assert!(worker.say_progress(0, task.id + 1, &progress(1.0)));
    scene.tick();
    assert!(scene.has_killed(&worker));
    scene.die(worker, 9);
    assert!(matches!(task.outcome(), Some(Outcome::Failed(Failure::Crashed { .. }))));
}

#[test]
fn numbers_that_are_none_are_no_progress() {
    let (scene, mut worker, task) = started(Options::default());
    worker.write(0, kind::PROGRESS, 0, task.id, f64::NAN.to_bits(), b"");
    worker.write(0, kind::PROGRESS, 0, task.id, 1.0_f64.to_bits(), b"short");
    worker.answer(0, task.id);
    scene.tick();
    assert_eq!(scene.engine.progress(&task), Some(Progress { done: 1.0, total: None, note: None }));
}

#[test]
fn a_task_that_is_asked_to_stop_may_stop() {
    let (scene, mut worker, task) = started(Options { retries: 5, ..Options::default() });
    assert!(scene.engine.ask_to_stop(&task) && !task.is_done());
    assert!(worker.is_asked_to_stop(0, task.id));
    worker.say(0, kind::DONE, flags::ERROR | flags::STOPPED, task.id, 1);
    scene.tick();
    assert!(matches!(task.outcome(), Some(Outcome::Cancelled)));
    assert!(!scene.has_killed(&worker));
    assert!(scene.engine.ask_to_stop(&task), "it is cancelled already");
}

#[test]
fn a_task_that_was_not_asked_to_stop_has_raised() {
    let (scene, mut worker, task) = started(Options::default());
    worker.say(0, kind::DONE, flags::ERROR | flags::STOPPED, task.id, 1);
    scene.tick();
    assert!(matches!(task.outcome(), Some(Outcome::Replied(_))));
    assert!(!scene.engine.ask_to_stop(&task), "it is too late");
}

#[test]
fn a_task_that_is_asked_to_stop_is_not_run_again() {
    // It raised something else.
    let (scene, mut worker, task) = started(Options { retries: 5, ..Options::default() });
    assert!(scene.engine.ask_to_stop(&task));
    worker.say(0, kind::DONE, flags::ERROR, task.id, 1);
    scene.tick();
    assert!(matches!(task.outcome(), Some(Outcome::Replied(_))));
    drop(scene);
    // Its worker died.
    let (scene, worker, task) = started(Options { retries: 5, ..Options::default() });
    assert!(scene.engine.ask_to_stop(&task));
    scene.die(worker, 9);
    assert!(matches!(task.outcome(), Some(Outcome::Cancelled)));
}

#[test]
fn a_task_that_has_not_started_is_cancelled_at_once() {
    let (scene, worker, first) = started(Options::default());
    let tasks = [scene.task(), scene.task(), scene.task()];
    for task in &tasks {
        assert!(scene.engine.ask_to_stop(task));
        assert!(matches!(task.outcome(), Some(Outcome::Cancelled)));
    }
    assert!(!first.is_done() && !worker.is_asked_to_stop(0, first.id));
}
