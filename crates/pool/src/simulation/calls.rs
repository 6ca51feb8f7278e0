//! Calls of tasks to the program, in a simulated pool without chance.

use std::sync::Arc;
use std::time::Duration;

use ropewalk_shm::memory::Arena;

use super::scene::{Actor, Scene};
use crate::calls::{Answered, Calling};
use crate::outcome::{Failure, Outcome};
use crate::payload::{Beside, Payload};
use crate::task::Task;
use crate::wire::{flags, kind};

/// A pool with one worker, and a task that it has started; the program serves calls.
fn started() -> (Scene, Actor, Arc<Task>) {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    scene.engine.serve_calls();
    let task = scene.task();
    let mut worker = workers.remove(0);
    assert_eq!(worker.start(0), Some(task.id));
    (scene, worker, task)
}

fn next(scene: &Scene) -> Option<Calling> {
    scene.tick();
    scene.engine.next_call(scene.now)
}

fn answer(text: &str) -> Payload {
    Payload { bytes: text.as_bytes().to_vec(), ..Payload::default() }
}

#[test]
fn a_call_is_answered_before_what_waits_in_the_lane() {
    let (scene, mut worker, task) = started();
    let behind = [scene.task(), scene.task()];
    assert!(scene.wakes(|| assert_eq!(worker.call(0, task.id), Some(1))), "the program may be asleep");
    assert!(worker.answer_to(0, 1).is_none());
    let call = next(&scene).expect("a call");
    assert!(Arc::ptr_eq(&call.task, &task) && call.frame.bytes == b"call");
    assert_eq!(scene.engine.answer_call(&call, &answer("one")), Answered::Yes);
    assert_eq!(worker.answer_to(0, 1).map(|answer| answer.1), Some(b"one".to_vec()));
    assert_eq!(scene.engine.answer_call(&call, &answer("again")), Answered::Gone, "once");
    // What was in its lane waits in the queue meanwhile, and goes on afterwards.
    worker.answer(0, task.id);
    scene.tick();
    for task in &behind {
        assert_eq!(worker.start(0), Some(task.id));
        worker.answer(0, task.id);
        scene.tick();
        assert!(task.is_done());
    }
}

#[test]
fn what_waits_behind_a_call_goes_to_others() {
    let (scene, mut workers) = Scene::ready(Scene::config(2, 1));
    scene.engine.serve_calls();
    let tasks = [scene.task(), scene.task()];
    let ids = [0, 1].map(|at| workers[at].start(0).expect("each has one"));
    // Each lane has another one waiting.
    let waiting = [scene.task(), scene.task()];
    assert_eq!(workers[0].call(0, ids[0]), Some(1));
    let call = next(&scene).expect("a call");
    workers[1].answer(0, ids[1]);
    scene.tick();
    while let Some(id) = workers[1].start(0) {
        workers[1].answer(0, id);
        scene.tick();
    }
    assert!(tasks.iter().any(|task| task.id == ids[0] && !task.is_done()));
    assert!(waiting.iter().all(|task| task.is_done()), "the other worker has run both");
    assert!(workers[0].start(0).is_none(), "and none was given to the one that waits");
    assert_eq!(scene.engine.all_call(), None);
    assert_eq!(scene.engine.answer_call(&call, &answer("one")), Answered::Yes);
}

#[test]
fn a_pool_whose_workers_all_wait_is_known() {
    let (scene, mut worker, task) = started();
    assert_eq!(scene.engine.all_call(), None);
    assert_eq!(worker.call(0, task.id), Some(1));
    let call = next(&scene).expect("a call");
    assert_eq!(scene.engine.all_call(), Some(1));
    assert_eq!(scene.engine.answer_call(&call, &answer("one")), Answered::Yes);
    assert_eq!(scene.engine.all_call(), None);
}

#[test]
fn a_program_that_exposes_nothing_refuses() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let task = scene.task();
    let worker = &mut workers[0];
    assert_eq!(worker.start(0), Some(task.id));
    assert_eq!(worker.call(0, task.id), Some(1));
    assert!(next(&scene).is_none());
    let refusal = (flags::EMPTY | flags::ERROR, Vec::new());
    assert_eq!(worker.answer_to(0, 1), Some(refusal));
}

#[test]
fn an_answer_to_a_call_that_was_given_up_is_dropped() {
    let (scene, mut worker, task) = started();
    assert_eq!(worker.call(0, task.id), Some(1));
    let first = next(&scene).expect("a call");
    assert_eq!(worker.call(0, task.id), Some(2));
    let second = next(&scene).expect("a call");
    assert_eq!(scene.engine.answer_call(&first, &answer("one")), Answered::Gone);
    assert_eq!(scene.engine.answer_call(&second, &answer("two")), Answered::Yes);
    assert_eq!(worker.answer_to(0, 2).map(|answer| answer.1), Some(b"two".to_vec()));
    // One that nobody has taken is replaced by the next of its lane.
    assert_eq!((worker.call(0, task.id), worker.call(0, task.id)), (Some(3), Some(4)));
    let last = next(&scene).expect("a call");
    assert!(next(&scene).is_none());
    assert_eq!(scene.engine.answer_call(&last, &answer("four")), Answered::Yes);
    // An answer that its task does not wait for any more is skipped by the next call.
    assert_eq!(worker.call(0, task.id), Some(5));
    let fifth = next(&scene).expect("a call");
    assert_eq!(scene.engine.answer_call(&fifth, &answer("five")), Answered::Yes);
    assert_eq!(worker.answer_to(0, 5).map(|answer| answer.1), Some(b"five".to_vec()));
}

#[test]
fn nobody_waits_for_the_answer_when_the_task_has_ended() {
    let (scene, mut worker, task) = started();
    assert_eq!(worker.call(0, task.id), Some(1));
    let call = next(&scene).expect("a call");
    worker.answer(0, task.id);
    scene.tick();
    assert_eq!(scene.engine.answer_call(&call, &answer("one")), Answered::Gone);
    let (mut scene, mut worker, task) = started();
    assert_eq!(worker.call(0, task.id), Some(1));
    let call = next(&scene).expect("a call");
    scene.die(worker, 9);
    assert!(matches!(task.outcome(), Some(Outcome::Failed(Failure::Crashed { .. }))));
    assert_eq!(scene.engine.answer_call(&call, &answer("one")), Answered::Gone);
    // Another worker's call of the same number is another.
    let mut worker = scene.asked().pop_front().expect("another worker");
    scene.fork(&worker);
    worker.ready();
    scene.tick();
    let task = scene.task();
    assert_eq!(worker.start(0), Some(task.id));
    assert_eq!(worker.call(0, task.id), Some(1));
    scene.tick();
    assert_eq!(scene.engine.answer_call(&call, &answer("one")), Answered::Gone);
}

#[test]
fn a_lease_of_an_answer_is_kept_until_it_is_released() {
    let (scene, mut worker, task) = started();
    assert_eq!(worker.call(0, task.id), Some(1));
    let call = next(&scene).expect("a call");
    let lease = Arc::new(Arena::global().put_parts(&[&[7; 4096]]).expect("room"));
    let (id, weak) = (lease.id(), Arc::downgrade(&lease));
    let segments = vec![Arc::clone(lease.segment())];
    let payload = Payload {
        bytes: answer("leased").bytes,
        ..Beside { lease: Some(lease), segments, ..Beside::default() }.into()
    };
    assert_eq!(scene.engine.answer_call(&call, &payload), Answered::Yes);
    drop(payload);
    assert!(weak.upgrade().is_some());
    assert!(worker.answer_to(0, 1).is_some() && worker.receive().is_some());
    worker.say(0, kind::RELEASE, flags::EMPTY, 1, id);
    scene.tick();
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_call_out_of_place_is_a_lie() {
    for at in 0..2 {
        let (scene, mut worker, task) = started();
        if at == 0 {
            assert_eq!(worker.call(0, task.id + 1), Some(1));
        } else {
            worker.answer(0, task.id);
            assert_eq!(worker.call(0, task.id), Some(1));
        }
        assert!(next(&scene).is_none() && scene.has_killed(&worker), "{at}");
    }
}

#[test]
fn a_thread_that_waits_for_calls_waits_so_long() {
    let (scene, _worker, _task) = started();
    crate::clock::unset();
    let begin = std::time::Instant::now();
    assert!(scene.engine.next_call(begin + Duration::from_millis(5)).is_none());
    assert!(begin.elapsed() >= Duration::from_millis(5));
}
